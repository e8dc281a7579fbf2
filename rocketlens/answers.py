"""What look-ups answer: messages with the reason where there are none, topics, consumer groups."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import groupby
from typing import TYPE_CHECKING, Final, TypeVar

from protocol.message import Message
from protocol.question import (
    OFFSET_ID,
    PHYSICAL_OFFSET,
    Answer,
    FoundBy,
    KeyKind,
    Listing,
    Question,
    Reading,
    newest_of,
    parts_of,
    place_of,
)
from storage.names import names_holding

if TYPE_CHECKING:
    from protocol.find_place import FindPlace

Item = TypeVar("Item")


def found_messages(
    question: Question,
    names: Sequence[str],
    found: Sequence[FoundBy],
    readings: Iterable[Reading],
    outcomes: Iterable[str],
    *,
    notes: Iterable[str] = (),
    next_page: "FindPlace | None" = None,
    lost: str = "",
    details: str = "",
) -> Answer:
    """Make the answer of a text: the messages that it names in some topics, and notes about them.

    `next_page` is where the list goes on if it was cut. `lost` says what may have been lost.
    """
    from rocketlens.arguments import nothing_named
    from storage.life.named_messages import with_shared_notes

    text = question.text
    noted = with_shared_notes(readings, found, text)
    reason = [nothing_named(text, question.topic, names)] if parts_of(question.reading) else []
    reason += [f"as {each.kind}: {each.note}" for each in noted if each.note]
    damaged = [
        f"the message at physical offset {message.physical_offset} is damaged: {damage}"
        for message, _, damage in found
        if damage is not None
    ]
    more = [] if next_page is None else [more_than(question.maximum)]
    return Answer(
        tuple(message.detached() for message, _, _ in found),
        notes=tuple(dict.fromkeys((*damaged, *notes, *more))),
        reason="" if found else "; ".join(filter(None, (*reason, lost))),
        details=details,
        kinds=tuple(kind for _, kind, _ in found),
        topics=tuple(names_holding(names, text)),
        readings=tuple(noted),
        outcomes=tuple(outcomes),
        next_page=None if next_page is None else next_page.text,
    )


def more_than(maximum: int) -> str:
    """A sentence that more messages are named than were asked for."""
    return f"there are more than {maximum} messages: ask for more with `maximum`"


def merged(found: Mapping[str, Answer], maximum: int | None = None) -> Answer:
    """What several brokers or stores found, at most `maximum` messages by store time; `found` names each of them."""
    if len(found) == 1:
        return next(iter(found.values()))
    newest_first = (each.messages[::-1] for each in reversed(list(found.values())))
    messages = list(merge(*newest_first, key=lambda each: -each.store_timestamp))[::-1]
    notes = [f"{name}: {note}" for name, each in found.items() for note in each.notes]
    notes += [
        f"{name} has older matches: ask it alone, with `cursor` {each.cursor}"
        for name, each in found.items()
        if each.cursor is not None
    ]
    reasons = dict.fromkeys(each.reason for each in found.values())
    kept = tuple(messages if maximum is None else newest_of(messages, maximum))
    return Answer(
        kept,
        stores=_stores_of(found, kept),
        notes=tuple(notes),
        reason="" if messages else "; ".join(reasons) or "no broker has the topic",
        details="" if messages else _details(found),
    )


def _stores_of(found: Mapping[str, Answer], messages: Iterable[Message]) -> tuple[str, ...]:
    """The store of each of some messages that were found; nothing where not several stores were asked."""
    stores = {id(message): where for each in found.values() for message, where in zip(each, each.stores, strict=False)}
    return tuple(stores[id(message)] for message in messages) if stores else ()


def _details(found: Mapping[str, Answer]) -> str:
    return "; ".join(f"{name}: {each.details}" for name, each in found.items() if each.details)


def joined(found: Mapping[str, Answer], question: Question | None = None) -> Answer:
    """Several answers about what texts name as one, each message once; `found` has them by what they are answers of.

    Those to one `question`, of several stores, are listed in the order that one store would have, and as many.
    """
    rows: dict[object, tuple[FoundBy, str]] = {}
    for each in found.values():
        for message, kind, outcome in zip(each, each.kinds, each.outcomes or [""] * len(each), strict=True):
            rows.setdefault(place_of(message), (FoundBy(message, kind), outcome))
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
    listed, more, is_cut = [row for row, _ in rows.values()], "", False
    if question is not None:
        more = more_than(question.maximum)
        ends = [each.readings[-1].kind for each in found.values() if more in each.notes]
        numbers = {id(message): number for number, each in enumerate(found.values()) for message in each}

        def rank(each: FoundBy) -> tuple[tuple[int, str, bool], int, int]:
            """As a name server's brokers are asked: in one topic by time, and of one moment the last one's first."""
            section, number = section_of(each), numbers[id(each.message)]
            return (section, -each.message.store_timestamp, -number) if section[0] else (section, number, 0)

        # Merged, those of each store stay in its order, in which it goes on.
        of_store = groupby(listed, lambda each: numbers[id(each.message)])
        listing = _of_several(question, merge(*(list(alike) for _, alike in of_store), key=rank), readings, ends)
        listed, readings, is_cut = listing.found, listing.readings, listing.is_cut or bool(ends)
    return Answer(
        tuple(each.message for each in listed),
        notes=tuple(
            [f"{where}: {note}" for where, each in found.items() for note in each.notes if note != more]
            + ([more] if is_cut else [])
        ),
        reason="" if listed else "; ".join(dict.fromkeys(each.reason for each in found.values())),
        details=_details(found),
        kinds=tuple(each.kind for each in listed),
        topics=tuple(dict.fromkeys(name for each in found.values() for name in each.topics)),
        readings=tuple(readings),
        outcomes=tuple(rows[place_of(each.message)][1] for each in listed),
        stores=_stores_of(found, (each.message for each in listed)),
    )


def _of_several(question: Question, found: Iterable[FoundBy], readings: Iterable[Reading], ends: list[str]) -> Listing:
    """List what several stores have found, in order, of which some found more by one of the readings `ends`."""
    listing, ordered = Listing(question), list(found)
    for reading in readings:
        listing.read(reading.kind, reading.note)
        kinds = {reading.kind, *(kind.words for parts in parts_of(reading.kind) for kind in parts)}
        alike = (each for each in ordered if each.kind in kinds)
        for found_by, each in groupby(alike, lambda each: each.kind):
            listing.take_all(found_by, (one.message for one in each))
        if listing.is_cut or reading.kind in ends:
            break
    return listing


def section_of(found: FoundBy) -> tuple[int, str, bool]:
    """Where in a list of what a text names a message comes: ids, then keys by topic, then tags by topic."""
    if found.kind in (OFFSET_ID, PHYSICAL_OFFSET):
        return 0, "", False
    part = 2 if found.kind == KeyKind.TAG.words else 1
    return part, found.message.topic, found.kind == KeyKind.KEY.words


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


POPPED_NOT_KNOWN: Final = "what groups have popped and not acknowledged is not known, and counts as consumed"


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group: the queue offset that it reads next, by topic and queue id.

    `popped` counts likewise the messages that it has popped and not acknowledged, which its offset is beyond all the
    same; None where that is not known, as of another broker than a RocketLens server.
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
