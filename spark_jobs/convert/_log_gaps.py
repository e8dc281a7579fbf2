"""What of a log can be read, by what a scan says of its segments, and what size these have."""

from collections.abc import Sequence
from typing import NamedTuple

from protocol.errors import StoreError
from spark_jobs.build.place_queues import log_extent
from spark_jobs.convert.rescue_request import RescueRequest
from spark_jobs.scan.log_end import LogEnd
from spark_jobs.scan.segment_walk import WalkSummary
from spark_jobs.scan.source import StoreSource
from storage.build.existing_queue import ReadableLog
from storage.log.segment_list import list_segments, segment_size


class Gaps(NamedTuple):
    """What of a log can be read, and the size of its segments; by base offset where damage is that was not listed."""

    log: ReadableLog
    size: int
    unlisted: dict[int, int]

    def base_of(self, physical_offset: int) -> int:
        """Where the segment starts, or would start, that holds a byte."""
        return self.log.minimum + (physical_offset - self.log.minimum) // self.size * self.size


def find_gaps(request: RescueRequest, source: StoreSource, summaries: Sequence[WalkSummary], end: LogEnd) -> Gaps:
    """What of a log that was read is damaged or missing; raises StoreError where segments are of no one size."""
    log = log_extent(source.segments[0].base_offset, end.end, end.damages)
    size = request.segment_size or segment_size([(place.base_offset, place.size) for place in source.segments])
    for place in source.segments:
        if place.base_offset < log.end and (place.base_offset - log.minimum) % size:
            raise StoreError(
                place.path,
                what=f"does not start a whole number of segments of {size} bytes behind the first: no broker starts "
                "on such a log. If a segment has another size, say it with --segment-size",
            )
    unlisted = {
        summary["base"]: max(_behind(summary), summary["base"])
        for summary in summaries
        if summary["more_breaks"] and summary["base"] < log.end
    }
    return Gaps(log, size, unlisted)


def _behind(summary: WalkSummary) -> int:
    """The physical offset behind the last break of a segment that is listed."""
    _, following, _, _ = summary["breaks"][-1]
    return following


def first_file(source: StoreSource) -> int:
    """The physical offset at which the first file of a log begins, which may be empty."""
    return list_segments(source.layout.commit_log_directories, [])[0][0]
