"""What look-ups answer: messages with the reason where there are none, topics, consumer groups."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, overload

from protocol.message import Message
from protocol.question import OFFSET_ID, PHYSICAL_OFFSET, FoundBy, KeyKind, Question, Reading, parts_of
from storage.names import names_holding

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Messages(Sequence[Message]):
    """What a look-up found: a sequence of messages, which explains itself where it is empty.

    >>> found = store.query("TopicTest", key="nosuchkey")
    >>> len(found)
    0
    >>> found.reason
    'no message of topic TopicTest has the key nosuchkey'
    >>> found.details
    'searched 10 index files, walked ...'
    """

    messages: tuple[Message, ...] = ()
    """Ascending by physical offset; those of several brokers by store time."""
    cursor: int | None = None
    """Where older matches go on that were left out; None where none were."""
    notes: tuple[str, ...] = ()
    """Sentences: what may be missing, and what is odd about something found."""
    reason: str = ""
    """Why nothing was found; empty where something was."""
    details: str = field(default="", kw_only=True, repr=False)
    """What was searched in vain: how many index files and entries, and which part of the log they cover."""

    def __len__(self) -> int:
        return len(self.messages)

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)

    @overload
    def __getitem__(self, number: int) -> Message: ...

    @overload
    def __getitem__(self, number: slice) -> tuple[Message, ...]: ...

    def __getitem__(self, number: int | slice) -> Message | tuple[Message, ...]:
        return self.messages[number]


@dataclass(frozen=True, slots=True)
class PulledMessages(Messages):
    """Messages of a queue, in its order, and where it goes on."""

    next_offset: int = 0
    """The queue offset to pull from next; it moves on also where a filter let nothing through."""
    min_offset: int = 0
    """The first queue offset that is still there."""
    max_offset: int = 0
    """The queue offset that the next message will have: the queue is read to its end once `next_offset` is this."""


@dataclass(frozen=True, slots=True)
class FoundMessages(Messages):
    """Messages that a text names, those with such an id first, then by topic, the newest of each first."""

    kinds: tuple[str, ...] = ()
    """What each message was found by: its ``unique key``, a ``key``, its ``tag``, or the id that the text may be."""
    topics: tuple[str, ...] = ()
    """The topics whose name holds the text."""
    readings: tuple[Reading, ...] = ()
    """All that the text was taken for, in this order, whether a message was found or not."""
    outcomes: tuple[str, ...] = ()
    """How the transaction of each half message ended, as :meth:`Store.life` says it; empty for other messages."""


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
) -> FoundMessages:
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
    return FoundMessages(
        tuple(message.detached() for message, _, _ in listed),
        None,
        tuple(dict.fromkeys((*damaged, *notes, *(more if is_cut or len(listed) < len(found) else ())))),
        "" if listed else "; ".join(filter(None, (*reason, lost))),
        tuple(kind for _, kind, _ in listed),
        tuple(names_holding(names, text)),
        tuple(noted),
        tuple(outcomes),
        details=details,
    )


def _more_than(maximum: int) -> str:
    return f"there are more than {maximum} messages: ask for more with --limit (in Python with maximum)"


def merged(found: Mapping[str, Messages], maximum: int | None = None) -> Messages:
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
    return Messages(
        tuple(messages if maximum is None else messages[-maximum:]),
        notes=tuple(notes),
        reason="" if messages else "; ".join(reasons) or "no broker has the topic",
        details="" if messages else _details(found),
    )


def _details(found: Mapping[str, Messages]) -> str:
    return "; ".join(f"{name}: {each.details}" for name, each in found.items() if each.details)


def joined(found: Mapping[str, FoundMessages], maximum: int) -> FoundMessages:
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
    return FoundMessages(
        tuple(each.message for each, _ in kept),
        None,
        tuple(
            [f"{where}: {note}" for where, each in found.items() for note in each.notes if note != more]
            + ([more] if len(kept) < len(parts) or any(more in each.notes for each in found.values()) else [])
        ),
        "" if kept else "; ".join(dict.fromkeys(each.reason for each in found.values())),
        tuple(each.kind for each, _ in kept),
        tuple(dict.fromkeys(name for each in found.values() for name in each.topics)),
        tuple(readings),
        tuple(outcome for _, outcome in kept),
        details=_details(found),
    )


def place_in_list(found: FoundBy) -> tuple[int, str, bool, int]:
    """Where a message comes among what a text names: ids, then keys by topic, then tags by topic, the newest first."""
    if found.kind in (OFFSET_ID, PHYSICAL_OFFSET):
        return 0, "", False, 0
    part = 2 if found.kind == KeyKind.TAG.words else 1
    return part, found.message.topic, found.kind == KeyKind.KEY.words, -found.message.physical_offset


class Listed(list[Item]):
    """A list with `notes`: sentences about what it lacks, or what of it is not as it seems."""

    def __init__(self, items: Iterable[Item] = (), notes: Iterable[str] = ()) -> None:
        super().__init__(items)
        self.notes = tuple(notes)


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
