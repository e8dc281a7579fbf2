"""ConsumeQueue: the plain queue of a topic, a 20-byte pointer for each message, placed by its queue offset.

UNIT
offset  size  type   field            meaning
0       8     i64    physical_offset  where the record starts in the commit log
8       4     i32    size             of the whole record
12      8     i64    tags_code        the tag's hash, a delivery time, or the address of an extension unit

The unit of queue offset q is at byte 20·q of the queue's files. A queue whose first message had an offset above 0
starts with filler units (physical offset 0, size 0x7FFFFFFF, tags code 0). The files are zero where nothing was
written, and no field says where that begins. Where a queue begins and ends is found from the messages that its units
lead to (`storage.queue._queue_begin`, `storage.queue._queue_end`). Source: store-format §5.1–§5.3, §5.5, §6.2, §6.6.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from protocol.errors import QueueBeingSearched, StoreError
from storage.arrays import np, npt
from storage.files.mapped_file import LARGEST_OFFSET, MappedFile
from storage.files.open_files import OpenFiles
from storage.files.waiting import Lookup, finish, long_scan
from storage.kernels.records import MINIMUM_SIZE
from storage.log.commit_log import CommitLog
from storage.queue._damaged_run import DamagedRun, around, place_of
from storage.queue._file_queue import FileQueue
from storage.queue._queue_begin import first_live
from storage.queue._queue_end import find_end, standing_behind
from storage.queue._queue_growth import KnownEnd, QueueMemory, end_after, is_judged_anew
from storage.queue._time_search import FileOfUnits, offset_by_timestamp
from storage.queue.consume_queue_ext import ConsumeQueueExt, ConsumeQueueExtUnit, is_extension_address
from storage.queue.queue import NO_TIMESTAMP, ConsumeQueueEntry, Queue, TimeBoundary, UnitRange
from storage.queue.queue_files import FIRST_STEP, LARGEST_STEP, QueueFiles, UnitBlocks
from storage.queue.queue_hole import UNKNOWN
from storage.queue.queue_holes import LostQueues, QueueHoles
from storage.queue.queue_record import QueueName
from storage.queue.suspect_units import SuspectUnits, suspect_runs
from storage.queue.unit_reader import LOST, entries_before, entries_between, units_in_log
from storage.queue.unit_standing import EMPTY, Places, Standing, is_implausible, places_of, record_of_unit
from storage.queue.unit_standing import FILLER as FILLER_PLACE
from storage.queue.unit_struct import FILLER, FILLER_SIZE, UNIT, UNIT_DTYPE, Unit

__all__ = ["UNIT", "UNIT_DTYPE", "ConsumeQueue", "ConsumeQueueEntry", "Queue", "TimeBoundary"]

Units: TypeAlias = "npt.NDArray[np.void]"


class ConsumeQueue(FileQueue):
    """One plain queue; what it is numbered by are queue offsets."""

    __slots__ = ("_extension", "_extension_directory", "_open_files")
    _bounds: tuple[int, int] | None
    unit_size = UNIT.size
    has_batches = False

    def __init__(
        self,
        name: QueueName,
        directory: Path | QueueFiles,
        extension_directory: Path | None,
        commit_log: CommitLog,
        open_files: OpenFiles,
        memory: QueueMemory | None = None,
        holes: QueueHoles | None = None,
        bounds: tuple[int, int] | None = None,
        beside: LostQueues | None = None,
    ) -> None:
        """Make the queue; `bounds` are minimum and end if they are known, and there may be extension units."""
        super().__init__(name, directory, commit_log, open_files, memory, holes, beside)
        self._open_files = open_files
        self._extension_directory = extension_directory
        self._extension: ConsumeQueueExt | None = None
        self._bounds = bounds

    def _renewed(self, known: KnownEnd) -> KnownEnd | None:
        return known.renewed(self._generation, self._commit_log, _capacity(known.files))

    def newest_physical_offset(self) -> Lookup[int]:
        """Return the physical offset in the last unit, −1 for a queue without units."""
        _, end = self._bounds or (yield from self._measure())
        unit = yield from self.unit_lookup(end - 1)
        if unit is None and end:
            found = yield from self.message_in_log_lookup(end - 1)
            return -1 if found is None else found
        return -1 if unit is None else unit[0]

    def entries_lookup(self, queue_offset: int, count: int) -> Lookup[list[ConsumeQueueEntry]]:
        found: list[ConsumeQueueEntry] = []
        while len(found) < count:
            units = yield from self.walk(queue_offset + len(found), count - len(found))
            if units is None:
                break
            for offset, _, physical_offset, size, tags_code in units:
                extension = None
                if is_extension_address(tags_code):
                    extension = yield from self.extension_at(tags_code)
                code = tags_code if extension is None else extension.tags_code
                found.append(ConsumeQueueEntry(offset, physical_offset, size, code, extension))
        return found

    def walk(self, queue_offset: int, maximum: int) -> Lookup[Iterable[Unit] | None]:
        if self._bounds is None:
            yield from self._measure()
        place = self.place(queue_offset, maximum)
        if place is None:
            return None
        file, position, count = place
        data = yield from file.read_lookup(position, count * UNIT.size)
        return (
            (offset, offset + 1, physical_offset, size, tags_code)
            for offset, (physical_offset, size, tags_code) in enumerate(UNIT.iter_unpack(data), queue_offset)
        )

    def place(self, queue_offset: int, maximum: int) -> tuple[MappedFile, int, int] | None:
        """The place of up to `maximum` units of one file, from `queue_offset` on: file, position and number of units.

        None where that one has no unit. Nothing is read if it is known where the queue begins and ends.
        """
        minimum, end = self._bounds or finish(self._measure())
        number = self._files.number_at(queue_offset * UNIT.size)
        if number is None or not minimum <= queue_offset < end:
            return None
        file = self._files.files[number]
        count = min(maximum, min(file.end // UNIT.size, end) - queue_offset)
        return self._files.map_of(number), file.position + queue_offset * UNIT.size - file.start, count

    def units_at(self, queue_offset: int, count: int) -> Lookup[UnitRange | None]:
        hole = self.holes.known(self, queue_offset)
        if hole is not None and hole.stop > queue_offset + count:
            return UnitRange(hole.file, 0, hole.first, hole.stop)
        place = self.place(queue_offset, count + 1)
        if place is None:
            return None
        file, position, found = place
        if position + found * UNIT.size > file.size:  # the file was cut since it was listed
            return None
        number = self._files.number_at(queue_offset * UNIT.size)
        before = 0 if number is None else queue_offset - self._files.files[number].start // UNIT.size
        if not before and (yield from self._starts_out_of_order(queue_offset)):
            return None
        stop = queue_offset + found
        if found <= count and self._is_followed(stop) and (yield from self._ends_out_of_order(stop)):
            return None
        return UnitRange(file, position - before * UNIT.size, queue_offset - before, stop)

    def is_tag_suspect(self, queue_offset: int) -> Lookup[bool]:
        if self._is_followed(queue_offset + 1):
            is_out_of_order = yield from self._ends_out_of_order(queue_offset + 1)
        else:
            unit = yield from self.readable_unit(queue_offset)
            is_out_of_order = unit is not None and _stop_of(unit) > self._commit_log.end
        return is_out_of_order or (yield from self._starts_out_of_order(queue_offset))

    def _is_followed(self, queue_offset: int) -> bool:
        """Whether the unit before a queue offset is not the queue's last one, as far as it is known which that is."""
        return queue_offset < self.max_offset or self.is_part

    def _starts_out_of_order(self, queue_offset: int) -> Lookup[bool]:
        """Return whether a unit does not point behind the message of the one before it, or that one leads nowhere.

        False if one of the two cannot be read.
        """
        unit = yield from self.readable_unit(queue_offset)
        before = yield from self.readable_unit(queue_offset - 1)
        if unit is None or before is None:
            return False
        return _stop_of(before) > unit[0] or before[0] < 0 or before[1] <= 0

    def _ends_out_of_order(self, queue_offset: int) -> Lookup[bool]:
        """Return whether the message of the unit before a queue offset does not end before that of the next unit.

        True too if that one leads nowhere, since its damage may have begun within the tag of the unit before it. False
        if one of the two cannot be read.
        """
        unit = yield from self.readable_unit(queue_offset - 1)
        behind = yield from self.readable_unit(queue_offset)
        if unit is None or behind is None:
            return False
        return behind[0] < _stop_of(unit) or is_implausible(self._commit_log, behind[0], behind[1])

    def readable_unit(self, queue_offset: int) -> Lookup[tuple[int, int, int] | None]:
        """Return a unit that is needed to check another one; None also where its file has been removed meanwhile."""
        with suppress(StoreError):
            return (yield from self.unit_lookup(queue_offset))
        return None

    def message_in_log_lookup(self, queue_offset: int) -> Lookup[int | None]:
        minimum, end = self._bounds or (yield from self._measure())
        place = yield from place_of(self, queue_offset)
        if place is not None:
            return place[0]
        if not minimum <= queue_offset < end or not (yield from self.is_doubtful_lookup(queue_offset)):
            return None
        return (yield from self.hole_at_lookup(queue_offset)).place(queue_offset)

    def around(self, queue_offset: int) -> DamagedRun:
        return around(self, queue_offset, *(self._bounds or finish(self._measure())))

    def extension_at(self, tags_code: int) -> Lookup[ConsumeQueueExtUnit | None]:
        if not is_extension_address(tags_code) or self._extension_directory is None:
            return None
        if self._extension is None:
            self._extension = ConsumeQueueExt(self._extension_directory, self._open_files)
        return (yield from self._extension.unit_at(tags_code))

    def store_timestamp_at_lookup(self, queue_offset: int) -> Lookup[int]:
        minimum, end = self._bounds or (yield from self._measure())
        if not minimum <= queue_offset < end:
            return NO_TIMESTAMP
        unit = yield from self.unit_lookup(queue_offset)
        place = None if unit is None else unit[0]
        if unit is not None and (yield from self.standing(queue_offset)) is Standing.SOUND:
            if (yield from self._commit_log.unchecked_record_at_lookup(unit[0])) is None:
                return NO_TIMESTAMP
        else:
            place = yield from self.message_in_log_lookup(queue_offset)
        return (
            NO_TIMESTAMP
            if place is None
            else (yield from self._commit_log.store_timestamp_at_lookup(place, MINIMUM_SIZE))
        )

    def sound_from(self, queue_offset: int) -> int:
        minimum, end = self._bounds or finish(self._measure())
        first = max(queue_offset, minimum)
        found = first if self.store_timestamp_at(first) >= 0 else self.timed(first, end, is_backward=False)
        return end if found is None else found

    def offset_by_timestamp_lookup(self, timestamp: int, boundary: TimeBoundary) -> Lookup[int]:
        minimum, end = self._bounds or (yield from self._measure())
        files: list[FileOfUnits] = []
        known = minimum
        for first, last in (*self._ranges(end), (end, end - 1)):
            if known < first:  # a file is lost
                files.append(FileOfUnits(known, first - 1))
            if first <= last:
                files.append(FileOfUnits(first, last))
            known = last + 1
        found = yield from offset_by_timestamp(files, minimum, timestamp, boundary, _Times(self, minimum, end).time_of)
        return min(max(found, minimum), end)

    def units(self) -> Units:
        """All units from `min_offset` to `max_offset` as one array of `UNIT_DTYPE`; a copy."""
        blocks = [units for _, units in self.unit_blocks()]
        return np.concatenate(blocks, dtype=UNIT_DTYPE) if blocks else np.empty(0, UNIT_DTYPE)

    def unit_blocks(self) -> Iterator[tuple[int, Units]]:
        """For each block between min and max the queue offset of its first unit, and its units as a view of the map."""
        return self._blocks_of(*(self._bounds or finish(self._measure())))

    def _blocks_of(self, first: int, stop: int) -> Iterator[tuple[int, Units]]:
        return ((start, finish(self._array(start, behind - start))) for start, behind in self.blocks(first, stop))

    @property
    def unit_count(self) -> int:
        return self.max_offset - self.min_offset

    def unit_arrays(self) -> Iterator[Lookup[Units]]:
        """Yield look-ups of the units of all messages: those of each file, suspect ones again, those of the log."""
        minimum, end = self._bounds or finish(self._measure())
        suspect = SuspectUnits(self._commit_log, minimum)
        for first, stop in self.blocks(minimum, end):
            yield self._valid_units(first, stop - first, suspect)
        yield suspect.plausible()
        yield from (units_in_log(self, *run) for run in suspect.runs(end))

    def _valid_units(self, queue_offset: int, count: int, suspect: SuspectUnits) -> Lookup[Units]:
        units = yield from self._array(queue_offset, count)
        valid = units["size"] > 0
        suspect.put(queue_offset, units)
        return units if valid.all() else units[valid]

    def unit_lookup(self, queue_offset: int) -> Lookup[tuple[int, int, int] | None]:
        """Return one unit as it is in a file, whether it is valid or not; None where no file has it."""
        data = yield from self._files.read_lookup(queue_offset * UNIT.size, UNIT.size)
        return None if data is None else UNIT.unpack(data)

    def plausible(self, first: int, stop: int, *, is_backward: bool) -> Iterator[int]:
        """Yield the queue offsets in [first, stop) of units that point into the log; waits for the disk."""
        ranges = self.blocks(first, stop)
        for low, high in reversed(ranges) if is_backward else ranges:
            step = FIRST_STEP
            while low < high:
                start = max(high - step, low) if is_backward else low
                units = finish(self._array(start, min(step, high - low)))
                offsets = units["physical_offset"]
                held = (units["size"] > 0) & (offsets >= self._commit_log.minimum) & (offsets < self._commit_log.end)
                for lost, behind in self._commit_log.holes:
                    held &= (offsets < lost) | (offsets >= behind)
                found = (np.flatnonzero(held) + start).tolist()
                yield from reversed(found) if is_backward else found
                low, high = (low, start) if is_backward else (start + len(units), high)
                step = min(2 * step, LARGEST_STEP)

    def timed(self, first: int, stop: int, *, is_backward: bool) -> int | None:
        """Return the first or last queue offset in [first, stop) whose message has a time; None without one. Waits.

        Messages count whose units are damaged, or in a file that is lost, and that the log has. Raises BeingSearched.
        """
        found = self._first_timed(self.plausible(first, stop, is_backward=is_backward))
        if found is not None:
            first, stop = (found + 1, stop) if is_backward else (first, found)
        nearer = self._first_timed(self._without_units(first, stop, is_backward=is_backward))
        return found if nearer is None else nearer

    def _first_timed(self, queue_offsets: Iterable[int]) -> int | None:
        return next((each for each in queue_offsets if self.store_timestamp_at(each) >= 0), None)

    def _without_units(self, first: int, stop: int, *, is_backward: bool) -> Iterator[int]:
        """Yield the queue offsets in [first, stop) of suspect units whose messages the log has; waits.

        Raises BeingSearched while the log is searched for them.
        """
        runs = suspect_runs(self._commit_log, first, stop, self._blocks_of(first, stop))
        entries = entries_before if is_backward else entries_between
        for start, behind in reversed(runs) if is_backward else runs:
            yield from (entry.queue_offset for entry in entries(self, start, behind) if entry.size != LOST)

    def is_doubtful_lookup(self, queue_offset: int) -> Lookup[bool]:
        unit = yield from self.unit_lookup(queue_offset)
        return unit is None or (unit != FILLER and (yield from self.standing(queue_offset)) is not Standing.SOUND)

    def _array(self, queue_offset: int, count: int) -> Lookup[Units]:
        data = yield from self._files.read_lookup(queue_offset * UNIT.size, count * UNIT.size)
        return np.frombuffer(data or b"", UNIT_DTYPE)

    def _ranges(self, end: int) -> list[tuple[int, int]]:
        """First and last queue offset of each file that has units before `end`."""
        return [
            (file.start // UNIT.size, min(file.end // UNIT.size, end) - 1)
            for file in self._files.files
            if file.start < end * UNIT.size
        ]

    def _measure(self) -> Lookup[tuple[int, int]]:
        files = self._files
        bounds, written = yield from self._find_bounds()
        # The last file may have been filled, and another one begun, since the files were listed.
        while max(written, bounds[1]) >= _capacity(files) and (more := files.with_successor()) is not files:
            self._files = files = more
            bounds, written = yield from self._find_bounds()
        self._bounds = bounds
        return bounds

    def _find_bounds(self) -> Lookup[tuple[tuple[int, int], int]]:
        """Return min and max by the listed files, and the end of the units that are written in them."""
        known, files, log = self._known, self._files, self._commit_log
        if not files.files:
            is_lost = files.is_emptied or self._beside is not None
            return (yield from self.holes.tail(self, UNKNOWN, log.minimum, self._beside)) if is_lost else (0, 0), 0
        if known is not None and known.last != (yield from self.unit_lookup(known.end - 1)):
            known = None
        first, behind = files.files[0].start // UNIT.size, None
        if known is not None and first <= known.end:
            written, is_whole = yield from self._written_end(known.written, max(log.end - known.looked, 0))
            end = yield from end_after(self, known, first, written)
            is_anew = is_judged_anew(self, known, written)
            is_whole &= written == end or is_anew
            largest = log.end - 1 if written > known.written else FILLER_PLACE if is_anew else None
            if known.end > _capacity(files) and len(files.files) == len(known.files.files):
                behind = known.note
        else:
            known, (written, is_whole) = None, (yield from self._written_end(first))
            if written <= first:
                return (yield from self.holes.tail(self, UNKNOWN, log.minimum)), written
            end, largest = (yield from find_end(self, first, written)), LARGEST_OFFSET
            if end == _capacity(files) or written * UNIT.size <= files.files[-1].start:
                behind = end
        broken = end
        if largest is not None and end < written:
            broken, standing = yield from standing_behind(self, end, written, largest)
            behind = end if standing is Standing.DOUBTFUL and behind is None else behind
        if behind is not None:
            assert isinstance(behind, int)
            try:
                end = max(end, broken, (yield from self._end_in_log(behind)))
            except QueueBeingSearched:
                if first < end:
                    self._keep_part((yield from self._first_live(first, end)), end)
                raise
        if known is not None and known.log_minimum == log.minimum and known.minimum < min(known.end, end):
            minimum = known.minimum
        else:
            minimum = yield from self._first_live(first, end)
        if self._keep is not None and (known is None or known.log_end <= log.end):
            looked = log.end if known is None or is_whole else known.looked
            last = yield from self.unit_lookup(end - 1)
            fields = self._generation, files, log.minimum, log.end, minimum, end, written, last, looked
            self._keep(KnownEnd(*fields, behind))
        return (minimum, end), written

    def _end_in_log(self, behind: int) -> Lookup[int]:
        """Return the queue offset after the queue's last message in the log, `behind` if its last unit leads there.

        Where units are at other queue offsets than their records, that unit counts. Raises QueueBeingSearched.
        """
        if (yield from self.claim(behind - 1)) not in (None, behind - 1):
            return behind
        last_place = yield from self.physical_offset(behind - 1)
        return (yield from self.holes.tail(self, behind, last_place))[1]

    def _written_end(self, start: int, growth: int | None = None) -> Lookup[tuple[int, bool]]:
        """Return the queue offset after the last unit, from `start` on, that is not all zero.

        Also return whether all files were read to their ends.
        """
        position, is_whole = yield from self._files.written_end(start * UNIT.size, growth)
        return position // UNIT.size, is_whole

    def _first_live(self, first: int, end: int) -> Lookup[int]:
        """Return the first queue offset from `first` on whose message the log has."""
        if not first < end:
            return first
        if not first and not self._commit_log.minimum and (yield from self.unit_lookup(first)) != FILLER:
            return first  # nothing is expired, even if the first messages are damaged
        number, recorded = yield from first_live(self, first, end, is_cut=first > 0)
        if recorded is None:
            return number
        claim = (yield from self.claim(number)) if number < end else None
        # After a lost unit, later ones are at other queue offsets than their records say (store-format §5.2).
        shifted = recorded if claim is None else recorded + number - claim
        return max(first if shifted != recorded else 0, min(number, recorded, shifted))

    def physical_offset(self, queue_offset: int) -> Lookup[int]:
        unit = yield from self._files.read_lookup(queue_offset * UNIT.size, UNIT.size)
        return EMPTY if unit is None else int(places_of(np.frombuffer(unit, UNIT_DTYPE))[0])

    def blocks(self, start: int, stop: int) -> UnitBlocks:
        parts = [
            (number, first, max(first, start), last + 1)
            for number, (first, last) in enumerate(self._ranges(stop))
            if last >= start
        ]
        return UnitBlocks(self._files, UNIT.size, parts)

    def physical_offsets(self, first: int, stop: int) -> Lookup[Places]:
        return places_of((yield from self._array(first, stop - first)))

    def points_at(self, queue_offset: int, physical_offset: int) -> bool:
        """Whether the unit of a queue offset, within the queue's range or not, points at a physical offset. Waits."""
        unit = finish(self.unit_lookup(queue_offset))
        return unit is not None and unit[0] == physical_offset and unit[1] > 0

    def standing(self, queue_offset: int) -> Lookup[Standing]:
        unit = yield from self.unit_lookup(queue_offset)
        if unit is None:
            return Standing.DOUBTFUL
        if unit == FILLER:
            return Standing.EXPIRED
        record = yield from record_of_unit(self._commit_log, unit[0], unit[1])
        if record is Standing.SOUND and (yield from self._is_out_of_order(queue_offset, unit[0])):
            return Standing.DOUBTFUL
        if isinstance(record, Standing):
            return record
        claimed = self.name.offset_in(record, unit[0])
        if claimed == queue_offset:
            return Standing.SOUND
        if claimed is None:
            return Standing.DOUBTFUL
        return (yield from self._standing_elsewhere(queue_offset, unit[0], claimed))

    def claim(self, queue_offset: int) -> Lookup[int | None]:
        word = yield from self._word_of(queue_offset)
        return word if isinstance(word, int) else None

    def _standing_elsewhere(self, queue_offset: int, physical_offset: int, claimed: int) -> Lookup[Standing]:
        """Return the standing of a unit whose record has another queue offset.

        After a lost unit, later units are at lower queue offsets than those in their records; in a topic that was
        deleted and made anew they are at higher ones (store-format §5.2). Such units are doubtful, though, if the
        record's own unit is at the queue offset in the record, or if that one is damaged and the units after it lead to
        later messages.
        """
        own = yield from self.unit_lookup(claimed)
        if own is not None and own[0] == physical_offset:
            return Standing.DOUBTFUL
        if (yield from self._is_out_of_order(queue_offset, physical_offset)):
            return Standing.DOUBTFUL
        if claimed > queue_offset:
            return (yield from self._standing_before(queue_offset, physical_offset))
        if own is not None and (yield from self._is_own(claimed)):
            return Standing.SOUND
        step = 1
        while claimed + step < queue_offset:
            place, number = (yield from self.physical_offset(claimed + step)), claimed + step
            if place > physical_offset and (yield from self._is_own(number)):
                return Standing.DOUBTFUL
            step *= 2
        words = (yield from self._word_of(claimed)), (yield from self._word_of(queue_offset - 1))
        return Standing.DOUBTFUL if Standing.DOUBTFUL in words else Standing.SOUND

    def _standing_before(self, queue_offset: int, physical_offset: int) -> Lookup[Standing]:
        """Return the standing of a unit whose record has a higher queue offset.

        After a lost unit all later ones are at lower queue offsets: a later one at its own speaks against that.
        """
        step = 1
        while (unit := (yield from self.unit_lookup(queue_offset + step))) is not None:
            claim = (yield from self.claim(queue_offset + step)) if unit[0] > physical_offset else None
            if claim is not None:
                return Standing.DOUBTFUL if claim == queue_offset + step else Standing.SOUND
            step *= 2
        return Standing.SOUND

    def _is_out_of_order(self, queue_offset: int, physical_offset: int) -> Lookup[bool]:
        """Return whether a unit does not point between the messages of its two neighbours, although these ascend.

        Of neighbours that do not, one that leads to its own message counts.
        """
        with suppress(StoreError):
            before = yield from self.physical_offset(queue_offset - 1)
            behind = yield from self.physical_offset(queue_offset + 1)
            if FILLER_PLACE < before < behind < self._commit_log.end:
                return not before < physical_offset < behind
            if FILLER_PLACE < behind <= physical_offset and (yield from self._is_own(queue_offset + 1)):
                return True
            return physical_offset <= before and (yield from self._is_own(queue_offset - 1))
        return False

    def _is_own(self, queue_offset: int) -> Lookup[bool]:
        """Return whether the record of a unit has the unit's queue offset."""
        return (yield from self.claim(queue_offset)) == queue_offset

    def _word_of(self, queue_offset: int) -> Lookup[int | Standing]:
        """Return the queue offset in the record of a unit; without such a record, the unit's standing."""
        unit = yield from self.unit_lookup(queue_offset)
        if unit is None:
            return Standing.DOUBTFUL
        record = yield from record_of_unit(self._commit_log, unit[0], unit[1])
        if isinstance(record, Standing):
            return record
        claimed = self.name.offset_in(record, unit[0])
        return Standing.DOUBTFUL if claimed is None else claimed


class _Times:
    """Store times of messages, for one search; one that cannot be read gets the time of the nearest readable one."""

    def __init__(self, queue: ConsumeQueue, minimum: int, end: int) -> None:
        self._queue, self._minimum, self._end = queue, minimum, end
        self._run = (0, 0, NO_TIMESTAMP)

    def time_of(self, queue_offset: int) -> Lookup[int]:
        """Return the store time of a message in ms; if it is lost, that of the next one, or else of the one before."""
        timestamp = yield from self._queue.store_timestamp_at_lookup(queue_offset)
        if timestamp >= 0 or not self._minimum <= queue_offset < self._end:
            return timestamp
        first, stop, known = self._run
        if not first <= queue_offset < stop:
            yield long_scan(f"when messages of {self._queue.topic} {self._queue.queue_id} were stored that are lost")
            stop, known = self._nearest(queue_offset)
            self._run = (queue_offset, stop, known)
        return known

    def _nearest(self, queue_offset: int) -> tuple[int, int]:
        """Return the next queue offset whose message has a time, else the end; and its time, else the last one before.

        Waits for the disk.
        """
        behind = self._queue.timed(queue_offset + 1, self._end, is_backward=False)
        nearest = self._queue.timed(self._minimum, queue_offset, is_backward=True) if behind is None else behind
        time = NO_TIMESTAMP if nearest is None else self._queue.store_timestamp_at(nearest)
        return self._end if behind is None else behind, time


def _stop_of(unit: tuple[int, int, int]) -> int:
    """The physical offset behind the message of a unit, by its size; behind the first byte of a filler."""
    return unit[0] + (unit[1] if 0 < unit[1] != FILLER_SIZE else 1)


def _capacity(files: QueueFiles) -> int:
    """The queue offset after the last unit that the files have room for."""
    return files.files[-1].end // UNIT.size if files.files else 0
