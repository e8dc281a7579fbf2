"""Reads the units of a queue in order, and what the log has in the place of those that are damaged or lost.

Pulls and the page read alike. Whether a unit leads to its message is known only by its record, and a pull reads no
record that its filter does not want. So a unit comes as the file has it, and who finds that it leads to no message asks
for the one in its place (:meth:`UnitReader.instead_of`). What was found in the log then comes as another part of the
queue (:mod:`storage.queue.queue_holes`), and so does what is known from before.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from storage.arrays import np, npt
from storage.files.waiting import Lookup, finish
from storage.queue.consume_queue_ext import is_extension_address
from storage.queue.queue import ConsumeQueueEntry, SourceQueue
from storage.queue.unit_struct import UNIT_DTYPE, Unit

AT_ONCE: Final = 64
"""Number of units that are read together."""

NOWHERE: Final = -1
LOST: Final = -1 << 32
"""The physical offset and the size in a unit, or an entry, for messages that the log lacks too; in no file is such a
size, which has more than 32 bits."""


class UnitReader:
    """Reads units of one queue for one pull, or one list of messages.

    `is_of_log` says that the last unit was made of its record, so that it leads to its message.
    """

    __slots__ = ("_units", "is_of_log", "queue")

    def __init__(self, queue: SourceQueue) -> None:
        self.queue = queue
        self._units: Iterator[Unit] | None = None
        self.is_of_log = False

    def unit_at(self, queue_offset: int, stop: int) -> Lookup[Unit | None]:
        """Return the unit behind the last one, that of `queue_offset`; None at the end of a file or at `stop`.

        A unit for messages that the log lacks too has the size LOST; it may reach beyond `stop`.
        """
        while queue_offset < stop:
            is_new = self._units is None
            if self._units is None:
                if queue_offset >= self.queue.max_offset:
                    break
                self._units = yield from self._part(queue_offset, stop)
            unit = next(self._units, None)
            while unit is not None and unit[1] <= queue_offset:
                unit = next(self._units, None)
            if unit is not None and unit[0] <= queue_offset and (unit[2] >= 0 or not self.queue.has_batches):
                return unit
            if unit is not None or (is_new and not self.is_of_log):
                return (yield from self.instead_of(queue_offset))
            self._units = None
            if not self.is_of_log:
                break
        return None

    def instead_of(self, queue_offset: int, behind: int | None = None) -> Lookup[Unit]:
        """Return the unit to read in the place of one that leads to no message, or is lost; LOST if the log has none.

        The one that a file has reaches up to `behind`. Raises BeingSearched while the log is searched.
        """
        hole = yield from self.queue.hole_at_lookup(queue_offset)
        self._units, self.is_of_log = hole.units_from(queue_offset), True
        unit = next(self._units, None)
        if unit is not None:
            return unit
        self._units = None
        if behind is None or self.queue.has_batches:
            behind = hole.after(queue_offset)
        return queue_offset, behind, NOWHERE, LOST, 0

    def _part(self, queue_offset: int, stop: int) -> Lookup[Iterator[Unit]]:
        """Return the units from a queue offset on: those that were found in the log, else those of a file."""
        hole = self.queue.holes.known(self.queue, queue_offset)
        self.is_of_log = hole is not None
        if hole is not None:
            return hole.units_from(queue_offset)
        return iter((yield from self.queue.walk(queue_offset, stop - queue_offset)) or ())


def units_in_log(queue: SourceQueue, start: int, stop: int) -> Lookup[npt.NDArray[np.void]]:
    """Return the units that the log has for those of queue offsets in [start, stop) that lead to no message.

    They are units of a plain queue, also of one of batches. Raises BeingSearched while the log is searched.
    """
    found = [np.empty(0, UNIT_DTYPE)]
    while start < stop:
        behind = start + 1
        if (yield from queue.is_doubtful_lookup(start)):
            hole = yield from queue.hole_at_lookup(start)
            behind = min(stop, hole.stop)
            found.append(hole.units_between(start, behind))
        start = behind
    return np.concatenate(found, dtype=UNIT_DTYPE)


def entries_between(queue: SourceQueue, first: int, stop: int) -> Iterator[ConsumeQueueEntry]:
    """Yield the entries of queue offsets in [first, stop), in order; each leads to its message, or is LOST.

    There is one such entry for each run of messages without a unit that the log lacks too. Waits for the disk. Raises
    BeingSearched while the log is searched.
    """
    reader, stop = UnitReader(queue), min(stop, queue.max_offset)
    while first < stop:
        unit = finish(reader.unit_at(first, min(first + AT_ONCE, stop)))
        if unit is None:
            continue
        if not reader.is_of_log and finish(queue.is_doubtful_lookup(unit[0])):
            unit = finish(reader.instead_of(*unit[:2]))
        offset, first, place, size, tags_code = unit
        if size == LOST:
            first = min(first, stop)
        extension = finish(queue.extension_at(tags_code)) if is_extension_address(tags_code) else None
        code = tags_code if extension is None else extension.tags_code
        yield ConsumeQueueEntry(offset, place, size, code, extension, first - offset)


def entries_before(queue: SourceQueue, first: int, stop: int) -> Iterator[ConsumeQueueEntry]:
    """Yield the entries of queue offsets in [first, stop) from the last one on; those of batches perhaps twice."""
    while first < stop:
        start = max(stop - AT_ONCE, first)
        yield from (each for each in reversed(list(entries_between(queue, start, stop))) if each.queue_offset < stop)
        stop = start
