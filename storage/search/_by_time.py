"""Which part of the log holds the records of some time: found by halving it, since records are stored in order of time.

Clocks are set back at times, so an hour more is searched on both sides. A clock that was wrong by more than that is not
noticed here; a note of the search says so, and an exhaustive search reads everything.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from storage.kernels.records import store_timestamp
from storage.log.commit_log import CommitLog
from storage.search.chunk import first_intact

SLACK_MS: Final = 3_600_000
RESOLUTION: Final = 16 << 20
"""Bytes of log below which halving it is not worth a look at a record."""


FindRecord: TypeAlias = Callable[[CommitLog, int], tuple[int, int] | None]
"""Finds a record as :func:`record_from` does."""


def offsets_of_times(commit_log: CommitLog, begin: int, end: int, find_record: FindRecord) -> tuple[int, int]:
    """Physical offsets [start, stop) that hold the records stored from ``begin`` to ``end`` (ms). Waits."""
    earliest, latest = begin - SLACK_MS, end + SLACK_MS
    start, _ = _halve(commit_log, lambda timestamp: timestamp < earliest, find_record)
    _, stop = _halve(commit_log, lambda timestamp: timestamp <= latest, find_record)
    return start, max(start, stop)


def _halve(commit_log: CommitLog, is_before: Callable[[int], bool], find_record: FindRecord) -> tuple[int, int]:
    """Physical offsets as near to one another as is worth while, the first before an edge and the second behind it."""
    low, high = commit_log.minimum, commit_log.end
    while high - low > RESOLUTION:
        middle = (low + high) // 2
        found = find_record(commit_log, middle)
        if found is not None and found[0] < high and is_before(found[1]):
            low = found[0]
        else:
            high = middle
    return low, high


def record_from(commit_log: CommitLog, physical_offset: int) -> tuple[int, int] | None:
    """Physical offset and store time (ms) of the first intact record at or behind an offset."""
    for segment in commit_log.segments:
        if segment.end > physical_offset:
            found = first_intact(segment, max(physical_offset, segment.base_offset), segment.end)
            if found is not None:
                return found, store_timestamp(segment.file.region, found - segment.base_offset)
    return None
