"""What one look at the end of a log has found, put together segment by segment."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from storage.log.commit_log import CommitLog, Segment
from storage.log.damaged_ranges import DamagedRange
from storage.log.log_place import RecordPlace
from storage.log.segment_end import last_store_timestamp


class LogGrowth(NamedTuple):
    """The log as it has become; ``records`` are some of the new ones, one at least of each queue that has any.

    ``last`` is the physical offset of the last new record, −1 for none. ``more``: there may be more to walk over.
    """

    commit_log: CommitLog
    records: tuple[memoryview, ...]
    last: int
    more: bool


class NewRecords:
    """Collects complete records; a segment that has none yet counts once records are found behind it."""

    def __init__(self, log: CommitLog) -> None:
        self.log = log
        self._segments = list(log.segments)
        self._damage: list[DamagedRange] = []
        self._passed: list[Segment] = []
        self.records: list[memoryview] = []
        self._last = -1

    def accept(self, place: RecordPlace, end: int, last: int, records: Sequence[int]) -> None:
        """Count the records of a segment up to a position; ``last`` is that of the last of them, −1 for none."""
        if end == place.position:
            return
        if self._segments[-1].base_offset == place.base_offset:
            self._segments[-1] = replace(self._segments[-1], file=place.file, valid_length=end)
        else:
            self._segments += [*self._passed, Segment(place.base_offset, place.file, end)]
            self._passed = []
        self.records += [place.file.view[position:] for position in records]
        if last >= 0:
            self._last = place.base_offset + last

    def close(self, place: RecordPlace) -> None:
        """Count the whole of a segment that has a BLANK; of one that has nothing else, if records follow."""
        if self._segments[-1].base_offset == place.base_offset:
            self._segments[-1] = replace(self._segments[-1], file=place.file, valid_length=place.file.size)
        else:
            self._passed.append(Segment(place.base_offset, place.file, place.file.size))

    def pass_over(self, place: RecordPlace, following: int, code: int) -> None:
        """Leave out damage between a place and a position in its segment."""
        self._damage.append(DamagedRange(place.physical_offset, place.base_offset + following, code))

    def last_timestamp(self) -> int:
        """Store time (ms) of the last record of the segment before."""
        segment = self._segments[-1]
        return last_store_timestamp(segment.base_offset, segment.file)

    def growth(self, *, more: bool) -> LogGrowth | None:
        """Return the growth, None if nothing was added."""
        if self._segments[-1].end == self.log.end and len(self._segments) == len(self.log.segments):
            return None
        damage = tuple(each for each in self._damage if each.stop <= self._segments[-1].end)
        return LogGrowth(self.log.grown(self._segments, damage), tuple(self.records), self._last, more)
