"""What look-ups answer: messages with the reason where there are none, topics, consumer groups."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from protocol.question import OFFSET_ID, PHYSICAL_OFFSET, Answer, FoundBy, KeyKind, Question, Reading, parts_of
from storage.names import names_holding

Item = TypeVar("Item")


def found_messages(
    question: Question,
    names: Sequence[str],
    found: Sequence[FoundBy],
    readings: Iterable[Reading],
    outcomes: Iterable[str],
    *,
    notes: Iterable[str] = (),
    is_cut: bool = False,
    lost: str = "",
    details: str = "",
) -> Answer:
    """What the text of a question names in topics of these names, and what there is to say about it.

    `is_cut`: there are more than were asked for. `lost` says what may have been lost.
    """
    from rocketlens.arguments import nothing_named
    from storage.life.named_messages import noted_alike

    listed, text = found[: question.maximum], question.text
    noted = noted_alike(readings, listed, text)
    reason = [nothing_named(text, question.topic, names)] if parts_of(question.reading) else []
    reason += [f"as {each.kind}: {each.note}" for each in noted if each.note]
    damaged = [
        f"the message at physical offset {message.physical_offset} is damaged: {damage}"
        for message, _, damage in listed
        if damage is not None
    ]
    more = [_more_than(question.maximum)]
    return Answer(
        tuple(message.detached() for message, _, _ in listed),
        notes=tuple(dict.fromkeys((*damaged, *notes, *(more if is_cut or len(listed) < len(found) else ())))),
        reason="" if listed else "; ".join(filter(None, (*reason, lost))),
        details=details,
        kinds=tuple(kind for _, kind, _ in listed),
        topics=tuple(names_holding(names, text)),
        readings=tuple(noted),
        outcomes=tuple(outcomes),
    )


def _more_than(maximum: int) -> str:
    return f"there are more than {maximum} messages: ask for more with maximum"


def merged(found: Mapping[str, Answer], maximum: int | None = None) -> Answer:
    """What several brokers or stores found, at most `maximum` messages by store time; `found` names each of them."""
    if len(found) == 1:
        return next(iter(found.values()))
    messages = sorted((message for each in found.values() for message in each), key=lambda each: each.store_timestamp)
    notes = [f"{name}: {note}" for name, each in found.items() for note in each.notes]
    notes += [
        f"{name} has older matches: ask it alone, with cursor {each.cursor}"
        for name, each in found.items()
        if each.cursor is not None
    ]
    reasons = dict.fromkeys(each.reason for each in found.values())
    return Answer(
        tuple(messages if maximum is None else messages[-maximum:]),
        notes=tuple(notes),
        reason="" if messages else "; ".join(reasons) or "no broker has the topic",
        details="" if messages else _details(found),
    )


def _details(found: Mapping[str, Answer]) -> str:
    return "; ".join(f"{name}: {each.details}" for name, each in found.items() if each.details)


def joined(found: Mapping[str, Answer], maximum: int) -> Answer:
    """What a text names in several stores, at most `maximum` messages, in the order that one store would have."""
    parts = [
        (FoundBy(message, kind), outcome)
        for each in found.values()
        for message, kind, outcome in zip(each, each.kinds, each.outcomes, strict=True)
    ]
    parts.sort(key=lambda part: place_in_list(part[0]))
    kept, more = parts[:maximum], _more_than(maximum)
    by_kind: dict[str, list[Reading]] = {}
    # A store that has found enough tries no further kinds: the order is that of one that has tried most.
    for each in sorted(found.values(), key=lambda each: -len(each.readings)):
        for reading in each.readings:
            by_kind.setdefault(reading.kind, []).append(reading)
    readings = [
        Reading(
            kind,
            sum(each.found for each in alike),
            "; ".join(dict.fromkeys(filter(None, (each.note for each in alike)))),
        )
        for kind, alike in by_kind.items()
    ]
    return Answer(
        tuple(each.message for each, _ in kept),
        notes=tuple(
            [f"{where}: {note}" for where, each in found.items() for note in each.notes if note != more]
            + ([more] if len(kept) < len(parts) or any(more in each.notes for each in found.values()) else [])
        ),
        reason="" if kept else "; ".join(dict.fromkeys(each.reason for each in found.values())),
        details=_details(found),
        kinds=tuple(each.kind for each, _ in kept),
        topics=tuple(dict.fromkeys(name for each in found.values() for name in each.topics)),
        readings=tuple(readings),
        outcomes=tuple(outcome for _, outcome in kept),
    )


def place_in_list(found: FoundBy) -> tuple[int, str, bool, int]:
    """Where a message comes among what a text names: ids, then keys by topic, then tags by topic, the newest first."""
    if found.kind in (OFFSET_ID, PHYSICAL_OFFSET):
        return 0, "", False, 0
    part = 2 if found.kind == KeyKind.TAG.words else 1
    return part, found.message.topic, found.kind == KeyKind.KEY.words, -found.message.physical_offset


class Listed(list[Item]):
    """A list with `notes`: sentences about what it lacks, or what of it is not as it seems.

    `is_whole`: what it does not have is known not to be there.
    """

    def __init__(self, items: Iterable[Item] = (), notes: Iterable[str] = (), *, is_whole: bool = True) -> None:
        super().__init__(items)
        self.notes, self.is_whole = tuple(notes), is_whole


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic: how many queues it has to read and to write; None where only its name is known."""

    name: str
    read_queues: int | None = None
    write_queues: int | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group: the queue offset that it reads next, by topic and queue id.

    `popped` counts likewise the messages that it has popped and not acknowledged, which its offset is beyond all the
    same; None where that is not known, as of a broker that runs.
    """

    name: str
    offsets: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    popped: Mapping[str, Mapping[int, int]] | None = None


@dataclass(frozen=True, slots=True)
class Info:
    """A store, or a broker that runs; None for what is not known, or is not for a broker to say.

    >>> info = store.info()
    >>> info.state, info.broker, info.min_offset, info.end_offset, info.segments
    ('stopped', 'broker-a', 0, 156014, 2)
    """

    where: str
    """The directory of the store, or the address of the broker."""
    broker: str | None = None
    cluster: str | None = None
    state: str | None = None
    """``live`` where a broker runs on the store, ``crashed`` where it did not stop cleanly, else ``stopped``."""
    version: str | None = None
    """The version of a broker that runs."""
    min_offset: int = 0
    """The physical offset at which the log begins."""
    end_offset: int = 0
    """The physical offset behind the log's last record."""
    segments: int | None = None
    first_timestamp: int | None = None
    """When the first message was stored, in ms."""
    last_timestamp: int | None = None
    """When the last message was stored, in ms."""
    index_files: int | None = None
    index_bytes: int | None = None
    topics: int | None = None
    groups: int | None = None
    problems: tuple[str, ...] = ()
    """Sentences: what is missing or damaged."""
