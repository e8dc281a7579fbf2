"""A work directory of one task alone, on a disk of the executor that runs it."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from spark_jobs.run.work_directory import WorkDirectory

SPARK_DIRECTORIES: Final = "SPARK_LOCAL_DIRS"
"""Where Spark has a Python worker know the directories of its executor; it deletes them when the executor ends."""


@contextlib.contextmanager
def local_work() -> Iterator[WorkDirectory]:
    """Make a directory, below one of Spark's own where there are any; it is gone afterwards.

    Raises OSError where the disk has no room, or is not there.
    """
    directories = [path for path in os.environ.get(SPARK_DIRECTORIES, "").split(",") if os.path.isdir(path)]
    below = directories[os.getpid() % len(directories)] if directories else None
    with tempfile.TemporaryDirectory(prefix="rocketlens-", dir=below) as root:
        work = WorkDirectory(Path(root))
        work.make()
        yield work
