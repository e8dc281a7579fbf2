"""Which records an index file lacks although they lie between its first and its last entry.

A broker indexes nothing below its last entry's offset, so after a crash that cut the log under the index, what is
written anew there is in no index; the same goes for what was dispatched while the index was off, or skipped behind a
damaged record. The newest part of the log, where crashes leave such things, is therefore held against the entries
record by record; further back only entries far apart (:data:`storage.kernels.structure.GAP_BYTES`) tell of a gap.
"""

from bisect import bisect_left

import numpy as np

from storage.commit_log import CommitLog, Segment
from storage.index_file import MAXIMUM_GAPS, IndexFile, IndexShape
from storage.kernels.coverage import AT_DAMAGE, AT_RECORD, find_record_by_entries
from storage.kernels.lookup import INDEX_HEADER, SLOT_BYTES
from storage.kernels.scan import MAXIMUM_PIECES, find_record

COMPARED_BYTES = 128 * 1024 * 1024
"""Bytes at the end of the log that are compared record by record; about 0.1 s of a start that finds no cache."""

Gap = tuple[int, int]
"""Physical offsets: the first record that lacks an entry, and the first behind it that lacks none."""


def find_gaps(index_file: IndexFile, commit_log: CommitLog, has_tags: bool) -> tuple[Gap, ...]:
    """Gaps of a file whose entries never fall in physical offset, ascending. Waits for the disk."""
    shape = index_file.shape
    start = max(shape.minimum, commit_log.minimum, commit_log.end - COMPARED_BYTES)
    number = first_entry_from(index_file, start)
    if number > shape.entries or start >= commit_log.end:
        return shape.gaps
    if start > commit_log.minimum or start == shape.minimum:
        start = index_file.entry(number).physical_offset
    comparison = _Comparison(index_file, commit_log, has_tags)
    if start == shape.minimum:  # the first record may have keys in the file before, and is always scanned
        start += max(commit_log.check(start), 1)
        number = first_entry_from(index_file, start)
    found = comparison.run(start, min(shape.maximum, commit_log.end), number)
    gaps = [gap for gap in shape.gaps if gap[1] <= start] + found
    if shape.maximum >= commit_log.end:  # the log was cut under the index
        last = index_file.entry(first_entry_from(index_file, commit_log.end) - 1).physical_offset
        gaps.append((max(last, gaps[-1][1] if gaps else last), shape.maximum))
    return tuple(gaps)


def find_new_gaps(index_file: IndexFile, before: IndexShape, commit_log: CommitLog, has_tags: bool) -> tuple[Gap, ...]:
    """Gaps of a file of which fewer entries were known ``before``, all of them in the log. Waits for the disk."""
    gaps = list(before.gaps)
    start, stop = max(before.maximum, commit_log.minimum), index_file.shape.maximum
    if gaps and gaps[-1][1] == before.maximum:  # perhaps because the log was not known as far as the file
        start = max(gaps.pop()[0], commit_log.minimum)
    if start == before.minimum:  # the first record may have keys in the file before, and is always scanned
        start += max(commit_log.check(start), 1)
    gaps += _Comparison(index_file, commit_log, has_tags).run(start, stop, first_entry_from(index_file, start))
    if len(gaps) > MAXIMUM_GAPS:  # enough: what is behind counts as one
        gaps[MAXIMUM_GAPS:] = [(gaps[MAXIMUM_GAPS][0], stop)]
    return tuple(gaps)


def first_entry_from(index_file: IndexFile, physical_offset: int) -> int:
    """Number of the first entry that is not below an offset; one more than there are if all are."""
    numbers = range(1, index_file.shape.entries + 1)
    return bisect_left(numbers, physical_offset, key=lambda number: index_file.entry(number).physical_offset) + 1


class _Comparison:
    """One pass over the log beside the entries of a file."""

    def __init__(self, index_file: IndexFile, commit_log: CommitLog, has_tags: bool) -> None:
        self._log = commit_log
        self._entries = index_file.file.address + INDEX_HEADER + SLOT_BYTES * index_file.shape.slots
        self._count = index_file.shape.entries
        self._maximum = index_file.shape.maximum
        self._has_tags = has_tags
        self._hashes = np.empty(MAXIMUM_PIECES, dtype=np.int32)
        self._offsets = np.empty(MAXIMUM_PIECES, dtype=np.int64)
        self._result = np.zeros(2, dtype=np.int64)
        self._open: int | None = None
        self._gaps: list[Gap] = []

    def run(self, start: int, stop: int, number: int) -> list[Gap]:
        """Gaps among the records that start in [start, stop); ``number`` is the first entry not below ``start``."""
        self._result[1] = number
        for segment in self._log.segments:
            if segment.end > start and segment.base_offset < stop and len(self._gaps) < MAXIMUM_GAPS:
                self._run_segment(segment, max(start, segment.base_offset), min(stop, segment.end))
        if self._open is not None:
            self._gaps.append((self._open, self._maximum))
        elif len(self._gaps) >= MAXIMUM_GAPS:  # enough: what is behind counts as one
            self._gaps.append((self._gaps[-1][1], self._maximum))
        return self._gaps

    def _run_segment(self, segment: Segment, start: int, stop: int) -> None:
        address, base = segment.file.address, segment.base_offset
        position, limit = start - base, stop - base
        while position < limit and len(self._gaps) < MAXIMUM_GAPS:
            position = int(
                find_record_by_entries(
                    address, position, limit, segment.valid_length, base, self._entries, self._count, self._has_tags,
                    self._open is not None, self._hashes, self._offsets, self._result,
                )
            )  # fmt: skip
            if self._result[0] == AT_DAMAGE:
                position = int(find_record(address, position + 1, segment.valid_length, base))
            elif self._result[0] != AT_RECORD:
                return
            elif self._open is None:
                self._open = base + position
            else:
                self._gaps.append((self._open, base + position))
                self._open = None
