"""Messages of a queue whose units are damaged, found in the log instead: by their own word, between their neighbours.

A unit is 20 bytes without a checksum; the record that it should lead to says topic, queue and queue offset itself. So
a unit that leads to no message of its place is looked for between the messages before and behind it, and a queue does
not end at a unit that is lost while later ones hold. Units that nothing in the log bears out stay what they are:
left over, and behind the end (store-format §6.3). What is found of a run of damaged units is remembered
(:mod:`storage.queue.queue_holes`).
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from storage.files.waiting import Lookup, finish
from storage.kernels.messages import NOT_FOUND, MessageSearch, find_messages
from storage.kernels.records import HEAD
from storage.log.commit_log import CommitLog
from storage.queue.queue_record import QueueName

MOST_BEYOND: Final = 64
"""Messages with later queue offsets that are met before a search ends: one alone may lie about its offset."""


Places = npt.NDArray[np.int64]
NOTHING_KNOWN: Final[Places] = np.empty(0, np.int64)


class Units(Protocol):
    """The units of a plain queue, as they stand in its files."""

    name: QueueName

    @property
    def log(self) -> CommitLog:
        """The log that the units point into."""
        ...

    def unit_lookup(self, queue_offset: int) -> Lookup[tuple[int, int, int] | None]:
        """Physical offset, size and tags code; None outside the files."""
        ...

    def plausible(self, first: int, stop: int, *, is_backward: bool) -> Iterator[int]:
        """Queue offsets in [first, stop) of the units that point into the log, in one order or the other."""
        ...


class DamagedRun(NamedTuple):
    """A run of units without one that leads to its message, and the part of the log where its messages can be.

    ``first`` and ``stop`` are queue offsets, ``start`` and ``end`` physical offsets; ``is_open`` where no unit behind
    the run holds, so that the log's own end is the end.
    """

    first: int
    stop: int
    start: int
    end: int
    is_open: bool


def claim_of(units: Units, queue_offset: int) -> Lookup[tuple[int, int, int] | None]:
    """The queue offset that the message behind a unit says of itself, its physical offset and its end, or None."""
    unit = yield from units.unit_lookup(queue_offset)
    if unit is None or unit[0] < 0 or unit[1] <= 0:
        return None
    record = yield from units.log.record_at_lookup(unit[0])
    claimed = None if record is None else units.name.offset_in(record, unit[0])
    return None if record is None or claimed is None else (claimed, unit[0], unit[0] + len(record))


def place_of(units: Units, queue_offset: int) -> Lookup[tuple[int, int] | None]:
    """Physical offset of a message and the end of its record, if its unit leads to it; None otherwise."""
    claim = yield from claim_of(units, queue_offset)
    return None if claim is None or claim[0] != queue_offset else claim[1:]


def around(units: Units, queue_offset: int, first: int, end: int) -> DamagedRun:
    """What lies around a unit that does not lead to its message; the queue's units are those from ``first`` to ``end``.

    A neighbour that leads to another message of the queue bounds the search as well, if that one is not on the other
    side. However far away a neighbour is, it is found; waits for the disk.
    """
    start, stop_at = units.log.minimum, units.log.end
    behind = None
    for before in units.plausible(first, queue_offset, is_backward=True):
        claim = finish(claim_of(units, before))
        if claim is not None and claim[0] <= before:
            first, start = before + 1, claim[2]
            break
    for behind in units.plausible(queue_offset + 1, end, is_backward=False):
        claim = finish(claim_of(units, behind))
        if claim is not None and claim[0] >= behind:
            return DamagedRun(first, behind, start, claim[1], False)
    return DamagedRun(first, end, start, stop_at, True)


def search(log: CommitLog, name: QueueName, queue_offset: int, start: int, stop: int) -> int | None:
    """Physical offset in [start, stop) of a queue's message; ``queue_offset`` ANY_OFFSET for the first of all."""
    wanted = SoughtMessages(name, queue_offset, 1)
    position = start
    while not wanted.is_found and position < stop:
        position = search_piece(log, [wanted], position, stop)
    return wanted.place(0)


class SoughtMessages:
    """Messages of one queue that are looked for, and where the log has them."""

    __slots__ = ("name", "places", "search")

    def __init__(self, name: QueueName, first: int, count: int, known: Places = NOTHING_KNOWN) -> None:
        """``count`` queue offsets from ``first`` on, of the first of which is ``known`` what was found before."""
        self.name = name
        self.places = np.full(count, NOT_FOUND, np.int64)
        self.places[: known.size] = known
        self.search = MessageSearch(name.topic_bytes, name.queue_id, first, self.places, MOST_BEYOND)

    @property
    def is_found(self) -> bool:
        """Whether nothing of it is left to be found."""
        return self.search.left == 0

    def place(self, number: int) -> int | None:
        """Physical offset of one of the messages by its number, or None."""
        found = int(self.places[number])
        return found if found >= 0 else None


def search_piece(log: CommitLog, wanted: Sequence[SoughtMessages], start: int, stop: int) -> int:
    """Look for messages in [start, stop) of the log, in one segment; the physical offset at which to go on.

    That is ``stop`` or beyond at the end of the search, and at most one segment's end before.
    """
    segment = next((segment for segment in log.segments if segment.end > start), None)
    if segment is None or segment.base_offset >= stop:
        return stop
    base, readable = segment.base_offset, segment.valid_length
    first, limit = max(start - base, 0), min(stop - base, readable)
    searches = [each.search for each in wanted]
    position = find_messages(segment.file.region, first, limit, readable, base, segment.boundary, searches)
    return segment.end if position + HEAD > readable else base + position
