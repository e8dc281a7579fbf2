"""Where the valid data of a log's last segment end: behind the last intact record, past damage in between.

Nothing on disk says it (store-format §6.6). A broker's recovery ends the log at the first record that fails its check;
here an intact record behind damage counts too, if nothing says that it was left over when a log was cut and written on
(§6.3): truncation zeroes nothing, and what it leaves behind is well-formed. Such a record counts when

- it says its own place, its lengths add up and its checksums hold, and
- it was stored no more than `TOLERATED_MS` before the last record in front of the damage: what was cut off is older
  than anything written since, by the time at least that a broker takes to start, and
- the queue that it names does not have an earlier record in its place: a queue offset is given once, and after a cut
  those of the records that were cut off are given again.

Records that follow it without a break count with it. They are looked for up to the end of the file, in one pass,
however many are passed over that do not count. Where clocks were set back across a restart, and the queues are lost
too, records that were left over cannot be distinguished from records that are lost.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from storage.files.mapped_file import MappedFile
from storage.kernels import records as codes
from storage.kernels.records import (
    AT_BLANK,
    KeptChecksums,
    check_intact,
    check_shape,
    check_step,
    closes_segment,
    find_intact_backwards,
    find_recent,
    record_start,
    store_timestamp,
    walk_records,
)
from storage.log.damaged_ranges import DamagedRange, reason_of
from storage.log.segment_list import may_be_cut

WALK_STEP: Final = 16 * 1024 * 1024
"""Bytes stepped over before the position is noted; checksums are verified in the last one to two such steps."""

BLANK_BYTES: Final = 8
LOOK_BACK_BYTES: Final = 4 * 1024 * 1024
CHUNK: Final = 1024 * 1024
NOTHING: Final = bytes(CHUNK)
TOLERATED_MS: Final = 1000
MOST_DAMAGE: Final = 10_000
"""Places of damage in one segment that are listed; further ones are counted."""

IsLeftOver = Callable[[memoryview, int], bool]
"""Whether a queue has another record in the place of an intact one, which starts at a physical offset."""


@dataclass(frozen=True, slots=True)
class SegmentEnd:
    """``position`` behind the last record that counts, ``is_full`` if a BLANK is there; ``damage`` before it.

    ``more_damage`` is how many places there are that ``damage`` does not list.
    """

    position: int
    is_full: bool
    damage: tuple[DamagedRange, ...]
    more_damage: int = 0


@dataclass(frozen=True, slots=True)
class EndSearch:
    """One segment whose end is looked for.

    ``last_before`` gives the store time (ms) of the last record in front of the segment, 0 for none; it is asked for
    only where the segment starts with damage. ``next_base`` is the physical offset at which the next segment starts, or
    would start; 0 for the end of the file.
    """

    base_offset: int
    file: MappedFile
    last_before: Callable[[], int] = int
    is_left_over: IsLeftOver | None = None
    next_base: int = 0
    sums: KeptChecksums = field(default_factory=KeptChecksums, compare=False, repr=False)

    @property
    def length(self) -> int:
        """Bytes of the segment when it is whole."""
        return self.next_base - self.base_offset if self.next_base else self.file.size

    def run(self, known_end: int = 0) -> SegmentEnd:
        """Find the end. ``known_end``: physical offset up to which this very file was found valid. Waits for the disk.

        Records are stepped over by their shape, those at the end are held against their checksums.
        """
        start = self._start(known_end)
        marks, end = self._walk(start)
        checked = max((mark for mark in marks if mark <= end.position - WALK_STEP), default=start)
        return self._verify(checked, end)

    def _start(self, known_end: int) -> int:
        """A cached end, if it is still credible: an intact record, a BLANK, or nothing at all starts there."""
        position = known_end - self.base_offset
        if not (0 < position <= self.file.size and known_end > self.base_offset):
            return 0
        head = bytes(self.file.slice(position, position + 8))
        is_credible = not any(head) or self._size_at(position) > 0 or is_blank(self.file, position, self.length)
        return position if is_credible else 0

    def _walk(self, start: int) -> tuple[list[int], SegmentEnd]:
        """Step over records by their shape: places on the way, and where that ends."""
        file, base, boundary = self.file, self.base_offset, self.base_offset + self.length
        marks, damage, more, at = [start], list[DamagedRange](), 0, start
        while True:
            stop = min(file.size, at + WALK_STEP)
            walk = walk_records(file.region, at, stop, base, boundary, False)
            if walk.position == at and stop < file.size and walk.reason != AT_BLANK:
                walk = walk_records(file.region, at, file.size, base, boundary, False)
            reached = walk.position
            if reached == at:
                following = None if walk.reason == AT_BLANK else self.continuation(at)
                if following is None:
                    return marks, SegmentEnd(at, walk.reason == AT_BLANK, tuple(damage), more)
                if len(damage) < MOST_DAMAGE:
                    damage.append(DamagedRange(base + at, base + following, walk.code))
                else:
                    more += 1
                reached = following
            at = reached
            marks.append(at)

    def _verify(self, start: int, end: SegmentEnd) -> SegmentEnd:
        """Hold records from a position on against their checksums; the log may end earlier for it."""
        base, boundary = self.base_offset, self.base_offset + self.length
        more = end.more_damage
        found = [damage for damage in end.damage if damage.start < base + start]
        known = list(end.damage[: len(found) - 1 if found else None : -1])  # those to come, the next one last
        at = start
        while at < end.position:
            while known and known[-1].start < base + at:
                known.pop()
            limit = known[-1].start - base if known else end.position
            walk = walk_records(self.file.region, at, limit, base, boundary, True, self.sums)
            at = walk.position
            if at >= limit:
                if known:
                    found.append(known.pop())
                    at = found[-1].stop - base
                continue
            following = self.continuation(at)
            if following is None or following > end.position:
                return SegmentEnd(at, False, tuple(found), more)
            if len(found) + len(known) < MOST_DAMAGE:
                found.append(DamagedRange(base + at, base + following, walk.code))
            elif walk.code in (codes.BAD_BODY_CRC, codes.BAD_PROPERTY_CRC):  # else it was counted by its shape
                more += 1
            at = following
        return SegmentEnd(end.position, end.is_full, tuple(found), more)

    def continuation(self, position: int, start: int = 0, stop: int | None = None) -> int | None:
        """Find the first valid position behind damage: a record, or the BLANK behind a record of valid shape.

        Searches for a record from ``start`` to ``stop``, by default to the end of the file.
        """
        earliest = self.last_timestamp(position) - TOLERATED_MS
        size = self._size_at(position)
        if size > 0:
            behind = self._record_start(position) + size
            if is_blank(self.file, behind, self.length) or self._counts(behind, earliest):
                return behind
        records = self._records_since(earliest, max(position + 1, start), self.file.size if stop is None else stop)
        return next((at for at in records if self._is_ours(at)), None)

    def _counts(self, position: int, earliest: int) -> bool:
        """Whether an intact record is there that was not left over."""
        position = self._record_start(position)
        is_new = self._is_intact(position) and store_timestamp(self.file.region, position) >= earliest
        return is_new and self._is_ours(position)

    def _is_ours(self, position: int) -> bool:
        """Whether no queue has an earlier record in the place of an intact one."""
        record = self.file.view[position : position + max(self._size_at(position), 0)]
        return self.is_left_over is None or not self.is_left_over(record, self.base_offset + position)

    def _records_since(self, earliest: int, start: int, stop: int) -> Iterator[int]:
        """Positions of the intact records between two that were stored at a time (ms) or later."""
        file = self.file
        for first, last in self.written_chunks(start, stop):
            # The first bytes of a record are zero mostly, and may lie in front of the stretch that says so.
            at = max(first - codes.MAGIC, start)
            while (at := find_recent(file.region, at, last, file.size, self.base_offset, earliest, self.sums)) < last:
                yield at
                at += 1

    def written_chunks(self, position: int, stop: int) -> Iterator[tuple[int, int]]:
        """Stretches between two positions that hold anything but zeros; holes of the file are not read."""
        stop = min(stop, self.file.size)
        while (position := max(position, self.file.first_data(position))) < stop:
            last = min(position + CHUNK, stop)
            if bytes(self.file.view[position:last]) != NOTHING[: last - position]:
                yield position, last
            position = last

    def length_behind(self, position: int) -> int:
        """The segment's length by the BLANK with which it ends, where its file may have been cut; else 0."""
        file, base = self.file, self.base_offset
        if position + BLANK_BYTES > file.size or code_at(base, file, position, base + self.length) != codes.BAD_BLANK:
            return 0
        length = position + int.from_bytes(file.view[position : position + codes.MAGIC], signed=True)
        return length if may_be_cut(base, file.size, length) else 0

    def last_timestamp(self, position: int) -> int:
        """Store time of the last intact record in front of a position."""
        lowest = max(0, position - LOOK_BACK_BYTES)
        at = max(min(position, self.file.size - codes.MINIMUM_SIZE), lowest)
        at = find_intact_backwards(self.file.region, lowest, at, self.file.size, self.base_offset)
        return store_timestamp(self.file.region, at) if at >= 0 else self.last_before()

    def _size_at(self, position: int) -> int:
        """Size of the record of sound shape at a position, or behind DLedger's heads there, or a negative code."""
        start = self._record_start(position)
        return check_shape(self.file.region, start, self.file.size, self.base_offset + start)

    def _record_start(self, position: int) -> int:
        """Position behind the heads of DLedger entries at a position."""
        return record_start(self.file.region, position, self.file.size, self.base_offset + position)

    def _is_intact(self, position: int) -> bool:
        return check_intact(self.file.region, position, self.file.size, self.base_offset + position) > 0


def is_blank(file: MappedFile, position: int, length: int) -> bool:
    """Whether the BLANK that closes a segment of so many bytes starts at a position."""
    is_there = 0 <= position <= file.size - BLANK_BYTES
    return is_there and closes_segment(file.region, position, length - position)


def last_store_timestamp(base_offset: int, file: MappedFile) -> int:
    """Store time (ms) of the last record of a whole segment, 0 if none is found near its end."""
    return EndSearch(base_offset, file).last_timestamp(file.size)


def code_at(base_offset: int, file: MappedFile, position: int, boundary: int) -> int:
    """Why no intact record starts at a position, as a code of :mod:`storage.kernels.records`; its size if one does.

    0 for the BLANK that leads to the physical offset ``boundary``. At least eight bytes must follow the position.
    """
    size = check_step(file.region, position, file.size, base_offset + position, boundary)
    if size <= 0:
        return size
    start = record_start(file.region, position, position + size, base_offset + position)
    if start == position + size:  # an entry of DLedger's without a record
        return size
    return check_intact(file.region, start, file.size, base_offset + start)


@dataclass(frozen=True, slots=True)
class TornEnd:
    """The log ends at ``physical_offset`` because of bytes that are no intact record, ``code`` saying why."""

    physical_offset: int
    code: int

    def sentence(self) -> str:
        """Describe the end for an operator, in one clause."""
        return (
            f"the log ends at physical offset {self.physical_offset}, where a record is damaged or cut short: "
            f"{reason_of(self.code)}"
        )


def look_behind_end(base_offset: int, file: MappedFile, end: int, boundary: int) -> TornEnd | None:
    """Examine what follows position ``end`` of a log's last segment; None where nothing, or its BLANK, does.

    After a crash a record that was being written lies there; after a log was cut and written on, the remainder of old
    records.
    ``boundary`` is the physical offset at which the next segment would start.
    """
    head = bytes(file.slice(end, end + 8))
    if len(head) < 8 or not any(head) or is_blank(file, end, boundary - base_offset):
        return None
    code = code_at(base_offset, file, end, boundary)
    return None if code > 0 else TornEnd(base_offset + end, code)  # else written since the end was looked for
