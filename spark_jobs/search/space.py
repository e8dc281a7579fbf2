"""Count what takes the disk on Spark: a task a segment, with the same counting as on one machine.

Tallies come back in waves and are added up at once, so that the driver holds those of one wave.
"""

from collections.abc import Iterator, Sequence

from spark_jobs.search.search import SparkTarget, spark_for
from spark_jobs.search.waves import answers_in_waves
from storage.space.scan_space import SegmentPart, tally_segment
from storage.space.tally import Tally


def tally_on_spark(parts: Sequence[SegmentPart], *, spark: SparkTarget) -> Iterator[Tally]:
    """The tally of each segment, by the workers of a Spark master, who see the log under the same paths.

    Raises SparkFailed where Spark does not start, TaskFailed where a segment cannot be read there.
    """
    with spark_for("space", spark) as context:
        yield from answers_in_waves(context, "space", parts, tally_segment)
