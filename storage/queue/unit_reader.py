"""Reads the units of a queue in order, and what the log has in the place of those that are damaged or lost.

Pulls and the page read alike, and know nothing of damage. Whether a unit leads to its message is known only by its
record, and a pull reads no record that its filter does not want. So a unit comes as the file has it, until its message
is asked for (:meth:`UnitReader.message`); if it leads to none, the one in its place is read. What was found in the log
then comes as another part of the queue (:mod:`storage.queue.queue_holes`), and so does what is known from before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from typing import Final

from storage.arrays import np, npt
from storage.files.waiting import Lookup, finish
from storage.queue.consume_queue_ext import is_extension_address
from storage.queue.queue import ConsumeQueueEntry, SourceQueue
from storage.queue.queue_record import batch_in, tags_code_of
from storage.queue.unit_standing import is_implausible
from storage.queue.unit_struct import FILLER, UNIT_DTYPE, Unit

AT_ONCE: Final = 64
"""Number of units that are read together."""

NOWHERE: Final = -1
LOST: Final = -1 << 32
"""The physical offset and the size in a unit, or an entry, for messages that the log lacks too; in no file is such a
size, which has more than 32 bits."""


class Missing(Enum):
    """Why a unit yields no record."""

    UNWANTED = "its tag is not wanted"
    UNREADABLE = "its record is damaged, or its segment is gone"
    SKIPPED = "it leads into the rest of a segment that is gone"
    LOST = "no unit leads to its message, and the log lacks it too"


class UnitReader:
    """Reads units of one queue, and their messages, for one pull or one list of messages.

    `is_of_log` says that the last unit was made of its record, so that it leads to its message.
    """

    __slots__ = ("_skip_to", "_units", "is_of_log", "queue")

    def __init__(self, queue: SourceQueue) -> None:
        self.queue = queue
        self._units: Iterator[Unit] | None = None
        self._skip_to = 0  # where the log continues after a missing segment
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

    def message(
        self, unit: Unit, wants: Callable[[int], Lookup[bool]] | None, *, is_checked: bool
    ) -> Lookup[tuple[memoryview | Missing, Unit]]:
        """Return the record that the last unit leads to, or why there is none; and the unit, or that in its place.

        No record is read if `wants` says of the tags code that the message is not wanted. `is_checked` has the record's
        checksums verified. Raises BeingSearched while the log is searched.
        """
        found = yield from self._by_unit(unit, wants, is_checked)
        if found is None and not self.is_of_log:
            unit = yield from self.instead_of(*unit[:2])
            found = yield from self._by_unit(unit, wants, is_checked)
        if found is None:
            found = Missing.LOST if unit[3] == LOST else Missing.UNREADABLE
        return found, unit

    def record_bytes(self, unit: Unit) -> int:
        """Return the size of a unit's record before it is read; 0 if the log has to be searched for it first."""
        return unit[3] if self.queue.log.minimum <= unit[2] < self.queue.log.end else 0

    def _by_unit(
        self, unit: Unit, wants: Callable[[int], Lookup[bool]] | None, is_checked: bool
    ) -> Lookup[memoryview | Missing | None]:
        """Return the record of a unit, or why it has none; None if the unit leads to no message."""
        offset, _, physical_offset, size, tags_code = unit
        log, is_filler = self.queue.log, (physical_offset, size, tags_code) == FILLER
        if not is_filler and is_implausible(log, physical_offset, size):
            return None
        if physical_offset < self._skip_to and log.segment_of(physical_offset) is None:
            return Missing.SKIPPED
        if wants is not None and not (yield from wants(tags_code)):
            is_suspect = not self.is_of_log and (yield from self.queue.is_tag_suspect(offset))
            record = (yield from log.record_at_lookup(physical_offset)) if is_suspect else None
            if record is not None and not (yield from self._is_for(record, unit)):
                return (yield from self._unreadable(offset, physical_offset))
            if record is None or not (yield from wants(tags_code_of(record))):
                return Missing.UNWANTED
        record_at = log.record_at_lookup if is_checked else log.unchecked_record_at_lookup
        record = yield from record_at(physical_offset)
        if record is None or is_filler or not (yield from self._is_for(record, unit)):
            return (yield from self._unreadable(offset, physical_offset))
        self._skip_to = 0
        return record

    def _is_for(self, record: memoryview, unit: Unit) -> Lookup[bool]:
        """Return whether a record is the message of a unit: it has its queue offset, or else its queue and size.

        A record with another queue offset is accepted only if the unit is not doubtful.
        """
        offset, after, physical_offset, size, _ = unit
        claimed = self.queue.name.offset_in(record, physical_offset)
        if claimed is None or self.queue.has_batches:
            return claimed is not None and batch_in(record, claimed) == (offset, after - offset)
        return claimed == offset or (len(record) == size and not (yield from self.queue.is_doubtful_lookup(offset)))

    def _unreadable(self, queue_offset: int, physical_offset: int) -> Lookup[Missing | None]:
        if (yield from self.queue.is_doubtful_lookup(queue_offset)):
            return None
        log = self.queue.log
        if log.segment_of(physical_offset) is None:
            log.refuse_unreadable(physical_offset)
            self._skip_to = log.next_segment_start(physical_offset) or 0
        return Missing.UNREADABLE

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
