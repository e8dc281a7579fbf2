"""How much of a log one micro-batch of a stream may hold: segments, bytes of log, or records; the least counts.

A batch ends where a record begins, and has at least one record, so that a stream always comes to its end. A limit of
segments costs a look at names. For one of bytes the driver reads, of one segment, what the batch will hold of it; for
one of records, all that the batch will hold.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self, cast

import numpy as np
import numpy.typing as npt

from spark_jobs.read.log_ranges import LogRange, LogRanges
from spark_jobs.read.read_range import RangeReader
from spark_jobs.read.source_options import DataSourceOptions
from storage.columns.wanted import Wanted

PLACE = "physical_offset"


@dataclass(frozen=True)
class BatchLimits:
    """None is no limit; `wanted` are the records that count."""

    segments: int | None
    log_bytes: int | None
    records: int | None
    wanted: Wanted

    @classmethod
    def of(cls, options: DataSourceOptions) -> Self:
        """The limits that the options of a stream name."""
        return cls(options.most_segments, options.most_bytes, options.most_records, options.wanted)

    def cut(self, found: LogRanges, at: int, end: int) -> int:
        """Physical offset at which the batch ends that begins at `at`, at most `end`."""
        if self.segments is not None:
            following = [each.base_offset for each in found.ranges if each.base_offset > at]
            if self.segments <= len(following):
                end = min(end, following[self.segments - 1])
        if self.log_bytes is not None and at + self.log_bytes < end:
            end = _record_near(found.within(at, end), at, at + self.log_bytes, end)
        if self.records is not None:
            end = _record_behind(found.within(at, end), self.wanted, self.records, end)
        return end


def _record_near(ranges: tuple[LogRange, ...], at: int, limit: int, end: int) -> int:
    """Return the last place up to `limit` where a record begins, else the first one behind it; `end` if there is none.

    Segments that lie wholly below the limit are passed over.
    """
    last = at
    for each in ranges:
        start, stop = each.base_offset + each.start, each.base_offset + each.stop
        if at < start <= limit:
            last = start
        if stop <= limit:
            continue
        for places in _places(each, Wanted()):
            for place in places.tolist():
                if place > limit:
                    return int(place if last == at else last)
                last = max(last, place)
    return last if last > at else end


def _record_behind(ranges: tuple[LogRange, ...], wanted: Wanted, count: int, end: int) -> int:
    """Return where the record begins that is wanted and comes after `count` others; `end` if there are not as many."""
    for each in ranges:
        for places in _places(each, wanted):
            if count < len(places):
                return int(places[count])
            count -= len(places)
    return end


def _places(range_: LogRange, wanted: Wanted) -> Iterator[npt.NDArray[np.int64]]:
    """Physical offsets of the records that are wanted, block by block."""
    for columns in RangeReader(range_, wanted, (PLACE,)).read():
        yield cast("npt.NDArray[np.int64]", columns[PLACE])
