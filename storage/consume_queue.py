"""ConsumeQueue: the plain queue of a topic, a 20-byte pointer for each message, placed by its queue offset.

UNIT
offset  size  type   field            meaning
0       8     i64    physical_offset  where the record starts in the commit log
8       4     i32    size             of the whole record
12      8     i64    tags_code        the tag's hash, a delivery time, or the address of an extension unit

The unit of queue offset q is at byte 20·q of the queue's files. A queue whose first message had an offset above 0
starts with filler units (physical offset 0, size 0x7FFFFFFF, tags code 0). The files are zero where nothing was
written, and nothing says where that begins. Source: store-format §5.1–§5.3, §5.5, §6.2, §6.6.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from struct import Struct
from typing import Final

import numpy as np
import numpy.typing as npt

from storage.commit_log import CommitLog
from storage.consume_queue_ext import LARGEST_ADDRESS, ConsumeQueueExt, ConsumeQueueExtUnit, is_extension_address
from storage.kernels.record import BAD_BODY_CRC, BAD_PROPERTY_CRC, NO_SEGMENT
from storage.mapped_file import MappedFile
from storage.open_files import OpenFiles
from storage.queues.queue import FILLER_SIZE, NO_TIMESTAMP, SCHEDULE_TOPIC, BoundaryType, ConsumeQueueEntry, Queue, Unit
from storage.queues.queue_end import count_leading, refuse_long_scan
from storage.queues.queue_files import QueueFile, QueueFiles
from storage.queues.queue_growth import Known, end_after, end_before
from storage.queues.queue_record import QueueName
from storage.queues.queue_repair import end_behind, find_in_log, place_of
from storage.queues.time_search import FileOfUnits, offset_by_timestamp

__all__ = ["UNIT", "UNIT_DTYPE", "BoundaryType", "ConsumeQueue", "ConsumeQueueEntry", "Queue"]

UNIT: Final = Struct(">qiq")
UNIT_DTYPE: Final = np.dtype([("physical_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
FILLER: Final = (0, FILLER_SIZE, 0)
RECOVERED_FILES: Final = 3
"""A broker looks for the end of a queue in its last three files."""
MOST_SKIPPED: Final = 256
"""Damaged units in a row that a search goes past: a page of them."""

Units = npt.NDArray[np.void]


class ConsumeQueue:
    """One plain queue as its files are now; the end and the beginning are found when first asked for.

    With `known` of an earlier look only what came since is looked at. `measured` is what is known then; `keep` is told.
    """

    __slots__ = (
        "_bounds", "_commit_log", "_extension", "_extension_directory", "_files", "_found_in_log", "_generation",
        "_keep", "_known", "_open_files", "name",
    )  # fmt: skip
    unit_size = UNIT.size

    def __init__(
        self,
        name: QueueName,
        directory: Path,
        extension_directory: Path | None,
        commit_log: CommitLog,
        open_files: OpenFiles,
        generation: object = None,
        known: Known | None = None,
        keep: Callable[[Known], None] | None = None,
    ) -> None:
        self.name = name
        self._commit_log = commit_log
        self._open_files = open_files
        self._generation = generation
        self._keep = keep
        self._known = None if known is None else known.renewed(generation, commit_log.minimum, _capacity(known.files))
        self._files = QueueFiles(directory, UNIT.size, open_files) if self._known is None else self._known.files
        self._extension_directory = extension_directory
        self._extension: ConsumeQueueExt | None = None
        self._bounds: tuple[int, int] | None = None
        self._found_in_log: dict[int, int | None] = {}

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
        return (self._bounds or self._measure())[0]

    @property
    def max_offset(self) -> int:
        """The queue offset behind the last unit that holds."""
        return (self._bounds or self._measure())[1]

    @property
    def newest_physical_offset(self) -> int:
        """Where the record of the last unit starts, or −1 for a queue without units."""
        unit = self.unit(self.max_offset - 1)
        return -1 if unit is None else unit[0]

    def entry_at(self, queue_offset: int) -> ConsumeQueueEntry | None:
        """The entry of one message, or None where the queue has none."""
        return next(iter(self.entries(queue_offset, 1)), None)

    def entries(self, queue_offset: int, count: int) -> list[ConsumeQueueEntry]:
        """The entries of up to `count` queue offsets from one on; empty where there is none at the first."""
        found: list[ConsumeQueueEntry] = []
        while len(found) < count and (units := self.walk(queue_offset + len(found), count - len(found))) is not None:
            found.extend(self._entry(*unit) for unit in units)
        return found

    def walk(self, queue_offset: int, maximum: int) -> Iterable[Unit] | None:
        """Up to `maximum` units from one on, within one file; None where there is no unit at `queue_offset`."""
        place = self.place(queue_offset, maximum)
        if place is None:
            return None
        file, position, count = place
        return (
            (offset, offset + 1, physical_offset, size, tags_code)
            for offset, (physical_offset, size, tags_code) in enumerate(
                UNIT.iter_unpack(file.read(position, count * UNIT.size)), queue_offset
            )
        )

    def place(self, queue_offset: int, maximum: int) -> tuple[MappedFile, int, int] | None:
        """Where up to `maximum` units from one on stand: file, position, and how many; None where there is none."""
        minimum, end = self._bounds or self._measure()
        number = self._files.number_at(queue_offset * UNIT.size)
        if number is None or not minimum <= queue_offset < end:
            return None
        file = self._files.files[number]
        count = min(maximum, min(file.end // UNIT.size, end) - queue_offset)
        return self._files.map_of(number), queue_offset * UNIT.size - file.start, count

    def message_in_log(self, queue_offset: int) -> int | None:
        """Where the log has the message of a queue offset whose unit is damaged; None where it has none.

        None too where nothing speaks against the unit: its message is expired, or damaged itself. Raises Cold on a
        thread that may not wait.
        """
        if queue_offset not in self._found_in_log:
            minimum, end = self._bounds or self._measure()
            place = place_of(self, queue_offset)
            found = None if place is None else place[0]
            if place is None and minimum <= queue_offset < end and self._is_unit_doubtful(queue_offset):
                found = find_in_log(self, queue_offset, self._files.files[0].start // UNIT.size, end)
            self._found_in_log[queue_offset] = found
        return self._found_in_log[queue_offset]

    def next_file_offset(self, queue_offset: int) -> int:
        """The first queue offset of the next file, or the end of the queue behind the last one."""
        start = self._files.start_after(queue_offset * UNIT.size)
        return self.max_offset if start is None else start // UNIT.size

    def extension_at(self, tags_code: int) -> ConsumeQueueExtUnit | None:
        """The extension unit whose address stands in a unit's tags code; None where it is lost."""
        if not is_extension_address(tags_code) or self._extension_directory is None:
            return None
        if self._extension is None:
            self._extension = ConsumeQueueExt(self._extension_directory, self._open_files)
        return self._extension.unit_at(tags_code)

    def store_timestamp_at(self, queue_offset: int) -> int:
        """When the message at a queue offset was stored (ms), or −1 where it cannot be read."""
        minimum, end = self._bounds or self._measure()
        unit = self.unit(queue_offset) if minimum <= queue_offset < end else None
        return NO_TIMESTAMP if unit is None else self._commit_log.store_timestamp_at(unit[0], unit[1])

    def offset_by_timestamp(self, timestamp: int, boundary: BoundaryType) -> int:
        """The queue offset for a time (ms), as the broker searches for it (store-format §5.5), within min and max."""
        minimum, end = self._bounds or self._measure()
        files = [FileOfUnits(first, last) for first, last in self._ranges(end)]
        found = offset_by_timestamp(files, minimum, timestamp, boundary, self._time_of, self._is_expired)
        return min(max(found, minimum), end)

    def units(self) -> Units:
        """All units from `min_offset` to `max_offset` as one array of `UNIT_DTYPE`; a copy."""
        blocks = [units for _, units in self.unit_blocks()]
        return np.concatenate(blocks, dtype=UNIT_DTYPE) if blocks else np.empty(0, UNIT_DTYPE)

    def unit_blocks(self) -> Iterator[tuple[int, Units]]:
        """For each file: the queue offset of its first unit between min and max, and its units as a view of the map."""
        minimum, end = self._bounds or self._measure()
        for first, last in self._ranges(end):
            if last >= minimum:
                start = max(first, minimum)
                yield start, self._array(start, last + 1 - start)

    def offsets_with_tag(self, tag_hash: int, from_physical: int, to_physical: int) -> npt.NDArray[np.int64]:
        """Physical offsets in [from, to) of the messages whose tag may have a hash, in the queue's order."""
        minimum, end = self._bounds or self._measure()
        refuse_long_scan((end - minimum) * UNIT.size, f"all units of {self.topic} {self.queue_id}")
        found = [np.empty(0, np.int64)]
        for _, units in self.unit_blocks():
            offsets, codes = units["physical_offset"], units["tags_code"]
            low = codes.astype(np.int64) & 0xFFFFFFFF
            wanted = (low == tag_hash & 0xFFFFFFFF) & (codes > LARGEST_ADDRESS)
            wanted |= self.topic == SCHEDULE_TOPIC  # of which no unit tells a tag
            for number in np.flatnonzero(codes <= LARGEST_ADDRESS):
                extension = self.extension_at(int(codes[number]))
                wanted[number] = extension is None or (extension.tags_code ^ tag_hash) & 0xFFFFFFFF == 0
            wanted &= (offsets >= from_physical) & (offsets < to_physical) & (units["size"] > 0)
            found.append(offsets[wanted].astype(np.int64))
        return np.concatenate(found)

    def _entry(self, offset: int, _after: int, physical_offset: int, size: int, tags_code: int) -> ConsumeQueueEntry:
        extension = self.extension_at(tags_code)
        code = tags_code if extension is None else extension.tags_code
        return ConsumeQueueEntry(offset, physical_offset, size, code, extension)

    @property
    def log(self) -> CommitLog:
        """What the units point into."""
        return self._commit_log

    def unit(self, queue_offset: int) -> tuple[int, int, int] | None:
        """One unit as it stands in a file, whether it is valid or not."""
        data = self._files.read(queue_offset * UNIT.size, UNIT.size)
        return None if data is None else UNIT.unpack(data)

    def written_in(self, queue_offset: int, count: int) -> list[int]:
        """Queue offsets of the units that are not all zero, of so many from one on, ascending."""
        found: list[int] = []
        for first, last in self._ranges(queue_offset + count):
            start = max(first, queue_offset)
            if start <= last:
                units = self._array(start, last + 1 - start)
                written = (units["size"] != 0) | (units["physical_offset"] != 0) | (units["tags_code"] != 0)
                found += (np.flatnonzero(written) + start).tolist()
        return found

    def _is_unit_doubtful(self, queue_offset: int) -> bool:
        """Whether a unit points to no place at which its message may have been, or to another message of the queue."""
        unit = self.unit(queue_offset)
        if unit is None or unit == FILLER:
            return False
        physical_offset, size, _ = unit
        if physical_offset < 0 or size <= 0 or physical_offset >= self._commit_log.end:
            return True
        return self._commit_log.check(physical_offset) not in (NO_SEGMENT, BAD_BODY_CRC, BAD_PROPERTY_CRC)

    def _array(self, queue_offset: int, count: int) -> Units:
        data = self._files.read(queue_offset * UNIT.size, count * UNIT.size)
        return np.frombuffer(data or b"", UNIT_DTYPE)

    def _time_of(self, queue_offset: int) -> int:
        unit = self.unit(queue_offset)
        return NO_TIMESTAMP if unit is None else self._commit_log.store_timestamp_at(unit[0], unit[1])

    def _is_expired(self, queue_offset: int) -> bool:
        unit = self.unit(queue_offset)
        return unit is not None and unit[0] < self._commit_log.minimum

    def _ranges(self, end: int) -> list[tuple[int, int]]:
        """First and last queue offset of each file that holds units before `end`."""
        return [
            (file.start // UNIT.size, min(file.end // UNIT.size, end) - 1)
            for file in self._files.files
            if file.start < end * UNIT.size
        ]

    def _measure(self) -> tuple[int, int]:
        """Find min and max; two threads that do so at once come to the same."""
        files = self._files
        bounds, written = self._find_bounds()
        # More may have come since files were listed than the last one had room for.
        while written >= _capacity(files) and (more := files.with_successor()) is not files:
            self._files = files = more
            bounds, written = self._find_bounds()
        self._bounds = bounds
        return bounds

    def _find_bounds(self) -> tuple[tuple[int, int], int]:
        """Min and max by the files that are listed, and where what is written in them ends."""
        known, files = self._known, self._files.files
        if known is not None and known.last != self.unit(known.end - 1):
            known = None
        first_file = max(0, len(files) - RECOVERED_FILES)
        if known is not None and files[first_file].start <= known.written * UNIT.size:
            written = self._written_end(bisect_left(files, known.written * UNIT.size, key=_last_byte), known.written)
            end = end_after(self, known, written)
        else:
            known, written = None, self._written_end(first_file)
            end = end_before(self, files[first_file].start // UNIT.size, written) if written else 0
            if files and (behind := end_behind(self, files[0].start // UNIT.size, end)) != end:
                return (self._first_live(behind), behind), written
        log = self._commit_log
        if known is not None and known.log_minimum == log.minimum and known.minimum < min(known.end, end):
            minimum = known.minimum
        else:
            minimum = self._first_live(end)
        if self._keep is not None and files and (known is None or known.log_end <= log.end):
            last = self.unit(end - 1)
            self._keep(Known(self._generation, self._files, log.minimum, log.end, minimum, end, written, last))
        return (minimum, end), written

    def _written_end(self, first_file: int, known_end: int = 0) -> int:
        """Behind the last unit before the first invalid one, looked for in the last three files as a broker does.

        Units before `known_end`, which lies in the first of them if any does, are known to be valid.
        """
        end = known_end
        for number, file in enumerate(self._files.files[first_file:], first_file):
            start = file.start // UNIT.size
            known = max(known_end - start, 0)
            count = count_leading(self._files.map_of(number), file.size, UNIT_DTYPE, _are_valid, known)
            if count or (number == first_file and not known_end):
                end = start + count
            if count < file.size // UNIT.size:
                break
        return end

    @property
    def log_end(self) -> int:
        """Where the log ends that the units are held against."""
        return self._commit_log.end

    def last_within(self, floor: int, end: int) -> int:
        """Behind the last unit in [floor, end) that points into the log; `floor` where none does."""
        for first, last in reversed(self._ranges(end)):
            start = max(first, floor)
            if start <= last:
                offsets = self._array(start, last + 1 - start)["physical_offset"]
                within = np.flatnonzero(offsets < self._commit_log.end)
                if within.size:
                    return start + int(within[-1]) + 1
        return floor

    def points_at(self, queue_offset: int, physical_offset: int) -> bool:
        """Whether the unit of a queue offset, be it within the bounds or not, points at a physical offset."""
        unit = self.unit(queue_offset)
        return unit is not None and unit[0] == physical_offset and unit[1] > 0

    def is_stray(self, queue_offset: int) -> bool:
        """Whether a unit points beyond the log or to what is no message of this queue."""
        unit = self.unit(queue_offset)
        if unit is None or unit == FILLER:
            return False
        physical_offset, size, _ = unit
        if physical_offset >= self._commit_log.end:
            return True
        record = self._commit_log.record(physical_offset, size)
        if record is None:
            # Expired, or in a hole of the log: nothing speaks against the unit. Else it runs out of what the log holds.
            return self._commit_log.segment_of(physical_offset) is not None
        claimed = self.name.offset_in(record, physical_offset)
        if claimed is None or claimed == queue_offset:
            return claimed is None
        # After a lost unit, later ones stand at other places than their records say (§5.2). They are strays only if the
        # record's own unit stands where it says.
        own = self.unit(claimed)
        return own is not None and own[0] == physical_offset

    def _first_live(self, end: int) -> int:
        """What a broker's correctMinOffset finds once expired files are gone: the first unit that the log has."""
        ranges = self._ranges(end)
        minimum = self._commit_log.minimum
        if ranges and self._live_offset(ranges[0][0]) >= minimum:
            return ranges[0][0]  # nothing expired: as in a broker, no damaged unit can mislead a search then
        number = bisect_left(ranges, minimum, key=lambda units: self._live_offset(units[1]))
        if number == len(ranges):
            return end
        first, last = ranges[number]
        return bisect_left(range(last + 1), minimum, lo=first, key=self._live_offset)

    def _live_offset(self, queue_offset: int) -> int:
        """The physical offset of a unit to search by; a filler counts as expired, a damaged unit as the one behind."""
        for number in range(queue_offset, queue_offset + MOST_SKIPPED):
            unit = self.unit(number)
            if unit is None or unit == FILLER:
                return -1
            if 0 <= unit[0] < self._commit_log.end:
                return unit[0]
        return -1


def _last_byte(file: QueueFile) -> int:
    return file.end - 1


def _capacity(files: QueueFiles) -> int:
    """The queue offset behind the last unit that fits."""
    return files.files[-1].end // UNIT.size if files.files else 0


def _are_valid(units: Units) -> npt.NDArray[np.bool_]:
    """Which units a broker takes as written: a filler counts, a zero unit does not."""
    valid: npt.NDArray[np.bool_] = (units["physical_offset"] >= 0) & (units["size"] > 0)
    return valid
