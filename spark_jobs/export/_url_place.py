"""An export behind a URL: objects under the names of attempts, and a manifest that is created once.

No disk is shared: what attempts have finished is found by their records, which lie beside the objects.
"""

import contextlib
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import msgspec

from spark_jobs.export.export_part import ExportedPart, ExportTask
from spark_jobs.export.export_request import ExportRequest
from spark_jobs.places.placed_run import Driver
from spark_jobs.run.work_directory import WorkDirectory


class UrlPlace:
    """The objects of one export; `work` is a directory of this machine, for Spark's log and how far tasks are."""

    has_discarded = False
    """Whether what another export had left unfinished was deleted; that stays until it is cleaned up."""

    def __init__(self, driver: Driver, base: Path, work: WorkDirectory) -> None:
        """See :meth:`open`."""
        self.work = work
        self._driver, self._base = driver, base

    @classmethod
    def open(cls, request: ExportRequest) -> Self:
        """Begin a run at the URL; raises ConfigError if that is impossible."""
        driver = Driver.start(request.out, request.out_storage or request.storage, "export", fresh=request.fresh)
        base = Path(tempfile.mkdtemp(prefix="rocketlens-export-"))
        return cls(driver, base, WorkDirectory.open(base, {"command": "export", **request.identity()}))

    def assign(self, task: ExportTask) -> ExportTask:
        """A task that writes here."""
        found = tuple(self._driver.found.get(task.name, ()))
        return msgspec.structs.replace(task, work=str(self.work.root), placed=self._driver.run, found=found)

    def is_done(self, task: ExportTask) -> bool:
        """Whether an earlier run has finished a task."""
        return bool(task.found)

    def begin(self) -> None:
        """Keep what was finished before until it is replaced."""

    def commit(self, parts: Sequence[ExportedPart], manifest: dict[str, Any]) -> None:
        """Create the manifest; raises StoreError where another run has been quicker."""
        self._driver.commit(manifest)

    def undo(self) -> None:
        """Remove what attempts of this run have finished: nobody goes on from it."""
        self._driver.undo()

    def named_errors(self) -> contextlib.AbstractContextManager[None]:
        """Let errors of a block be what they are."""
        return contextlib.nullcontext()

    def close(self) -> None:
        """Leave what attempts have finished for the next run, unless all is committed."""
        self._driver.leave()
        self.work.close()
        shutil.rmtree(self._base, ignore_errors=True)
