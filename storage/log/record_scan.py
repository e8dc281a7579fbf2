"""Walks over ranges of the log with a kernel, segment by segment, and steps over what is damaged.

What is done with the records is up to who derives from :class:`RecordScan`.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final, NamedTuple

from storage.kernels.records import MINIMUM_SIZE, KeptChecksums, check_shape, find_record, find_record_backwards
from storage.log.commit_log import CommitLog, Segment
from storage.ranges import Range

LONGEST_RECORD: Final = 128 * 1024 * 1024
"""Bytes of the longest record that is believed: what is held in memory of a segment is bounded by it."""

SEARCH_BACK_BYTES: Final = 4 * 1024 * 1024
"""How far back a record is looked for that a range may begin in: no record of a standard broker is longer."""


class Stop(NamedTuple):
    """Where in a segment a step ended: there is damage, or room was used up and the next step goes on; else neither."""

    position: int
    is_damage: bool = False
    is_full: bool = False


class RecordScan(ABC):
    """One pass over ranges of a log. ``skipped`` are the damaged ranges that it stepped over."""

    def __init__(self, commit_log: CommitLog) -> None:
        self._log = commit_log
        self._sums = KeptChecksums()
        self._start = 0
        self.skipped: list[Range] = []

    @abstractmethod
    def step(self, segment: Segment, position: int, limit: int) -> Stop:
        """Process the records of a segment that start in [position, limit)."""

    def run(self, start: int, stop: int) -> int:
        """Scan records that start in [start, stop); where the first record behind them starts (≥ stop)."""
        at = self._start = start
        for segment in _overlapping(self._log.segments, start, stop):
            at = max(at, segment.base_offset)
            at = self._run_segment(segment, at, stop)
        return max(at, stop)

    def _run_segment(self, segment: Segment, at: int, stop: int) -> int:
        """Scan one segment from a record's start; where the scan stands at the segment's end or ``stop``."""
        base = segment.base_offset
        while at < stop and at < segment.end:
            ended = self.step(segment, at - base, min(segment.valid_length, stop - base))
            reached = base + ended.position
            if ended.is_full:
                at = reached
            elif ended.is_damage and reached < stop:
                at = end_of_record_around(segment, reached) if reached == self._start else reached
                if at == reached:
                    at = self._resynchronise(segment, reached + 1)
                    self.skipped.append((reached, at))
            else:
                return max(reached, stop) if reached >= stop else segment.end
        return at

    def _resynchronise(self, segment: Segment, at: int) -> int:
        """First intact record at or behind an offset where none starts."""
        base = segment.base_offset
        return base + find_record(segment.file.region, at - base, segment.valid_length, base, self._sums)


def end_of_record_around(segment: Segment, inside: int) -> int:
    """End of the record that an offset lies inside, which is where a range may begin: ``inside`` where there is none.

    An index file covers the log behind the first byte of its first record.
    """
    lowest = max(0, inside - segment.base_offset - SEARCH_BACK_BYTES)
    region, base, stop = segment.file.region, segment.base_offset, segment.valid_length
    # No record starts so near the end that its fixed part would reach beyond it, where nothing may be read.
    at = find_record_backwards(region, lowest, max(0, min(inside - base, stop - MINIMUM_SIZE + 1)), base)
    size = check_shape(region, at, stop, base + at) if at >= 0 else 0
    return max(base + at + size, inside)


def _overlapping(segments: Sequence[Segment], start: int, stop: int) -> list[Segment]:
    return [segment for segment in segments if segment.base_offset < stop and segment.end > start]
