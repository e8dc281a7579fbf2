"""Finds the messages of damaged units in the log, between the messages of the nearest sound units.

A unit is 20 bytes without a checksum; the record that it should lead to has topic, queue and queue offset itself. So if
a unit does not lead to its message, the message is searched between those before and after it, and a queue does not end
at a lost unit if later ones are sound. Units without any message in the log count as left over, after the end of the
queue (store-format §6.3). The results for a run of damaged units are kept (:mod:`storage.queue.queue_holes`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from storage.arrays import np, npt
from storage.files.waiting import Lookup, finish
from storage.kernels.messages import NOT_FOUND, MessageSearch, find_messages
from storage.kernels.records import HEAD
from storage.log.commit_log import CommitLog
from storage.queue.queue_record import QueueName

MOST_TOGETHER: Final = 1 << 22
"""Queue offsets of a run that are searched together: a file's size may claim any number of lost ones."""

MOST_BEYOND: Final = 64
"""Messages with later queue offsets after which a search ends; a single one may have a wrong queue offset."""


UNIT_DTYPE: Final = [("physical_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")]
"""A plain queue's unit in arrays; apart from its struct, by which single units are read without NumPy."""


class Units(Protocol):
    """The units of a plain queue, as they are in its files."""

    name: QueueName

    @property
    def log(self) -> CommitLog:
        """The log that the units point into."""
        ...

    def unit_lookup(self, queue_offset: int) -> Lookup[tuple[int, int, int] | None]:
        """Return physical offset, size and tags code of a unit; None outside of the files."""
        ...

    def plausible(self, first: int, stop: int, *, is_backward: bool) -> Iterator[int]:
        """Yield the queue offsets in [first, stop) of units that point into the log, ascending or descending."""
        ...


class DamagedRun(NamedTuple):
    """A run of units none of which leads to its message, and the part of the log in which the messages can be.

    ``first`` and ``stop`` are queue offsets, ``start`` and ``end`` physical offsets. ``is_open`` says that there is no
    sound unit after the run, so that ``end`` is the end of the log.
    """

    first: int
    stop: int
    start: int
    end: int
    is_open: bool


def claim_of(units: Units, queue_offset: int) -> Lookup[tuple[int, int, int] | None]:
    """Return queue offset, physical offset and end of the message that a unit leads to, None if there is none."""
    unit = yield from units.unit_lookup(queue_offset)
    if unit is None or unit[0] < 0 or unit[1] <= 0:
        return None
    record = yield from units.log.record_at_lookup(unit[0])
    claimed = None if record is None else units.name.offset_in(record, unit[0])
    return None if record is None or claimed is None else (claimed, unit[0], unit[0] + len(record))


def place_of(units: Units, queue_offset: int) -> Lookup[tuple[int, int] | None]:
    """Return the physical offset of a message and the end of its record if its unit leads to it, else None."""
    claim = yield from claim_of(units, queue_offset)
    return None if claim is None or claim[0] != queue_offset else claim[1:]


def around(units: Units, queue_offset: int, first: int, end: int) -> DamagedRun:
    """Return the run around a unit that does not lead to its message, in a queue of units from ``first`` to ``end``.

    The run also ends at a unit that leads to another message of the queue, if that message is on the same side of it.
    The nearest such units are found at any distance; waits for the disk. Of a very long run it is the part around the
    unit.
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
            return _part_of(DamagedRun(first, behind, start, claim[1], False), queue_offset)
    return _part_of(DamagedRun(first, end, start, stop_at, True), queue_offset)


def _part_of(run: DamagedRun, queue_offset: int) -> DamagedRun:
    """Return the run, or of a long one the part with a queue offset; parts are the same whichever they are asked by."""
    first = max(run.first, queue_offset - queue_offset % MOST_TOGETHER)
    stop = min(run.stop, queue_offset - queue_offset % MOST_TOGETHER + MOST_TOGETHER)
    if run.stop - run.first <= MOST_TOGETHER or (first, stop) == run[:2]:
        return run
    return run._replace(first=first, stop=stop, is_open=run.is_open and stop == run.stop)


def search(log: CommitLog, name: QueueName, queue_offset: int, start: int, stop: int) -> int | None:
    """Return the physical offset in [start, stop) of a queue's message, None if there is none.

    With ANY_OFFSET as ``queue_offset`` the first message of the queue is searched.
    """
    wanted = SoughtMessages(name, queue_offset, 1)
    position = start
    while not wanted.is_found and position < stop:
        position = search_piece(log, [wanted], position, stop)
    return wanted.place(0)


class SoughtMessages:
    """Messages of one queue that are searched in the log, and their units, as in a plain queue's file."""

    __slots__ = ("name", "search", "units")

    def __init__(
        self,
        name: QueueName,
        first: int,
        count: int,
        known: npt.NDArray[np.void] | None = None,
        *,
        grows: bool = False,
    ) -> None:
        """Search for ``count`` queue offsets from ``first`` on; ``known`` are units that were found before.

        With ``grows`` later ones count too, for which :attr:`is_full` asks for room.
        """
        self.name = name
        self.units = np.zeros(count, UNIT_DTYPE)
        self.units["physical_offset"] = NOT_FOUND
        if known is not None:
            self.units[: known.size] = known
        units = self.units.view(np.uint8)
        self.search = MessageSearch(name.topic_bytes, name.queue_id, first, units, MOST_BEYOND, grows=grows)

    @property
    def places(self) -> npt.NDArray[np.int64]:
        """The physical offsets of the messages, NOT_FOUND for others; a view."""
        return self.units["physical_offset"]

    @property
    def is_found(self) -> bool:
        """Whether all messages were found."""
        return self.search.left == 0

    @property
    def is_full(self) -> bool:
        """Whether there is no room for the unit of the message that comes next."""
        return self.search.is_full

    def place(self, number: int) -> int | None:
        """The physical offset of one of the messages by its number, or None."""
        found = int(self.places[number])
        return found if found >= 0 else None


def search_piece(log: CommitLog, wanted: Sequence[SoughtMessages], start: int, stop: int) -> int:
    """Search for messages in [start, stop) of the log, in one segment; return the physical offset to go on from.

    That is ``stop`` or more when the search is done; before that it is at most the end of the segment.
    """
    segment = next((segment for segment in log.segments if segment.end > start), None)
    if segment is None or segment.base_offset >= stop:
        return stop
    base, readable = segment.base_offset, segment.valid_length
    first, limit = max(start - base, 0), min(stop - base, readable)
    searches = [each.search for each in wanted]
    position = find_messages(segment.file.region, first, limit, readable, base, segment.boundary, searches)
    return segment.end if position + HEAD > readable else base + position
