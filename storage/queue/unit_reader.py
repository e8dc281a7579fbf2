"""Reads the units of a queue in order, and what the log has in the place of those that are damaged or lost.

Pulls and the page read alike. Whether a unit leads to its message is known only by its record, and a pull reads no
record that its filter does not want. So a unit comes as the file has it, and who finds that it leads to no message asks
for the one in its place (:meth:`UnitReader.instead_of`). From then on units of that hole
(:mod:`storage.queue.queue_holes`) come as the log has them. So do those of a file that is lost.
"""

from collections.abc import Generator, Iterator
from typing import Final

from storage.files.waiting import Lookup, Wait, finish
from storage.queue.consume_queue_ext import is_extension_address
from storage.queue.queue import ConsumeQueueEntry, SourceQueue, Unit
from storage.queue.queue_holes import QueueHole
from storage.queue.queue_record import tags_code_of

AT_ONCE: Final = 64
"""Number of units that are read together."""

NOWHERE: Final = -1
LOST: Final = -1 << 32
"""The physical offset and the size in a unit, or an entry, for messages that the log lacks too; in no file is such a
size, which has more than 32 bits."""


class UnitReader:
    """Reads units of one queue for one pull, or one list of messages."""

    __slots__ = ("_hole", "_is_stale", "queue")

    def __init__(self, queue: SourceQueue) -> None:
        self.queue = queue
        self._hole: QueueHole | None = None
        self._is_stale = False  # the units that follow may have been replaced by repaired ones

    def units(self, queue_offset: int, stop: int) -> Iterator[Unit | Wait]:
        """Yield units from `queue_offset` on, of one file or of one hole, and the waits between them.

        They have no gaps. One for messages that the log lacks too has the size LOST; it may reach beyond `stop`.
        """
        units = yield from self.queue.walk(queue_offset, stop - queue_offset)
        if units is None:
            yield from self._of_hole(queue_offset, stop)
            return
        for unit in units:
            is_lost = unit[2] < 0 and self.queue.has_batches
            if unit[0] > queue_offset or is_lost:
                behind = unit[1] if is_lost else unit[0]
                queue_offset = (yield from self._of_hole(queue_offset, behind)).stop
                if queue_offset != behind:
                    return
            if unit[1] > queue_offset:
                queue_offset = unit[1]
                yield unit if self._hole is None else (yield from self._found_for(unit[0])) or unit
            if self._is_stale:
                return

    def is_of_log(self, unit: Unit) -> bool:
        """Return whether a unit comes from the log, so that it leads to its message."""
        hole = self._hole
        return hole is not None and hole.first <= unit[0] < hole.stop and hole.place(unit[0]) == unit[2]

    def instead_of(self, unit: Unit) -> Lookup[Unit]:
        """Return the unit to read in the place of one that leads to no message; LOST if the log has none either.

        Raises BeingSearched while the log is searched for it.
        """
        hole = self._hole
        if hole is None or not hole.first <= unit[0] < hole.stop:
            hole = self._hole = yield from self.queue.hole_at_lookup(unit[0])
            self._is_stale = self.queue.has_batches
        found = yield from self._found_for(unit[0])
        return found or (unit[0], hole.after(unit[0]) if self.queue.has_batches else unit[1], NOWHERE, LOST, 0)

    def _of_hole(self, queue_offset: int, stop: int) -> Generator[Unit | Wait, None, QueueHole]:
        """Yield units of one hole: one for each record that the log has, and for each run of messages that it lacks."""
        hole = self._hole = yield from self.queue.hole_at_lookup(queue_offset)
        while queue_offset < min(stop, hole.stop):
            after = hole.after(queue_offset)
            yield (yield from self._found_for(queue_offset)) or (queue_offset, after, NOWHERE, LOST, 0)
            queue_offset = after
        return hole

    def _found_for(self, queue_offset: int) -> Lookup[Unit | None]:
        """Return the unit of the record that was found for a queue offset; None for one that is not in the hole."""
        hole = self._hole
        place = None if hole is None or not hole.first <= queue_offset < hole.stop else hole.place(queue_offset)
        if hole is None or place is None:
            return None
        record = yield from self.queue.log.unchecked_record_at_lookup(place)
        size, tags_code = (LOST, 0) if record is None else (len(record), tags_code_of(record))
        return queue_offset, hole.after(queue_offset), place, size, tags_code


def entries_between(queue: SourceQueue, first: int, stop: int) -> Iterator[ConsumeQueueEntry]:
    """Yield the entries of queue offsets in [first, stop), in order; each leads to its message, or is LOST.

    There is one such entry for each run of messages without a unit that the log lacks too. Waits for the disk. Raises
    BeingSearched while the log is searched.
    """
    reader = UnitReader(queue)
    while first < stop:
        for unit in reader.units(first, min(first + AT_ONCE, stop)):
            if isinstance(unit, Wait):
                unit.warm()
                continue
            if unit[0] >= stop:
                break
            if unit[3] != LOST and not reader.is_of_log(unit) and queue.is_doubtful(unit[0]):
                unit = finish(reader.instead_of(unit))
            offset, first, place, size, tags_code = unit
            if size == LOST:
                first = min(first, stop)
            extension = finish(queue.extension_at(tags_code)) if is_extension_address(tags_code) else None
            code = tags_code if extension is None else extension.tags_code
            yield ConsumeQueueEntry(offset, place, size, code, extension, first - offset)
