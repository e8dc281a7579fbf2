"""ConsumeQueue: the plain queue of a topic, a 20-byte pointer for each message, placed by its queue offset.

UNIT
offset  size  type   field            meaning
0       8     i64    physical_offset  where the record starts in the commit log
8       4     i32    size             of the whole record
12      8     i64    tags_code        the tag's hash, a delivery time, or the address of an extension unit

The unit of queue offset q is at byte 20·q of the queue's files. A queue whose first message had an offset above 0
starts with filler units (physical offset 0, size 0x7FFFFFFF, tags code 0). The files are zero where nothing was
written, and nothing says where that begins: where a queue begins and ends the messages say that its units lead to
(`storage.queue.queue_begin`, `storage.queue.queue_end`). Source: store-format §5.1–§5.3, §5.5, §6.2, §6.6.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from protocol.errors import StoreError
from storage.files.mapped_file import MappedFile
from storage.files.open_files import OpenFiles
from storage.files.waiting import LONG_SCAN, Lookup, finish, long_scan, plainly
from storage.kernels.records import MINIMUM_SIZE
from storage.log.commit_log import CommitLog
from storage.queue.consume_queue_ext import LARGEST_ADDRESS, ConsumeQueueExt, ConsumeQueueExtUnit, is_extension_address
from storage.queue.queue import NO_TIMESTAMP, SCHEDULE_TOPIC, ConsumeQueueEntry, Queue, TimeBoundary, Unit
from storage.queue.queue_begin import first_live, next_sound
from storage.queue.queue_end import end_behind, find_end
from storage.queue.queue_files import FIRST_STEP, LARGEST_STEP, QueueFiles
from storage.queue.queue_growth import Known, QueueMemory, end_after, is_judged_anew
from storage.queue.queue_holes import QueueHole, QueueHoles
from storage.queue.queue_record import QueueName
from storage.queue.queue_repair import DamagedRun, around, place_of
from storage.queue.queue_tail import UNKNOWN, tail_of
from storage.queue.tagged_units import DoubtedUnits, places_in_log
from storage.queue.time_search import FileOfUnits, offset_by_timestamp
from storage.queue.unit_standing import EMPTY, Places, Standing, places_of, record_of_unit
from storage.queue.unit_standing import FILLER as FILLER_PLACE
from storage.queue.unit_struct import FILLER, FILLER_SIZE, UNIT

__all__ = ["UNIT", "UNIT_DTYPE", "ConsumeQueue", "ConsumeQueueEntry", "Queue", "TimeBoundary"]

UNIT_DTYPE: Final = np.dtype([("physical_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
Units = npt.NDArray[np.void]


class ConsumeQueue:
    """One plain queue as its files are now; the end and the beginning are found when first asked for.

    With a `memory` of earlier looks only what came since is looked at.
    """

    __slots__ = (
        "_bounds", "_commit_log", "_extension", "_extension_directory", "_files", "_generation", "_keep", "_known",
        "_open_files", "holes", "name",
    )  # fmt: skip
    unit_size = UNIT.size
    has_batches = False

    def __init__(
        self,
        name: QueueName,
        directory: Path,
        extension_directory: Path | None,
        commit_log: CommitLog,
        open_files: OpenFiles,
        memory: QueueMemory | None = None,
        holes: QueueHoles | None = None,
    ) -> None:
        self.name = name
        self._commit_log = commit_log
        self._open_files = open_files
        self._generation, known, self._keep = memory or QueueMemory()
        self._known = None if known is None else known.renewed(self._generation, commit_log, _capacity(known.files))
        self._files = QueueFiles(directory, UNIT.size, open_files) if self._known is None else self._known.files
        self._extension_directory = extension_directory
        self._extension: ConsumeQueueExt | None = None
        self._bounds: tuple[int, int] | None = None
        self.holes = QueueHoles() if holes is None else holes

    @property
    def topic(self) -> str:
        """The topic, as its directory is named."""
        return self.name.topic

    @property
    def queue_id(self) -> int:
        """The number of this queue in its topic."""
        return self.name.queue_id

    @property
    def min_offset(self) -> int:
        """The first queue offset whose message the log still has, past any filler; `max_offset` where there is none."""
        return (self._bounds or finish(self._measure()))[0]

    @property
    def max_offset(self) -> int:
        """The queue offset behind the last unit that holds."""
        return (self._bounds or finish(self._measure()))[1]

    @property
    def is_measured(self) -> bool:
        """Whether it is known where it begins and ends."""
        return self._bounds is not None

    def measured(self) -> Lookup["ConsumeQueue"]:
        """This queue once it is known where it begins and ends."""
        if self._bounds is None:
            yield from self._measure()
        return self

    def newest_physical_offset(self) -> Lookup[int]:
        """Where the record of the last unit starts, or −1 for a queue without units."""
        _, end = self._bounds or (yield from self._measure())
        unit = yield from self.unit_lookup(end - 1)
        if unit is None and end:
            found = yield from self.message_in_log_lookup(end - 1)
            return -1 if found is None else found
        return -1 if unit is None else unit[0]

    def entry_at(self, queue_offset: int) -> ConsumeQueueEntry | None:
        """The entry of one message, or None where the queue has none."""
        return next(iter(self.entries(queue_offset, 1)), None)

    def entries_lookup(self, queue_offset: int, count: int) -> Lookup[list[ConsumeQueueEntry]]:
        """The entries of up to `count` queue offsets from one on; empty where there is none at the first."""
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

    entries = plainly(entries_lookup)

    def walk(self, queue_offset: int, maximum: int) -> Lookup[Iterable[Unit] | None]:
        """Up to `maximum` units from one on, within one file; None where there is no unit at `queue_offset`."""
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
        """Where up to `maximum` units from one on stand: file, position, and how many; None where there is none.

        Nothing is read of a queue that is measured.
        """
        minimum, end = self._bounds or finish(self._measure())
        number = self._files.number_at(queue_offset * UNIT.size)
        if number is None or not minimum <= queue_offset < end:
            return None
        file = self._files.files[number]
        count = min(maximum, min(file.end // UNIT.size, end) - queue_offset)
        return self._files.map_of(number), queue_offset * UNIT.size - file.start, count

    def starts_out_of_order(self, queue_offset: int) -> Lookup[bool]:
        """Whether the first unit of a file leads no farther than the last one of the file before it."""
        unit = yield from self.readable_unit(queue_offset)
        before = yield from self.readable_unit(queue_offset - 1)
        return unit is not None and before is not None and before[0] >= unit[0]

    def ends_out_of_order(self, queue_offset: int) -> Lookup[bool]:
        """Whether the last unit of a file, before a queue offset, leads as far as the next file's first, or farther.

        A unit that is not valid says nothing of those before it.
        """
        unit = yield from self.readable_unit(queue_offset - 1)
        behind = yield from self.readable_unit(queue_offset)
        return unit is not None and behind is not None and behind[1] > 0 and 0 < behind[0] <= unit[0]

    def readable_unit(self, queue_offset: int) -> Lookup[tuple[int, int, int] | None]:
        """A unit that only says whether another one is in order; None also where its file has gone meanwhile."""
        with suppress(StoreError):
            return (yield from self.unit_lookup(queue_offset))
        return None

    def message_in_log_lookup(self, queue_offset: int) -> Lookup[int | None]:
        """Where the message of a queue offset starts, by the log where its unit is damaged or lost; None where it is.

        None too where nothing speaks against the unit: its message is expired, or damaged itself. Raises BeingSearched.
        """
        minimum, end = self._bounds or (yield from self._measure())
        place = yield from place_of(self, queue_offset)
        if place is not None:
            return place[0]
        if not minimum <= queue_offset < end or not (yield from self.is_doubtful_lookup(queue_offset)):
            return None
        return (yield from self.hole_at_lookup(queue_offset)).place(queue_offset)

    message_in_log = plainly(message_in_log_lookup)

    def hole_at_lookup(self, queue_offset: int) -> Lookup[QueueHole]:
        """What the log has of the messages of a unit that leads nowhere and of those around it. Raises as above."""
        return self.holes.find(self, queue_offset)

    hole_at = plainly(hole_at_lookup)

    def around(self, queue_offset: int) -> DamagedRun:
        """The run of units that lead nowhere around one of them; waits for the disk."""
        return around(self, queue_offset, *(self._bounds or finish(self._measure())))

    @property
    def files(self) -> QueueFiles:
        """The files as they were listed."""
        return self._files

    def extension_at(self, tags_code: int) -> Lookup[ConsumeQueueExtUnit | None]:
        """The extension unit whose address stands in a unit's tags code; None where it is lost."""
        if not is_extension_address(tags_code) or self._extension_directory is None:
            return None
        if self._extension is None:
            self._extension = ConsumeQueueExt(self._extension_directory, self._open_files)
        return (yield from self._extension.unit_at(tags_code))

    def store_timestamp_at_lookup(self, queue_offset: int) -> Lookup[int]:
        """When the message at a queue offset was stored (ms), or −1 where it cannot be read."""
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

    store_timestamp_at = plainly(store_timestamp_at_lookup)

    def sound_from(self, queue_offset: int) -> int:
        """The first queue offset from one on whose unit leads to its message; `max_offset` without one. Waits."""
        minimum, end = self._bounds or finish(self._measure())
        return finish(next_sound(self, max(queue_offset, minimum), end))

    def offset_by_timestamp_lookup(self, timestamp: int, boundary: TimeBoundary) -> Lookup[int]:
        """The queue offset for a time (ms), as the broker searches for it (store-format §5.5), within min and max."""
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

    offset_by_timestamp = plainly(offset_by_timestamp_lookup)

    def units(self) -> Units:
        """All units from `min_offset` to `max_offset` as one array of `UNIT_DTYPE`; a copy."""
        blocks = [units for _, units in self.unit_blocks()]
        return np.concatenate(blocks, dtype=UNIT_DTYPE) if blocks else np.empty(0, UNIT_DTYPE)

    def unit_blocks(self) -> Iterator[tuple[int, Units]]:
        """For each file: the queue offset of its first unit between min and max, and its units as a view of the map."""
        for first, stop in self.blocks(*(self._bounds or finish(self._measure()))):
            yield first, finish(self._array(first, stop - first))

    def offsets_with_tag_lookup(
        self, tag_hash: int, from_physical: int, to_physical: int
    ) -> Lookup[npt.NDArray[np.int64]]:
        """Physical offsets in [from, to) of the messages whose tag may have a hash, ascending; raises BeingSearched."""
        minimum, end = self._bounds or (yield from self._measure())
        if (end - minimum) * UNIT.size > LONG_SCAN:
            yield long_scan(f"all units of {self.topic} {self.queue_id}")
        found, doubted = [np.empty(0, np.int64)], DoubtedUnits(self._commit_log, minimum)
        for first, stop in self.blocks(minimum, end):
            units = yield from self._array(first, stop - first)
            offsets, codes = units["physical_offset"].astype(np.int64), units["tags_code"]
            low = codes.astype(np.int64) & 0xFFFFFFFF
            wanted = (low == tag_hash & 0xFFFFFFFF) & (codes > LARGEST_ADDRESS)
            wanted |= self.topic == SCHEDULE_TOPIC  # of which no unit tells a tag
            for number in np.flatnonzero(codes <= LARGEST_ADDRESS):
                extension = yield from self.extension_at(int(codes[number]))
                wanted[number] = extension is None or (extension.tags_code ^ tag_hash) & 0xFFFFFFFF == 0
            found.append(offsets[wanted & (units["size"] > 0)])
            doubted.put(first, offsets, (units["size"] > 0) & (units["size"] != FILLER_SIZE))
        more = [*doubted.places, *(yield from places_in_log(self, doubted.runs(end)))]
        places = np.unique(np.concatenate([*found, *more])) if more else np.concatenate(found)
        return places[(places >= from_physical) & (places < to_physical)]

    offsets_with_tag = plainly(offsets_with_tag_lookup)

    @property
    def log(self) -> CommitLog:
        """What the units point into."""
        return self._commit_log

    def unit_lookup(self, queue_offset: int) -> Lookup[tuple[int, int, int] | None]:
        """One unit as it stands in a file, whether it is valid or not."""
        data = yield from self._files.read_lookup(queue_offset * UNIT.size, UNIT.size)
        return None if data is None else UNIT.unpack(data)

    def plausible(self, first: int, stop: int, *, is_backward: bool) -> Iterator[int]:
        """Queue offsets in [first, stop) of the units that point to a place that the log has; waits for the disk."""
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

    def is_doubtful_lookup(self, queue_offset: int) -> Lookup[bool]:
        """Whether a unit is lost, or points to no place at which its message may have been."""
        unit = yield from self.unit_lookup(queue_offset)
        return unit is None or (unit != FILLER and (yield from self.standing(queue_offset)) is not Standing.SOUND)

    is_doubtful = plainly(is_doubtful_lookup)

    def _array(self, queue_offset: int, count: int) -> Lookup[Units]:
        data = yield from self._files.read_lookup(queue_offset * UNIT.size, count * UNIT.size)
        return np.frombuffer(data or b"", UNIT_DTYPE)

    def _ranges(self, end: int) -> list[tuple[int, int]]:
        """First and last queue offset of each file that holds units before `end`."""
        return [
            (file.start // UNIT.size, min(file.end // UNIT.size, end) - 1)
            for file in self._files.files
            if file.start < end * UNIT.size
        ]

    def _measure(self) -> Lookup[tuple[int, int]]:
        """Find min and max; two threads that do so at once come to the same."""
        files = self._files
        bounds, written = yield from self._find_bounds()
        # More may have come since files were listed than the last one had room for.
        while max(written, bounds[1]) >= _capacity(files) and (more := files.with_successor()) is not files:
            self._files = files = more
            bounds, written = yield from self._find_bounds()
        self._bounds = bounds
        return bounds

    def _find_bounds(self) -> Lookup[tuple[tuple[int, int], int]]:
        """Min and max by the files that are listed, and where what is written in them ends."""
        known, files, log = self._known, self._files, self._commit_log
        if not files.files:
            return (yield from tail_of(self.holes, self, UNKNOWN, log.minimum)) if files.is_emptied else (0, 0), 0
        if known is not None and known.last != (yield from self.unit_lookup(known.end - 1)):
            known = None
        first = files.files[0].start // UNIT.size
        if known is not None and first <= known.end:
            written, is_whole = yield from self._written_end(known.written, max(log.end - known.looked, 0))
            end = yield from end_after(self, known, first, written)
            is_whole &= written == end or is_judged_anew(self, known, written)
            behind = known.note if known.end > _capacity(files) and len(files.files) == len(known.files.files) else None
        else:
            known, (written, is_whole) = None, (yield from self._written_end(first))
            if written <= first:
                return (yield from tail_of(self.holes, self, UNKNOWN, log.minimum)), written
            end = yield from find_end(self, first, written)
            end = yield from end_behind(self, first, end, written)
            is_odd = end == _capacity(files) or written * UNIT.size <= files.files[-1].start
            behind = end if is_odd else None
        if isinstance(behind, int):
            last_place = yield from self.physical_offset(behind - 1)
            end = max(end, (yield from tail_of(self.holes, self, behind, last_place))[1])
        if known is not None and known.log_minimum == log.minimum and known.minimum < min(known.end, end):
            minimum = known.minimum
        else:
            minimum = yield from self._first_live(first, end)
        if self._keep is not None and (known is None or known.log_end <= log.end):
            looked = log.end if known is None or is_whole else known.looked
            last = yield from self.unit_lookup(end - 1)
            fields = self._generation, files, log.minimum, log.end, minimum, end, written, last, looked
            self._keep(Known(*fields, behind))
        return (minimum, end), written

    def _written_end(self, start: int, growth: int | None = None) -> Lookup[tuple[int, bool]]:
        """Behind the last unit from one on that is not all zero, and whether all files were looked at to their ends."""
        position, is_whole = yield from self._files.written_end(start * UNIT.size, growth)
        return position // UNIT.size, is_whole

    def _first_live(self, first: int, end: int) -> Lookup[int]:
        """The first queue offset whose message the log has."""
        if not first < end:
            return first
        if not first and not self._commit_log.minimum and (yield from self.unit_lookup(first)) != FILLER:
            return first  # nothing is expired, whatever became of the first messages
        number, told = yield from first_live(self, first, end, is_cut=first > 0)
        if told is None:
            return number
        claim = (yield from self.claim(number)) if number < end else None
        # Behind a lost unit, later ones stand at other places than their records say (store-format §5.2).
        shifted = told if claim is None else told + number - claim
        return max(first if shifted != told else 0, min(number, told, shifted))

    @property
    def log_end(self) -> int:
        """Where the log ends that the units are held against."""
        return self._commit_log.end

    def physical_offset(self, queue_offset: int) -> Lookup[int]:
        """Physical offset in a unit, or what stands for none."""
        unit = yield from self._files.read_lookup(queue_offset * UNIT.size, UNIT.size)
        return EMPTY if unit is None else int(_places(np.frombuffer(unit, UNIT_DTYPE))[0])

    def blocks(self, start: int, stop: int) -> list[tuple[int, int]]:
        """The queue offsets in [start, stop) that have units, file by file, ascending."""
        return [(max(first, start), last + 1) for first, last in self._ranges(stop) if last >= start]

    def physical_offsets(self, first: int, stop: int) -> Lookup[Places]:
        """Physical offsets in the units of one block."""
        return _places((yield from self._array(first, stop - first)))

    def points_at(self, queue_offset: int, physical_offset: int) -> bool:
        """Whether the unit of a queue offset, be it within the bounds or not, points at a physical offset. Waits."""
        unit = finish(self.unit_lookup(queue_offset))
        return unit is not None and unit[0] == physical_offset and unit[1] > 0

    def standing(self, queue_offset: int) -> Lookup[Standing]:
        """What a unit is worth."""
        unit = yield from self.unit_lookup(queue_offset)
        if unit is None:
            return Standing.DOUBTFUL
        if unit == FILLER:
            return Standing.EXPIRED
        record = yield from record_of_unit(self._commit_log, unit[0], unit[1])
        if isinstance(record, Standing):
            return record
        claimed = self.name.offset_in(record, unit[0])
        if claimed == queue_offset:
            return Standing.SOUND
        if claimed is None:
            return Standing.DOUBTFUL
        return (yield from self._standing_elsewhere(queue_offset, unit[0], claimed))

    def claim(self, queue_offset: int) -> Lookup[int | None]:
        """The queue offset that the record of a unit says; None without one."""
        word = yield from self._word_of(queue_offset)
        return word if isinstance(word, int) else None

    def _standing_elsewhere(self, queue_offset: int, physical_offset: int, claimed: int) -> Lookup[Standing]:
        """What a unit is worth whose record says another queue offset.

        After a lost unit, later ones stand before the places that their records say, and in a topic that was deleted
        and made anew behind them (store-format §5.2). They are strays if the record's own unit stands where it says; or
        is damaged, while later ones go on from there with messages behind this one.
        """
        own = yield from self.unit_lookup(claimed)
        if own is not None and own[0] == physical_offset:
            return Standing.DOUBTFUL
        if (yield from self._is_out_of_order(queue_offset, physical_offset)):
            return Standing.DOUBTFUL
        if claimed > queue_offset or (own is not None and (yield from self.claim(claimed)) == claimed):
            return Standing.SOUND
        step = 1
        while claimed + step < queue_offset:
            place, number = (yield from self.physical_offset(claimed + step)), claimed + step
            if place > physical_offset and (yield from self.claim(number)) == number:
                return Standing.DOUBTFUL
            step *= 2
        words = (yield from self._word_of(claimed)), (yield from self._word_of(queue_offset - 1))
        return Standing.DOUBTFUL if Standing.DOUBTFUL in words else Standing.SOUND

    def _is_out_of_order(self, queue_offset: int, physical_offset: int) -> Lookup[bool]:
        """Whether the units around one lead to messages that it does not lead between, though messages ascend."""
        with suppress(StoreError):
            before = yield from self.physical_offset(queue_offset - 1)
            behind = yield from self.physical_offset(queue_offset + 1)
            return FILLER_PLACE < before < behind < self.log_end and not before < physical_offset < behind
        return False

    def _word_of(self, queue_offset: int) -> Lookup[int | Standing]:
        """The queue offset that the record of a unit says; where there is none, what the unit is worth."""
        unit = yield from self.unit_lookup(queue_offset)
        if unit is None:
            return Standing.DOUBTFUL
        record = yield from record_of_unit(self._commit_log, unit[0], unit[1])
        if isinstance(record, Standing):
            return record
        claimed = self.name.offset_in(record, unit[0])
        return Standing.DOUBTFUL if claimed is None else claimed


class _Times:
    """Store times of messages, for one search; those that cannot be read are taken from the nearest that can."""

    def __init__(self, queue: ConsumeQueue, minimum: int, end: int) -> None:
        self._queue, self._minimum, self._end = queue, minimum, end
        self._run = (0, 0, NO_TIMESTAMP)

    def time_of(self, queue_offset: int) -> Lookup[int]:
        """When a message was stored (ms); where it is lost, when the next one was, or else the last one before."""
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
        """The next queue offset whose message has a time, and that time, or the last one before. Waits."""
        queue = self._queue
        for behind in queue.plausible(queue_offset + 1, self._end, is_backward=False):
            if (timestamp := queue.store_timestamp_at(behind)) >= 0:
                return behind, timestamp
        for before in queue.plausible(self._minimum, queue_offset, is_backward=True):
            if (timestamp := queue.store_timestamp_at(before)) >= 0:
                return self._end, timestamp
        return self._end, NO_TIMESTAMP


def is_implausible(log: CommitLog, physical_offset: int, size: int) -> bool:
    """Whether a unit says what no unit between the ends of its queue can say, so that its tag decides nothing."""
    return size <= 0 or not log.minimum <= physical_offset < log.end


def _capacity(files: QueueFiles) -> int:
    """The queue offset behind the last unit that fits."""
    return files.files[-1].end // UNIT.size if files.files else 0


def _places(units: Units) -> Places:
    """Physical offsets of units; no broker writes one with a negative offset, or a size of 0 or less."""
    return places_of(units, (units["physical_offset"] >= 0) & (units["size"] > 0))
