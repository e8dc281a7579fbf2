"""Find records between the first and the last entry of an index file that have no entry in it.

A broker indexes nothing below its last entry's offset, so after a crash that cut the log under the index, what is
written anew there is in no index; the same goes for what was dispatched while the index was off, or skipped behind a
damaged record. The newest part of the log, where crashes leave such things, is therefore held against the entries
record by record; further back only entries far apart (:data:`storage.kernels.indexes.GAP_BYTES`) show a gap.

A compacted file has two parts: entries that lie slot by slot, of which those of the newest part of the log are brought
into its order here, and those that a broker has put behind them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from storage.arrays import np, npt
from storage.index._index_shape import MAXIMUM_GAPS, IndexShape, OffsetGap, limit_gaps
from storage.index.index_file import ENTRY, ENTRY_DTYPE, IndexEntry, IndexFile
from storage.kernels.indexes import ENTRY_BYTES
from storage.kernels.records import AT_DAMAGE, AT_RECORD, KeptChecksums, find_record, find_record_by_entries
from storage.log.commit_log import CommitLog, Segment
from storage.log.record_scan import LONGEST_RECORD
from storage.ranges import intersect

COMPARED_BYTES = 128 * 1024 * 1024
"""Bytes at the end of the log that are compared record by record; about 0.1 s of a start that finds no cache."""

ENTRIES_AT_ONCE = 1 << 20

Rows: TypeAlias = "npt.NDArray[np.void]"


def find_gaps(index_file: IndexFile, commit_log: CommitLog, has_tags: bool) -> tuple[OffsetGap, ...]:
    """Gaps of a file whose entries never fall in physical offset, or of a compacted one; ascending. Waits.

    A gap is two physical offsets: the first record that lacks an entry, and the first behind it that lacks none.
    """
    shape = index_file.shape
    gaps: list[OffsetGap] = []
    before: _SortedPart | None = None
    for part in _parts(index_file, _start_of_comparison(commit_log)):
        if before is not None:  # what a record between two parts has may be in both
            last = max(before.maximum, gaps[-1][1]) if gaps else before.maximum
            gaps.append((last, max(part.minimum, last)))
        gaps += _gaps_of(part, intersect(shape.gaps, [(part.minimum, part.maximum)]), commit_log, has_tags)
        before = part
    return limit_gaps(gaps, shape.maximum)


def find_new_gaps(
    index_file: IndexFile, before: IndexShape, commit_log: CommitLog, has_tags: bool
) -> tuple[OffsetGap, ...]:
    """Gaps of a file of which fewer entries were known ``before``, all of them in the log. Waits for the disk."""
    gaps = list(before.gaps)
    part = _last_part(index_file)
    start = before.maximum
    if gaps and gaps[-1][1] == before.maximum:  # perhaps because the log was not known as far as the file
        start = gaps.pop()[0]
    if before.entries == before.compacted:  # what the last record has may be in both parts
        gaps.append((start, part.minimum))
        start = part.minimum
    start = max(start, commit_log.minimum)
    if start == part.minimum:  # the first record may have keys in the file before, and is always scanned
        start += max(commit_log.check(start), 1)
    gaps += _Comparison(part, commit_log, has_tags).run(start, part.maximum, part.first_from(start))
    return limit_gaps(gaps, part.maximum)


@dataclass(frozen=True)
class _SortedPart:
    """Entries that never fall in physical offset; ``rows`` are their bytes, behind those of one that does not count.

    A copy in another order may lack those that no comparison comes to.
    """

    rows: memoryview
    minimum: int
    maximum: int

    @property
    def count(self) -> int:
        """The number of the last entry."""
        return len(self.rows) // ENTRY_BYTES - 1

    def offset(self, number: int) -> int:
        """Physical offset of an entry, the first being number 1."""
        return _offset_in(self.rows, number)

    def first_from(self, physical_offset: int) -> int:
        """Number of the first entry that is not below an offset; one more than there are if all are."""
        return bisect_left(range(1, self.count + 1), physical_offset, key=self.offset) + 1


def _parts(index_file: IndexFile, start: int) -> Iterator[_SortedPart]:
    """The parts of a file, of which entries below ``start``, but for the highest one, may be left out."""
    shape = index_file.shape
    if shape.compacted:
        yield _sorted_part(index_file, start)
    if shape.entries > shape.compacted:
        yield _last_part(index_file)


def _last_part(index_file: IndexFile) -> _SortedPart:
    """The entries that lie in the order of the log; there must be some."""
    shape = index_file.shape
    rows = index_file.rows(shape.compacted, shape.entries)
    minimum = _offset_in(rows, 1) if shape.compacted else shape.minimum
    return _SortedPart(rows, minimum, shape.maximum)


def _sorted_part(index_file: IndexFile, start: int) -> _SortedPart:
    """The entries that lie slot by slot, in the order of the log."""
    shape = index_file.shape
    if shape.entries == shape.compacted and shape.maximum < start:
        return _SortedPart(memoryview(bytes(ENTRY_BYTES)), shape.minimum, shape.maximum)
    kept: list[Rows] = []
    below: list[Rows] = []
    rows = np.frombuffer(index_file.rows(0, shape.compacted), ENTRY_DTYPE)
    for first in range(1, len(rows), ENTRIES_AT_ONCE):
        piece = rows[first : first + ENTRIES_AT_ONCE]
        is_below = piece["physical_offset"] < start
        kept.append(piece[~is_below])
        if is_below.any():
            below.append(_highest(piece[is_below]))
    chosen = np.concatenate([*([_highest(np.concatenate(below))] if below else []), *kept])
    order = np.argsort(chosen["physical_offset"].astype(np.int64), kind="stable")
    ordered = np.zeros(len(chosen) + 1, ENTRY_DTYPE)  # concatenating has left them in the machine's byte order
    ordered[1:] = chosen[order]
    return _SortedPart(ordered.view(np.uint8).data, shape.minimum, int(ordered["physical_offset"][-1]))


def _offset_in(rows: memoryview, number: int) -> int:
    """The physical offset of an entry among rows."""
    return IndexEntry(*ENTRY.unpack_from(rows, ENTRY_BYTES * number)).physical_offset


def _highest(rows: Rows) -> Rows:
    """The one of the highest physical offset."""
    place = int(rows["physical_offset"].argmax())
    return rows[place : place + 1]


def _start_of_comparison(commit_log: CommitLog) -> int:
    return max(commit_log.minimum, commit_log.end - COMPARED_BYTES)


def _gaps_of(part: _SortedPart, known: Iterable[OffsetGap], commit_log: CommitLog, has_tags: bool) -> list[OffsetGap]:
    """Gaps of a part, of which ``known`` ones are between entries far apart."""
    start = max(part.minimum, _start_of_comparison(commit_log))
    number = part.first_from(start)
    if number > part.count or start >= commit_log.end:
        return list(known)
    if start > commit_log.minimum or start == part.minimum:
        start = part.offset(number)
    gaps = [(gap_start, min(gap_stop, start)) for gap_start, gap_stop in known if gap_start < start]
    if start == part.minimum:  # the first record may have keys in the file before, and is always scanned
        start += max(commit_log.check(start), 1)
        number = part.first_from(start)
    gaps += _Comparison(part, commit_log, has_tags).run(start, min(part.maximum, commit_log.end), number)
    if part.maximum >= commit_log.end:  # the log was cut under the index
        last = part.offset(part.first_from(commit_log.end) - 1)
        gaps.append((max(last, gaps[-1][1] if gaps else last), part.maximum))
    return gaps


class _Comparison:
    """One pass over the log beside the entries of a part."""

    def __init__(self, part: _SortedPart, commit_log: CommitLog, has_tags: bool) -> None:
        self._log = commit_log
        self._rows = part.rows
        self._count = part.count
        self._maximum = part.maximum
        self._has_tags = has_tags
        self._number = 0
        self._open: int | None = None
        self._gaps: list[OffsetGap] = []

    def run(self, start: int, stop: int, number: int) -> list[OffsetGap]:
        """Gaps among the records that start in [start, stop); ``number`` is the first entry not below ``start``."""
        self._number = number
        for segment in self._log.segments:
            if segment.end > start and segment.base_offset < stop and len(self._gaps) < MAXIMUM_GAPS:
                self._run_segment(segment, max(start, segment.base_offset), min(stop, segment.end))
        if self._open is not None:
            self._gaps.append((self._open, self._maximum))
        elif len(self._gaps) >= MAXIMUM_GAPS:  # enough: what is behind counts as one
            self._gaps.append((self._gaps[-1][1], self._maximum))
        return self._gaps

    def _run_segment(self, segment: Segment, start: int, stop: int) -> None:
        base, readable = segment.base_offset, segment.valid_length
        position, limit, sums = start - base, stop - base, KeptChecksums()
        region = segment.file.region_of(position, limit + LONGEST_RECORD)
        while position < limit and len(self._gaps) < MAXIMUM_GAPS:
            found = find_record_by_entries(
                region, position, limit, readable, base, segment.boundary, self._rows, self._number, self._has_tags,
                self._open is not None,
            )  # fmt: skip
            position, self._number = found.position, found.number
            if found.reason == AT_DAMAGE:
                position = find_record(segment.file.region, position + 1, readable, base, sums)
            elif found.reason != AT_RECORD:
                return
            elif self._open is None:
                self._open = base + position
            else:
                self._gaps.append((self._open, base + position))
                self._open = None
