"""Where the valid data of a log's last segment end: behind the last intact record, past damage in between.

Nothing on disk says it (store-format §6.6). A broker's recovery ends the log at the first record that fails its check;
here an intact record behind damage counts too, if nothing says that it was left over when a log was cut and written on
(§6.3): truncation zeroes nothing, and what it leaves behind is well-formed. Such a record counts when

- it says its own place, its lengths add up and its checksums hold, and
- it was stored no more than `TOLERATED_MS` before the last record in front of the damage: what was cut off is older
  than anything written since, by the time at least that a broker takes to start, and
- the queue that it names does not have an earlier record in its place: a queue offset is given once, and after a cut
  those of the records that were cut off are given again.

Records that follow it without a break count with it. Where clocks were set back across a restart, and the queues are
lost too, what was left over cannot be told from what is lost.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from storage.kernels import record as codes
from storage.kernels.record import check_checksums, check_shape, store_timestamp
from storage.kernels.resync import find_candidate
from storage.kernels.scan import AT_BLANK, find_record_backwards, walk_records
from storage.mapped_file import MappedFile
from storage.segments.damaged_ranges import DamagedRange

WALK_STEP: Final = 16 * 1024 * 1024
"""Bytes stepped over before the position is noted; checksums are verified in the last one to two such steps."""

LOOK_AHEAD_BYTES: Final = 64 * 1024 * 1024
"""Bytes behind damage, holes of the file not counted, in which records are looked for."""

LOOK_BACK_BYTES: Final = 4 * 1024 * 1024
CHUNK: Final = 1024 * 1024
TOLERATED_MS: Final = 1000
MOST_CANDIDATES: Final = 16
"""Records behind one place of damage that are found not to count before the search is given up."""

MOST_DAMAGE: Final = 10_000
"""Places of damage in one segment that are passed over; the log ends at the next one."""

IsLeftOver = Callable[[memoryview, int], bool]
"""Whether a queue has another record in the place of an intact one, which starts at a physical offset."""


@dataclass(frozen=True, slots=True)
class SegmentEnd:
    """``position`` behind the last record that counts, ``is_full`` if a BLANK is there; ``damage`` before it."""

    position: int
    is_full: bool
    damage: tuple[DamagedRange, ...]


@dataclass(frozen=True, slots=True)
class EndSearch:
    """One segment whose end is looked for.

    ``last_before`` gives the store time (ms) of the last record in front of the segment, 0 for none; it is asked for
    only where the segment starts with damage.
    """

    base_offset: int
    file: MappedFile
    last_before: Callable[[], int] = int
    is_left_over: IsLeftOver | None = None

    def run(self, known_end: int = 0) -> SegmentEnd:
        """Find it. ``known_end`` is a physical offset up to which this very file was found valid. Waits for the disk.

        Records are stepped over by their shape, those at the end are held against their checksums.
        """
        start = self._start(known_end)
        end, marks, is_full, damage = self._walk(start)
        checked = max((mark for mark in marks if mark <= end - WALK_STEP), default=start)
        return self._verify(checked, SegmentEnd(end, is_full, tuple(damage)))

    def _start(self, known_end: int) -> int:
        """A cached end, if it is still credible: an intact record, a BLANK, or nothing at all starts there."""
        position = known_end - self.base_offset
        if not (0 < position <= self.file.size and known_end > self.base_offset):
            return 0
        head = bytes(self.file.view[position : position + 8])
        return position if not any(head) or self._size_at(position) > 0 or is_blank(head) else 0

    def _walk(self, start: int) -> tuple[int, list[int], bool, list[DamagedRange]]:
        """Step over records by their shape: where that ends, places on the way, whether a BLANK is there, damage."""
        file, base = self.file, self.base_offset
        result = np.zeros(4, dtype=np.int64)
        marks, damage, at = [start], list[DamagedRange](), start
        while True:
            stop = min(file.size, at + WALK_STEP)
            reached = int(walk_records(file.address, at, stop, base, False, result))
            if reached == at and stop < file.size and result[0] != AT_BLANK:
                reached = int(walk_records(file.address, at, file.size, base, False, result))
            if reached == at:
                following = None if result[0] == AT_BLANK or len(damage) >= MOST_DAMAGE else self.continuation(at)
                if following is None:
                    return at, marks, bool(result[0] == AT_BLANK), damage
                damage.append(DamagedRange(base + at, base + following, int(result[3])))
                reached = following
            at = reached
            marks.append(at)

    def _verify(self, start: int, end: SegmentEnd) -> SegmentEnd:
        """Hold records from a position on against their checksums; the log may end earlier for it."""
        base = self.base_offset
        result = np.zeros(4, dtype=np.int64)
        found = [damage for damage in end.damage if damage.start < base + start]
        known = list(end.damage[: len(found) - 1 if found else None : -1])  # those to come, the next one last
        at = start
        while at < end.position:
            while known and known[-1].start < base + at:
                known.pop()
            limit = known[-1].start - base if known else end.position
            at = int(walk_records(self.file.address, at, limit, base, True, result))
            if at >= limit:
                if known:
                    found.append(known.pop())
                    at = found[-1].stop - base
                continue
            following = self.continuation(at) if len(found) < MOST_DAMAGE else None
            if following is None or following > end.position:
                return SegmentEnd(at, False, tuple(found))
            found.append(DamagedRange(base + at, base + following, int(result[3])))
            at = following
        return SegmentEnd(end.position, end.is_full, tuple(found))

    def continuation(self, position: int) -> int | None:
        """Position of what counts again behind damage: a record, or a BLANK right behind a record of sound shape."""
        last = self.last_timestamp(position)
        size = self._size_at(position)
        if size > 0:
            behind = position + size
            if is_blank(bytes(self.file.view[behind : behind + 8])) or self._counts(behind, last):
                return behind
        candidates = itertools.islice(self._intact_records(position + 1), MOST_CANDIDATES)
        return next((candidate for candidate in candidates if self._counts(candidate, last)), None)

    def _counts(self, position: int, newest: int) -> bool:
        """Whether an intact record is there that was not left over."""
        if not self._is_intact(position):
            return False
        if store_timestamp(self.file.address + position) < newest - TOLERATED_MS:
            return False
        record = self.file.view[position : position + self._size_at(position)]
        return self.is_left_over is None or not self.is_left_over(record, self.base_offset + position)

    def _intact_records(self, position: int) -> Iterator[int]:
        """Positions of intact records from one on, as far as is looked ahead."""
        file = self.file
        first = position
        for start, stop in self._written_chunks(position):
            # A record that starts in the chunk may say its own offset behind it.
            readable = min(stop + codes.PHYSICAL_OFFSET + 7, file.size)
            # The first bytes of a record are zero mostly, and may lie in front of the stretch that says so.
            at = max(start - codes.MAGIC, first)
            while 0 <= (at := int(find_candidate(file.address, at, readable, self.base_offset))) < stop:
                if self._is_intact(at):
                    yield at
                at += 1

    def _written_chunks(self, position: int) -> Iterator[tuple[int, int]]:
        """Stretches from a position on that hold anything but zeros; holes of the file are not read."""
        left = LOOK_AHEAD_BYTES
        while left > 0 and (position := max(position, self.file.first_data(position))) < self.file.size:
            stop = min(position + CHUNK, self.file.size)
            if np.frombuffer(self.file.view[position:stop], dtype=np.uint8).any():
                yield position, stop
            left -= stop - position
            position = stop

    def last_timestamp(self, position: int) -> int:
        """Store time of the last intact record in front of a position."""
        lowest = max(0, position - LOOK_BACK_BYTES)
        address, base = self.file.address + lowest, self.base_offset + lowest
        at = max(min(position, self.file.size - codes.MINIMUM_SIZE) - lowest, 0)
        while (at := int(find_record_backwards(address, at, base))) >= 0:
            if self._is_intact(lowest + at):
                return int(store_timestamp(address + at))
        return self.last_before()

    def _size_at(self, position: int) -> int:
        """Size of the record of sound shape at a position, or a negative code."""
        room = self.file.size - position
        return int(check_shape(self.file.address + position, room, self.base_offset + position))

    def _is_intact(self, position: int) -> bool:
        size = self._size_at(position)
        return size > 0 and int(check_checksums(self.file.address + position, size)) > 0


def is_blank(head: bytes) -> bool:
    """Whether the first eight bytes of something are those of a BLANK."""
    return len(head) == 8 and int.from_bytes(head[codes.MAGIC :], "big", signed=True) == codes.MAGIC_BLANK


def last_store_timestamp(base_offset: int, file: MappedFile) -> int:
    """Store time (ms) of the last record of a whole segment, 0 if none is found near its end."""
    return EndSearch(base_offset, file).last_timestamp(file.size)


def code_at(base_offset: int, file: MappedFile, position: int) -> int:
    """Why no intact record starts at a position, as a code of :mod:`storage.kernels.record`; its size if one does."""
    size = int(check_shape(file.address + position, file.size - position, base_offset + position))
    return int(check_checksums(file.address + position, size)) if size > 0 else size
