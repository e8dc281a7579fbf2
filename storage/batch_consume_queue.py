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

Where a unit stands says nothing about its queue offset; units ascend by base offset. Source: store-format §5.8.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from struct import Struct
from typing import Final

import numpy as np
import numpy.typing as npt

from storage.commit_log import CommitLog
from storage.consume_queue_ext import ConsumeQueueExtUnit
from storage.open_files import OpenFiles
from storage.queues.mend_batches import UnitFields, mend_units
from storage.queues.queue import NO_TIMESTAMP, BoundaryType, ConsumeQueueEntry, Unit
from storage.queues.queue_end import count_leading, refuse_long_scan
from storage.queues.queue_files import QueueFiles
from storage.queues.queue_growth import Known, end_after, end_before
from storage.queues.queue_record import QueueName

__all__ = ["UNIT", "UNIT_DTYPE", "BatchConsumeQueue"]

UNIT: Final = Struct(">qiqqqhii")
UNIT_DTYPE: Final = np.dtype(
    [
        ("physical_offset", ">i8"),
        ("size", ">i4"),
        ("tags_code", ">i8"),
        ("store_timestamp", ">i8"),
        ("base_offset", ">i8"),
        ("batch_size", ">i2"),
        ("compacted_offset", ">i4"),
        ("reserved", ">i4"),
    ]
)
NO_OFFSET: Final = -1
RECOVERED_FILES: Final = 3

Units = npt.NDArray[np.void]


class BatchConsumeQueue:
    """One queue of batches as its files are now; its units are numbered from the first one in the first file.

    `known` and `keep` as of a plain queue.
    """

    __slots__ = (
        "_bounds", "_commit_log", "_files", "_first_numbers", "_generation", "_is_mended", "_keep", "_known",
        "_mended", "name",
    )  # fmt: skip
    unit_size = UNIT.size

    def __init__(
        self,
        name: QueueName,
        directory: Path,
        commit_log: CommitLog,
        open_files: OpenFiles,
        generation: object = None,
        known: Known | None = None,
        keep: Callable[[Known], None] | None = None,
    ) -> None:
        self.name = name
        self._commit_log = commit_log
        self._generation = generation
        self._keep = keep
        self._known = None if known is None else _renewed(known, generation, commit_log.minimum)
        self._files = QueueFiles(directory, UNIT.size, open_files) if self._known is None else self._known.files
        self._first_numbers = _numbers_of_first_units(self._files)
        self._bounds: tuple[int, int, int] | None = None
        self._mended: dict[int, UnitFields] = {}
        self._is_mended = False

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
        """Base offset of the first batch that the log still has; −1 for a queue without units, as a broker answers."""
        return (self._bounds or self._measure())[0]

    @property
    def max_offset(self) -> int:
        """The queue offset behind the last batch, 0 for a queue without units."""
        return (self._bounds or self._measure())[1]

    @property
    def newest_physical_offset(self) -> int:
        """Where the record of the last unit starts, or −1 for a queue without units."""
        unit_count = self._unit_count()
        return self._unit(unit_count - 1)[0] if unit_count else NO_OFFSET

    def entry_at(self, queue_offset: int) -> ConsumeQueueEntry | None:
        """The entry of the batch that holds one message, or None where the queue has none."""
        return next(iter(self.entries(queue_offset, 1)), None)

    def entries(self, queue_offset: int, count: int) -> list[ConsumeQueueEntry]:
        """The batches that hold any of `count` queue offsets from one on."""
        found: list[ConsumeQueueEntry] = []
        number = self._number_at(queue_offset)
        while number is not None and number < self._unit_count() and len(found) < count:
            physical_offset, size, tags_code, _, base_offset, batch_size, _, _ = self._unit(number)
            if base_offset - queue_offset >= count:
                break
            found.append(ConsumeQueueEntry(base_offset, physical_offset, size, tags_code, None, batch_size))
            number += 1
        return found

    def walk(self, queue_offset: int, maximum: int) -> Iterable[Unit] | None:
        """Up to `maximum` units within one file from the batch that holds `queue_offset`; None where there is none."""
        number = self._number_at(queue_offset)
        if number is None:
            return None
        file = bisect_right(self._first_numbers, number) - 1
        stop = min(self._unit_count(), self._first_numbers[file + 1])
        position = (number - self._first_numbers[file]) * UNIT.size
        if self._mended:
            units = map(self._unit, range(number, min(stop, number + maximum)))
            return ((unit[4], unit[4] + unit[5], unit[0], unit[1], unit[2]) for unit in units)
        data = self._files.read_file(file, position, min(maximum, stop - number) * UNIT.size)
        return (
            (base, base + batch_size, physical_offset, size, tags_code)
            for physical_offset, size, tags_code, _, base, batch_size, _, _ in UNIT.iter_unpack(data)
        )

    def message_in_log(self, queue_offset: int) -> int | None:
        """Where the log has the batch of a queue offset whose unit led nowhere; None where it has none.

        One such unit casts doubt on all of the last three files. Raises Cold on a thread that may not wait.
        """
        count = self._unit_count()
        if not self._is_mended:
            first = self._first_numbers[max(0, len(self._files.files) - RECOVERED_FILES)]
            mended = mend_units(self, first, count, doubted=True)
            if mended is not None:
                self._mended, count = mended
                self._bounds = self._bounds_of(count)
            self._is_mended = True
        number = self._number_at(queue_offset)
        physical_offset = -1 if number is None else self._unit(number)[0]
        return physical_offset if physical_offset >= 0 else None

    def next_file_offset(self, queue_offset: int) -> int:
        """The end of the queue: from `queue_offset` on there is no unit."""
        return self.max_offset

    def extension_at(self, tags_code: int) -> ConsumeQueueExtUnit | None:
        """None: queues of batches have no extension."""
        return None

    def store_timestamp_at(self, queue_offset: int) -> int:
        """When the batch that holds a message was stored (ms), or −1 where its record cannot be read."""
        entry = self.entry_at(queue_offset)
        if entry is None:
            return NO_TIMESTAMP
        return self._commit_log.store_timestamp_at(entry.physical_offset, entry.size)

    def offset_by_timestamp(self, timestamp: int, boundary: BoundaryType) -> int:
        """The base offset of a batch for a time (ms), by the times in the units.

        LOWER: the first batch at that time or after it; behind the last one that one, where a plain queue answers the
        end. UPPER: the last batch at that time or before it; before the first one `min_offset`. Where several have
        one time the broker's own search may choose the wrong one of them; this one does not.
        """
        minimum, end, count = self._bounds or self._measure()
        if not count:
            return max(minimum, 0)
        find = bisect_left if boundary is BoundaryType.LOWER else bisect_right
        number = find(range(count), timestamp, key=self._time_of)
        if boundary is BoundaryType.UPPER:
            number -= 1
        found = self._unit(min(number, count - 1))[4] if number >= 0 else minimum
        return min(max(found, minimum), end)

    def units(self) -> Units:
        """All units, expired ones included, as one array of `UNIT_DTYPE`; a copy."""
        blocks = list(self.unit_blocks())
        return np.concatenate(blocks, dtype=UNIT_DTYPE) if blocks else np.empty(0, UNIT_DTYPE)

    def unit_blocks(self) -> Iterator[Units]:
        """The units of each file as a view of the map, expired ones included."""
        count = self._unit_count()
        for file, first in enumerate(self._first_numbers[:-1]):
            length = (min(count, self._first_numbers[file + 1]) - first) * UNIT.size
            if length > 0:
                yield np.frombuffer(self._files.read_file(file, 0, length), UNIT_DTYPE)

    def offsets_with_tag(self, tag_hash: int, from_physical: int, to_physical: int) -> npt.NDArray[np.int64]:
        """Physical offsets in [from, to) of the records whose tag has a hash, in the queue's order."""
        refuse_long_scan(self._unit_count() * UNIT.size, f"all units of {self.topic} {self.queue_id}")
        found = [np.empty(0, np.int64)]
        for units in self.unit_blocks():
            offsets = units["physical_offset"]
            wanted = units["tags_code"].astype(np.int64) & 0xFFFFFFFF == tag_hash & 0xFFFFFFFF
            wanted &= (offsets >= from_physical) & (offsets < to_physical)
            found.append(offsets[wanted].astype(np.int64))
        return np.concatenate(found)

    def _unit(self, number: int) -> UnitFields:
        """One unit by its number, which must be one of those that stand in the files; a damaged one made good."""
        if number in self._mended:
            return self._mended[number]
        file = bisect_right(self._first_numbers, number) - 1
        data = self._files.read_file(file, (number - self._first_numbers[file]) * UNIT.size, UNIT.size)
        fields: UnitFields = UNIT.unpack(data)
        return fields

    def _unit_count(self) -> int:
        return (self._bounds or self._measure())[2]

    def _number_at(self, queue_offset: int) -> int | None:
        """The unit that holds a queue offset or, where batches leave one out, the next; None outside min and max."""
        minimum, end, count = self._bounds or self._measure()
        if not count or not minimum <= queue_offset < end:
            return None
        number = max(bisect_right(range(count), queue_offset, key=self._base_of) - 1, 0)
        number += self._end_of(number) <= queue_offset
        return number if number < count else None  # damaged units may not ascend

    def _base_of(self, number: int) -> int:
        return self._unit(number)[4]

    def _end_of(self, number: int) -> int:
        unit = self._unit(number)
        return unit[4] + unit[5]

    def _time_of(self, number: int) -> int:
        return self._unit(number)[3]

    def _physical_of(self, number: int) -> int:
        """Where a batch starts; of one that is lost, where the next one does."""
        count = self._first_numbers[-1]
        while (place := self._unit(number)[0]) < 0 and number in self._mended and number + 1 < count:
            number += 1
        return place

    def _measure(self) -> tuple[int, int, int]:
        """Find min, max and the number of units; two threads that do so at once come to the same."""
        files = self._files
        bounds, written = self._find_bounds()
        # More may have come since files were listed than the last one had room for.
        while written >= self._first_numbers[-1] and (more := files.with_successor()) is not files:
            if more.files[0] != files.files[0]:  # units are numbered from there
                break
            self._files = files = more
            self._mended, self._is_mended = {}, False
            self._first_numbers = _numbers_of_first_units(files)
            bounds, written = self._find_bounds()
        self._bounds = bounds
        return bounds

    def _find_bounds(self) -> tuple[tuple[int, int, int], int]:
        """Min, max and the number of units that count, by the files that are listed; and how many are written."""
        known, files = self._known, self._files.files
        if known is not None and known.last != self._last_of(known.end):
            known = None
        first_file = max(0, len(files) - RECOVERED_FILES)
        if known is not None and self._first_numbers[first_file] <= known.written:
            file_of_end = bisect_right(self._first_numbers, known.written) - 1
            written = self._written_count(file_of_end, known.written)
            count = end_after(self, known, written)
        else:
            written = self._written_count(first_file)
            count = end_before(self, self._first_numbers[first_file], written)
            if files and (mended := mend_units(self, self._first_numbers[first_file], count)) is not None:
                self._mended, count = mended
                self._is_mended = True
                return self._bounds_of(count), written
        bounds = self._bounds_of(count)
        log = self._commit_log
        if self._keep is not None and files and (known is None or known.log_end <= log.end):
            last = self._last_of(count)
            self._keep(Known(self._generation, self._files, log.minimum, log.end, bounds[0], count, written, last))
        return bounds, written

    def _last_of(self, count: int) -> UnitFields | None:
        """The last of so many units."""
        return self._unit(count - 1) if count else None

    def _bounds_of(self, count: int) -> tuple[int, int, int]:
        if not count:
            return NO_OFFSET, 0, 0
        end = max(self._end_of(count - 1), 0)
        first = bisect_left(range(count), self._commit_log.minimum, key=self._physical_of)
        # Kept within 0 and the end: units before the last three files are not looked at, and may hold anything.
        return (min(max(self._base_of(first), 0), end) if first < count else end), end, count

    def _written_count(self, first_file: int, known: int = 0) -> int:
        """How many units stand before the first invalid one, looked for in the last three files as a broker does.

        The first `known` units, the last of which lies in the first of them, are known to be valid.
        """
        count = max(self._first_numbers[first_file], known)
        for number, file in enumerate(self._files.files[first_file:], first_file):
            first = self._first_numbers[number]
            in_file = count_leading(
                self._files.map_of(number), file.size, UNIT_DTYPE, _are_valid, max(known - first, 0)
            )
            count = first + in_file
            if in_file < file.size // UNIT.size:
                break
        return count

    @property
    def log(self) -> CommitLog:
        """What the units point into."""
        return self._commit_log

    def raw_units(self, first: int) -> Units:
        """The units from a number on up to the last that is not all zero, as they stand in the files."""
        blocks = []
        for file, start in enumerate(self._first_numbers[:-1]):
            if self._first_numbers[file + 1] > first:
                length = (self._first_numbers[file + 1] - start) * UNIT.size
                blocks.append(np.frombuffer(self._files.read_file(file, 0, length), UNIT_DTYPE))
        units = np.concatenate(blocks, dtype=UNIT_DTYPE) if blocks else np.empty(0, UNIT_DTYPE)
        written = np.flatnonzero(units.view(np.uint8).reshape(-1, UNIT.size).any(axis=1))
        return units[: int(written[-1]) + 1 if written.size else 0]

    @property
    def log_end(self) -> int:
        """Where the log ends that the units are held against."""
        return self._commit_log.end

    def last_within(self, floor: int, end: int) -> int:
        """Behind the last unit in [floor, end) that points into the log; `floor` where none does."""
        while end > floor and self._unit(end - 1)[0] >= self._commit_log.end:
            end -= 1
        return end

    def is_stray(self, number: int) -> bool:
        """Whether a unit points beyond the log or to what is no batch of this queue."""
        physical_offset, size, _, _, base_offset, _, _, _ = self._unit(number)
        if physical_offset >= self._commit_log.end:
            return True
        record = self._commit_log.record(physical_offset, size)
        if record is None:
            return self._commit_log.segment_of(physical_offset) is not None
        return self.name.offset_in(record, physical_offset) != base_offset


def _renewed(known: Known, generation: object, log_minimum: int) -> Known | None:
    """What is known, for the files that are there now; units are numbered from the first file, which must be there."""
    numbers = _numbers_of_first_units(known.files)
    renewed = known.renewed(generation, log_minimum, numbers[-1])
    return renewed if renewed is not None and renewed.files.files[0] == known.files.files[0] else None


def _numbers_of_first_units(files: QueueFiles) -> list[int]:
    """For each file the number of its first unit, and behind them the number of all units that fit."""
    numbers = [0]
    for file in files.files:
        numbers.append(numbers[-1] + file.size // UNIT.size)
    return numbers


def _are_valid(units: Units) -> npt.NDArray[np.bool_]:
    """Which units a broker takes as written."""
    valid: npt.NDArray[np.bool_] = (units["physical_offset"] >= 0) & (units["size"] > 0)
    valid &= (units["base_offset"] >= 0) & (units["batch_size"] > 0)
    return valid
