"""Count what takes the disk by tasks of an engine, one a segment, with the same counting as in one process.

Tallies come back in waves and are added up at once, so that the driver holds those of one wave.
"""

from collections.abc import Callable, Iterator, Sequence

from spark_jobs.run.engine import EngineOptions
from spark_jobs.search._waves import answers_in_waves
from spark_jobs.search.search import engine_for
from storage.space.scan_space import SegmentPart, tally_segment
from storage.space.tally import Tally


def tally_by_tasks(
    parts: Sequence[SegmentPart], *, engine: EngineOptions, notify: Callable[[str], None] | None = None
) -> Iterator[Tally]:
    """The tally of each segment, by the tasks of an engine, for whom the log has the same paths.

    Raises SparkFailed where Spark does not start, TaskFailed where a segment cannot be read there.
    """
    with engine_for("space", engine, notify, tally_segment.__module__) as opened:
        yield from answers_in_waves(opened, "space", parts, tally_segment)
