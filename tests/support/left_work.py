"""What jobs have left in their work directories."""

import contextlib
from pathlib import Path

from spark_jobs.run.work_directory import WorkDirectory
from storage.files.own_directories import HeldDirectory


def left_in(base: Path) -> WorkDirectory | None:
    """The directory that the last run left below `base`, if it did."""
    with contextlib.suppress(FileNotFoundError):
        return WorkDirectory.left_in(HeldDirectory.own(base, make=False))
    return None
