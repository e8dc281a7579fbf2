"""Count what takes the disk on Spark: a task a segment, with the same counting as on one machine.

Tallies come back in waves and are added up at once, so that the driver holds those of one wave.
"""

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from spark_jobs.run.session import run_tasks, spark_context
from spark_jobs.search.search import SparkTarget
from spark_jobs.search.waves import WAVES_OF
from storage.space.scan_space import SegmentPart, tally_segment
from storage.space.tally import Tally


def tally_on_spark(parts: Sequence[SegmentPart], *, spark: SparkTarget) -> Iterator[Tally]:
    """The tally of each segment, by the workers of a Spark master, who see the log under the same paths.

    Raises SparkFailed where Spark does not start, TaskFailed where a segment cannot be read there.
    """
    with contextlib.ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rocketlens-space-")))
        context = stack.enter_context(spark_context("space", spark.master, work, spark.settings, warm=__name__))
        at_once = WAVES_OF * context.defaultParallelism
        for first in range(0, len(parts), at_once):
            yield from run_tasks(context, "space", list(parts[first : first + at_once]), tally_segment)
