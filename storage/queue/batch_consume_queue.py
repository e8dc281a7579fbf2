"""BatchConsumeQueue: the queue of a topic whose records hold whole batches, a 46-byte pointer for each record.

UNIT
offset  size  type   field              meaning
0       8     i64    physical_offset    where the record starts in the commit log
8       4     i32    size               of the whole record
12      8     i64    tags_code          the tag's hash
20      8     i64    store_timestamp    the broker's clock, ms
28      8     i64    base_offset        queue offset of the batch's first message
36      2     i16    batch_size         number of messages
38      4     i32    compacted_offset   −1
42      4     i32    reserved           0

The position of a unit does not determine its queue offset; units ascend by base offset. Source: store-format §5.8.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from struct import Struct
from typing import Final, TypeAlias

from protocol.errors import QueueBeingSearched
from storage.arrays import np, npt
from storage.files.open_files import OpenFiles
from storage.files.waiting import Lookup, finish
from storage.log.commit_log import CommitLog
from storage.queue._damaged_run import DamagedRun
from storage.queue._file_queue import FileQueue
from storage.queue._queue_begin import first_live, next_sound
from storage.queue._queue_end import find_end
from storage.queue._queue_growth import KnownEnd, QueueMemory, end_after, is_judged_anew
from storage.queue._wrong_batches import Batches, CheckedUnits, UnitFields, doubtful_units, without_wrong
from storage.queue.consume_queue_ext import ConsumeQueueExtUnit
from storage.queue.queue import NO_TIMESTAMP, ConsumeQueueEntry, TimeBoundary
from storage.queue.queue_files import UnitBlocks
from storage.queue.queue_hole import UNKNOWN, QueueHole
from storage.queue.queue_holes import LostQueues, QueueHoles
from storage.queue.queue_record import QueueName, batch_in
from storage.queue.unit_reader import LOST, UnitReader, entries_between, units_in_log
from storage.queue.unit_standing import EMPTY, Places, Standing, places_of, record_of_unit
from storage.queue.unit_struct import Unit
from storage.ranges import Range

__all__ = ["UNIT", "UNIT_DTYPE", "BatchConsumeQueue"]

UNIT: Final = Struct(">qiqqqhii")
UNIT_DTYPE: Final = [
    ("physical_offset", ">i8"),
    ("size", ">i4"),
    ("tags_code", ">i8"),
    ("store_timestamp", ">i8"),
    ("base_offset", ">i8"),
    ("batch_size", ">i2"),
    ("compacted_offset", ">i4"),
    ("reserved", ">i4"),
]
NO_OFFSET: Final = -1
CHECKED_FILES: Final = 3
"""The number of last files whose units are checked when a queue is opened; earlier ones are checked when needed."""

Units: TypeAlias = "npt.NDArray[np.void]"


class BatchConsumeQueue(FileQueue, Batches):
    """One queue of batches; its units are numbered from the first one in the first file."""

    __slots__ = ("_checked", "_first_numbers")
    _bounds: tuple[int, int, int] | None
    unit_size = UNIT.size
    has_batches = True

    def __init__(
        self,
        name: QueueName,
        directory: Path,
        commit_log: CommitLog,
        open_files: OpenFiles,
        memory: QueueMemory | None = None,
        holes: QueueHoles | None = None,
        beside: LostQueues | None = None,
    ) -> None:
        super().__init__(name, directory, commit_log, open_files, memory, holes, beside)
        self._first_numbers = self._files.first_numbers
        self._checked = CheckedUnits(0)

    def _renewed(self, known: KnownEnd) -> KnownEnd | None:
        renewed = known.renewed(self._generation, self._commit_log, known.files.first_numbers[-1])
        is_same = renewed is not None and renewed.files.files[0] == known.files.files[0]  # units are numbered from it
        return renewed if is_same else None

    def wrong_numbers(self) -> list[int]:
        """The numbers of the units that are not used, ascending, without left-over ones at the end. Reads all units."""
        finish(self.measured())
        finish(self._check_first())
        minimum, end, count = self._bounds or finish(self._measure())
        unit = finish(self._raw(count - 1)) if count else None
        behind, found = minimum if unit is None else unit[4] + unit[5], 0
        while behind < end:
            behind, found = finish(self.holes.find(self, behind)).after(behind), found + 1
        runs = (*self._checked.wrong, (count, min(count + found, self._first_numbers[-1])))
        return [number for start, stop in runs for number in range(start, stop)]

    def newest_physical_offset(self) -> Lookup[int]:
        """Return the physical offset in the last unit, −1 for a queue without units."""
        _, _, count = self._bounds or (yield from self._measure())
        return (yield from self._raw(count - 1))[0] if count else NO_OFFSET

    def entries_lookup(self, queue_offset: int, count: int) -> Lookup[list[ConsumeQueueEntry]]:
        minimum, end, _ = self._bounds or (yield from self._measure())
        found: list[ConsumeQueueEntry] = []
        offset, stop, reader = queue_offset, min(queue_offset + count, end), UnitReader(self)
        while minimum <= offset < stop:
            unit = yield from reader.unit_at(offset, stop)
            if unit is not None:
                first, offset, physical_offset, size, tags_code = unit
                if size != LOST:
                    found.append(ConsumeQueueEntry(first, physical_offset, size, tags_code, None, offset - first))
        return found

    def walk(self, queue_offset: int, maximum: int) -> Lookup[Iterable[Unit] | None]:
        number = yield from self._number_at(queue_offset)
        if number is None:
            return None
        file = bisect_right(self._first_numbers, number) - 1
        stop = min(self.unit_count, self._first_numbers[file + 1])
        position = (number - self._first_numbers[file]) * UNIT.size
        data = yield from self._files.read_file_lookup(file, position, min(maximum, stop - number) * UNIT.size)
        units: Iterable[UnitFields] = UNIT.iter_unpack(data)
        checked = self._checked
        if checked.wrong:
            units = (unit for at, unit in enumerate(units, number) if checked.next(at) == at)
        return (
            (base, base + batch_size, physical_offset, size, tags_code)
            for physical_offset, size, tags_code, _, base, batch_size, _, _ in units
        )

    def message_in_log_lookup(self, queue_offset: int) -> Lookup[int | None]:
        place = yield from self._place_of(queue_offset)
        if place is None and (yield from self.is_doubtful_lookup(queue_offset)):
            minimum, end, _ = self._bounds or (yield from self._measure())
            if minimum <= queue_offset < end:
                return (yield from self.hole_at_lookup(queue_offset)).place(queue_offset)
        return place

    def hole_at_lookup(self, queue_offset: int) -> Lookup[QueueHole]:
        """Return the hole around a unit that leads to no batch, searched in the log. Raises BeingSearched meanwhile.

        Units around that one are checked too.
        """
        number = yield from self._number_at(queue_offset)
        if number is not None:
            yield from self._check({number})
        return (yield from self.holes.find(self, queue_offset))

    def is_doubtful_lookup(self, queue_offset: int) -> Lookup[bool]:
        number = yield from self._number_at(queue_offset)
        if number is None or not (yield from self._has(number, queue_offset)):
            return True
        return (yield from self.standing(number)) is not Standing.SOUND

    def around(self, queue_offset: int) -> DamagedRun:
        return finish(self._around(queue_offset))

    def _around(self, queue_offset: int) -> Lookup[DamagedRun]:
        minimum, end, count = self._bounds or (yield from self._measure())
        first, start = max(minimum, 0), self._commit_log.minimum
        number = yield from self._first(count, self._begins_behind(queue_offset))
        before = self._checked.before(number)
        while before >= 0:
            unit = yield from self._raw(before)
            if unit[4] + unit[5] <= queue_offset and (yield from self._leads(before)):
                first, start = unit[4] + unit[5], unit[0] + unit[1]
                break
            before = self._checked.before(before)
        while (number := self._checked.next(number)) < count:
            unit = yield from self._raw(number)
            if unit[4] > queue_offset and (yield from self._leads(number)):
                return DamagedRun(first, unit[4], start, unit[0], False)
            number += 1
        return DamagedRun(first, end, start, self._commit_log.end, True)

    def _leads(self, number: int) -> Lookup[bool]:
        """Return whether a unit leads to its batch."""
        unit = yield from self._raw(number)
        record = (yield from self._commit_log.record_at_lookup(unit[0])) if unit[0] >= 0 else None
        claimed = None if record is None else self.name.offset_in(record, unit[0])
        return record is not None and claimed is not None and batch_in(record, claimed) == (unit[4], unit[5])

    def _place_of(self, queue_offset: int) -> Lookup[int | None]:
        """Return the physical offset of the batch with a queue offset, if a unit leads to it, else None."""
        number = yield from self._number_at(queue_offset)
        if number is None or not (yield from self._has(number, queue_offset)) or not (yield from self._leads(number)):
            return None
        return (yield from self._raw(number))[0]

    def _has(self, number: int, queue_offset: int) -> Lookup[bool]:
        """Return whether the batch of a unit has a queue offset."""
        unit = yield from self._raw(number)
        return unit[4] <= queue_offset < unit[4] + unit[5]

    def sound_from(self, queue_offset: int) -> int:
        minimum, end, count = self._bounds or finish(self._measure())
        first = max(queue_offset, minimum, 0)
        number = finish(self._number_at(first))
        found = count if number is None else finish(next_sound(self, number, count))
        stop = max(finish(self._raw(found))[4], first) if found < count else max(end, first)
        in_log = (each for each in entries_between(self, first, stop) if each.size != LOST)
        times = self._commit_log.store_timestamp_at
        return next(
            (max(each.queue_offset, first) for each in in_log if times(each.physical_offset, each.size) >= 0), stop
        )

    def extension_at(self, tags_code: int) -> Lookup[ConsumeQueueExtUnit | None]:
        """Return None, since queues of batches have no extension."""
        yield from ()
        return None

    def store_timestamp_at_lookup(self, queue_offset: int) -> Lookup[int]:
        for entry in (yield from self.entries_lookup(queue_offset, 1)):
            return (yield from self._commit_log.store_timestamp_at_lookup(entry.physical_offset, entry.size))
        return NO_TIMESTAMP

    def offset_by_timestamp_lookup(self, timestamp: int, boundary: TimeBoundary) -> Lookup[int]:
        """Return the base offset of a batch for a time (ms), by the times in the units.

        LOWER: the first batch at that time or after it; the last batch if all are older, where a plain queue returns
        its end. UPPER: the last batch at that time or before it; `min_offset` if all are newer. If several batches have
        the same time the broker's own search may choose the wrong one of them; this one does not.
        """
        minimum, end, count = self._bounds or (yield from self._measure())
        is_lower = boundary is TimeBoundary.LOWER

        def is_behind(time: int) -> bool:
            return time >= timestamp if is_lower else time > timestamp

        def leads_behind(number: int) -> Lookup[bool]:
            return is_behind((yield from self._raw(number))[3])

        number = yield from self._first(count, leads_behind)
        before, behind = self._checked.before(number), self._checked.next(number)
        last, first = yield from self._in_gap(before, behind, is_behind)
        if last is None:
            last = (yield from self._raw(before))[4] if before >= 0 else minimum
        if first is None:
            first = (yield from self._raw(behind))[4] if behind < count else last
        return min(max(first if is_lower else last, minimum, 0), end)

    def _in_gap(
        self, before: int, behind: int, is_behind: Callable[[int], bool]
    ) -> Lookup[tuple[int | None, int | None]]:
        """Return the base offsets of two batches without units, between two units, or behind the last one.

        They are the last batch whose time (ms) is not behind the one that is searched for, and the first whose time is;
        None for one that does not exist.
        """
        minimum, end, count = self._bounds or (yield from self._measure())
        base = (yield from self._raw(behind))[4] if behind < count else end
        unit = (yield from self._raw(before)) if before >= 0 else None
        queue_offset = max(minimum, 0)
        if unit is not None and unit[0] >= self._commit_log.minimum:
            queue_offset = max(queue_offset, unit[4] + unit[5])
        last = None
        for entry in (yield from self.entries_lookup(queue_offset, base - queue_offset)):
            if is_behind((yield from self._commit_log.store_timestamp_at_lookup(entry.physical_offset, entry.size))):
                return last, entry.queue_offset
            last = entry.queue_offset
        return last, None

    def places(self) -> tuple[npt.NDArray[np.int64], list[Range]]:
        """The physical offsets in all units, and the ranges between those that batches without a unit may lie in."""
        units = self.units()
        places, bases = units["physical_offset"].astype(np.int64), units["base_offset"].astype(np.int64)
        breaks = np.flatnonzero((bases[1:] != (bases + units["batch_size"])[:-1]) | (np.diff(places) <= 0)).tolist()
        pairs = ((int(places[at]), int(places[at + 1])) for at in breaks)
        return places, [(max(start, 0), stop) for start, stop in pairs if max(start, 0) < stop]

    def units(self) -> Units:
        """All units, expired ones included, as one array of `UNIT_DTYPE`; a copy."""
        blocks = list(self.unit_blocks())
        return np.concatenate(blocks, dtype=UNIT_DTYPE) if blocks else np.empty(0, UNIT_DTYPE)

    def unit_blocks(self) -> Iterator[Units]:
        """The units of each block as a view of the map, expired ones included."""
        return (finish(self.raw(*block)) for block in self.blocks(0, self.unit_count))

    def unit_arrays(self) -> Iterator[Lookup[Units]]:
        """Yield look-ups of the units of all records: those of each file, then those of the log."""
        minimum, end, count = self._bounds or finish(self._measure())
        without_unit = [(max(minimum, 0), end)]
        for first, stop in self.blocks(0, count):
            yield self._sound_units(first, stop, without_unit)
        yield from (units_in_log(self, *run) for run in without_unit)

    def _sound_units(self, first: int, stop: int, without_unit: list[Range]) -> Lookup[Units]:
        """Return the units of a block that lead to batches of the log; leave the queue offsets between them over."""
        yield from self._check_first()
        wrong, units = self._checked.wrong, (yield from self.raw(first, stop))
        left_out = [range(max(low, first) - first, min(high, stop) - first) for low, high in wrong]
        units = np.delete(units, list(itertools.chain(*left_out))) if wrong else units
        units = units[units["physical_offset"] >= self._commit_log.minimum]
        bases, sizes = units["base_offset"].astype(np.int64), units["batch_size"].astype(np.int64)
        begin, end = without_unit.pop()
        behind = np.maximum(np.append(begin, bases + sizes), begin)
        gaps = np.flatnonzero(bases > behind[:-1]).tolist()
        without_unit += [*((int(behind[at]), int(bases[at])) for at in gaps), (int(behind[-1]), end)]
        return units

    def _raw(self, number: int) -> Lookup[UnitFields]:
        """Return one unit by its number, which must be that of a unit in the files."""
        file = bisect_right(self._first_numbers, number) - 1
        position = (number - self._first_numbers[file]) * UNIT.size
        fields: UnitFields = UNIT.unpack((yield from self._files.read_file_lookup(file, position, UNIT.size)))
        return fields

    @property
    def unit_count(self) -> int:
        return (self._bounds or finish(self._measure()))[2]

    def _number_at(self, queue_offset: int) -> Lookup[int | None]:
        """Return the number of the unit with a queue offset, or of the next unit; None outside of the queue's range."""
        minimum, end, count = self._bounds or (yield from self._measure())
        if not minimum <= queue_offset < end:
            return None
        first = self._checked.next(self._checked.first)
        if self._checked.first and (first >= count or queue_offset < (yield from self._raw(first))[4]):
            yield from self._check_first()
        number = yield from self._first(count, self._begins_behind(queue_offset))
        before = self._checked.before(number)
        unit = (yield from self._raw(before)) if before >= 0 else None
        # A damaged unit of an expired batch may claim messages that the log has.
        if unit is not None and queue_offset < unit[4] + unit[5] and unit[0] >= self._commit_log.minimum:
            return before
        number = self._checked.next(number)
        return number if number < count else None

    def _begins_behind(self, queue_offset: int) -> Callable[[int], Lookup[bool]]:
        """Return a function that says whether the batch of a unit begins after a queue offset."""

        def begins_behind(number: int) -> Lookup[bool]:
            return (yield from self._raw(number))[4] > queue_offset

        return begins_behind

    def _check_first(self) -> Lookup[None]:
        """Check the units of the first files too."""
        if self._checked.first:
            yield from self._check((yield from doubtful_units(self, 0, self._checked.first)))
            self._checked = replace(self._checked, first=0)

    def _check(self, doubtful: set[int]) -> Lookup[None]:
        """Find out which of some units, and of those around them, are wrong."""
        count = (self._bounds or (yield from self._measure()))[2]
        self._checked = yield from without_wrong(self, self._checked, doubtful, count)

    def _first(self, count: int, is_behind: Callable[[int], Lookup[bool]]) -> Lookup[int]:
        """Return a number up to which `is_behind` is false for the units that count, and true from there on."""
        low, high = 0, count
        while low < high:
            middle = (low + high) // 2
            number = self._checked.next(middle)
            if number >= high or (yield from is_behind(number)):
                high = middle
            else:
                low = number + 1
        return low

    def _measure(self) -> Lookup[tuple[int, int, int]]:
        files = self._files
        bounds, written = yield from self._find_bounds()
        # The last file may have been filled, and another one begun, since the files were listed.
        while written >= self._first_numbers[-1] and (more := files.with_successor()) is not files:
            if more.files[0] != files.files[0]:  # units are numbered from the first file on
                break
            self._files = files = more
            self._checked = CheckedUnits(0)
            self._first_numbers = files.first_numbers
            bounds, written = yield from self._find_bounds()
        self._bounds = bounds
        return bounds

    def _find_bounds(self) -> Lookup[tuple[tuple[int, int, int], int]]:
        """Return min, max and the number of valid units in the listed files; and the number of written units."""
        known, files, log = self._known, self._files, self._commit_log
        if not files.files:
            is_lost = files.is_emptied or self._beside is not None
            return ((yield from self._bounds_of(0, 0, ())) if is_lost else (NO_OFFSET, 0, 0)), 0
        if known is not None and not isinstance(known.note, CheckedUnits):
            known = None
        if known is not None and known.last != (yield from self._last_of(known.end)):
            known = None
        if known is not None and isinstance(known.note, CheckedUnits):
            self._checked = known.note
            written, is_whole = yield from self._written_count(known.written, max(log.end - known.looked, 0))
            count = yield from end_after(self, known, 0, written)
            is_whole &= written == count or is_judged_anew(self, known, written)
            changed = written if written != known.written else count
            doubtful = yield from doubtful_units(self, known.end, changed, is_followed=True)
            count = yield from self._without_copies(count, doubtful)
            is_followed = self._checked.is_followed and count < written
            if written != known.written:
                is_followed = yield from self._are_damaged(count, written)
        else:
            known, (written, is_whole) = None, (yield from self._written_count(0))
            count = yield from find_end(self, 0, written)
            first = min(self._first_numbers[max(0, len(files.files) - CHECKED_FILES)], count)
            self._checked = CheckedUnits(first)
            doubtful = yield from doubtful_units(self, first, written)
            count = yield from self._without_copies(count, doubtful)
            is_followed = count < written
        self._checked = replace(self._checked, is_followed=is_followed)
        bounds = yield from self._bounds_of(count, written, doubtful)
        if self._keep is not None and (known is None or known.log_end <= log.end):
            last, looked = (yield from self._last_of(count)), log.end if known is None or is_whole else known.looked
            fields = self._generation, files, log.minimum, log.end, bounds[0], count, written, last, looked
            self._keep(KnownEnd(*fields, self._checked))
        return bounds, written

    def _without_copies(self, count: int, doubtful: set[int]) -> Lookup[int]:
        """Return the number of units without the last ones that lead to no more of the log than one before them.

        A broker writes no such unit: they are copies of earlier ones. First ones that lead to more of the log than one
        behind them are copies of later ones, and are wrong.
        """
        last = (yield from self.physical_offset(count - 1)) if count else EMPTY
        first = (yield from self.physical_offset(0)) if count else EMPTY
        near = {number for each in doubtful for number in (each - 1, each) if 0 <= number < count}
        before, behind = list[int](), list[int]()
        for number in sorted(near):
            place = yield from self.physical_offset(number)
            is_before = place > last or (place == last and number == count - 2)
            is_behind = place < first or (place == first and number == 1)
            if (is_before or is_behind) and (yield from self.standing(number)) is Standing.SOUND:
                (before if is_before else behind).append(number)
        if behind:
            self._checked = self._checked.without(range(behind[0]))
        return before[-1] + 1 if before else count

    def _are_damaged(self, count: int, written: int) -> Lookup[bool]:
        """Return whether units after the last sound one are others than a running broker wrote just now."""
        for first, stop in self.blocks(count, written):
            places = yield from self.physical_offsets(first, stop)
            if ((places != EMPTY) & (places < self._commit_log.end)).any():
                return True
        return False

    def _last_of(self, count: int) -> Lookup[UnitFields | None]:
        """Return the last of `count` units as it is in its file; None where there is none."""
        return (yield from self._raw(count - 1)) if 0 < count <= self._first_numbers[-1] else None

    def _bounds_of(self, count: int, written: int, doubtful: Iterable[int]) -> Lookup[tuple[int, int, int]]:
        if not count:
            first, end = yield from self.holes.tail(self, UNKNOWN, self._commit_log.minimum, self._beside)
            return first if end else NO_OFFSET, end, 0
        last = yield from self._raw(count - 1)
        end = max(last[4] + last[5], 0)
        first, minimum = yield from first_live(self, 0, count, is_cut=self._files.files[0].start > 0)
        if minimum is None:
            minimum = (yield from self._raw(first))[4] if first < count else end
        is_odd = self._checked.is_followed or count == self._first_numbers[-1] or written <= self._first_numbers[-2]
        if is_odd and first == count:  # no unit leads to a batch that the log has
            low, high = yield from self.holes.tail(self, UNKNOWN, self._commit_log.minimum)
            minimum, end = (low, high) if high else (minimum, end)
        elif is_odd:
            last_place = yield from self.physical_offset(count - 1)
            try:
                end = (yield from self.holes.tail(self, end, last_place))[1]
            except QueueBeingSearched:
                if self.sound_part is None:
                    minimum = min(max(minimum, 0), end)
                    checked = replace(self._checked, live=first, minimum=minimum)
                    self._checked = yield from without_wrong(self, checked, doubtful, count)
                    self._keep_part(minimum, end, count)
                raise
        minimum = min(max(minimum, 0), end)
        is_followed = self._checked.is_followed and end > last[4] + last[5]
        checked = replace(self._checked, live=first, minimum=minimum, is_followed=is_followed)
        self._checked = yield from without_wrong(self, checked, doubtful, count)
        return minimum, end, count

    def _written_count(self, start: int, growth: int | None = None) -> Lookup[tuple[int, bool]]:
        """Return the number of units up to the last one, from `start` on, that is not all zero.

        Also return whether all files were read to their ends.
        """
        file = min(bisect_right(self._first_numbers, start) - 1, len(self._files.files) - 1)
        position = self._files.files[file].start + (start - self._first_numbers[file]) * UNIT.size
        end, is_whole = yield from self._files.written_end(position, growth)
        if end == position:
            return start, is_whole
        file = self._files.number_at(end - 1) or 0
        return self._first_numbers[file] + (end - self._files.files[file].start) // UNIT.size, is_whole

    def raw(self, start: int, stop: int) -> Lookup[Units]:
        """Return the units in [start, stop), as they are in the files."""
        blocks: list[Units] = []
        for file, first in enumerate(self._first_numbers[:-1]):
            begin, end = max(first, start), min(self._first_numbers[file + 1], stop)
            if begin < end:
                position, length = (begin - first) * UNIT.size, (end - begin) * UNIT.size
                data = yield from self._files.read_file_lookup(file, position, length)
                blocks.append(np.frombuffer(data, UNIT_DTYPE))
        return blocks[0] if len(blocks) == 1 else np.concatenate(blocks or [np.empty(0, UNIT_DTYPE)], dtype=UNIT_DTYPE)

    def physical_offset(self, number: int) -> Lookup[int]:
        return int(places_of((yield from self.raw(number, number + 1)))[0])

    def blocks(self, start: int, stop: int) -> UnitBlocks:
        ends = enumerate(itertools.pairwise(self._first_numbers))
        found = [(number, first, max(first, start), min(behind, stop)) for number, (first, behind) in ends]
        return UnitBlocks(self._files, UNIT.size, [part for part in found if part[2] < part[3]])

    def physical_offsets(self, first: int, stop: int) -> Lookup[Places]:
        return places_of((yield from self.raw(first, stop)))

    def standing(self, number: int) -> Lookup[Standing]:
        physical_offset, size, _, _, base_offset, batch_size, _, _ = yield from self._raw(number)
        if base_offset < 0 or batch_size <= 0 or self._checked.next(number) != number:
            return Standing.DOUBTFUL
        record = yield from record_of_unit(self._commit_log, physical_offset, size)
        if isinstance(record, Standing):
            return record
        claimed = self.name.offset_in(record, physical_offset)
        is_own = claimed is not None and batch_in(record, claimed) == (base_offset, batch_size)
        return Standing.SOUND if is_own else Standing.DOUBTFUL

    def claim(self, number: int) -> Lookup[int | None]:
        physical_offset, size, *_ = yield from self._raw(number)
        record = yield from record_of_unit(self._commit_log, physical_offset, size)
        return self.name.offset_in(record, physical_offset) if isinstance(record, memoryview) else None
