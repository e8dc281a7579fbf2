"""An export into a directory that all machines see under one path.

Attempts write below DIR/.rocketlens-work, and get their names together when all of them are complete. The directory is
held meanwhile: nothing is written where its name leads later.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec

from spark_jobs.export.export_part import ExportedPart, ExportTask, take_parts
from spark_jobs.export.export_place import leave_place, take_place
from spark_jobs.export.export_request import ExportRequest
from spark_jobs.places.place_names import MANIFEST, PART, WORK
from spark_jobs.run.work_directory import WorkDirectory, write_synced
from storage.files.attempt_names import written_beside
from storage.files.direct_writer import fsync_directory
from storage.files.own_directories import HeldDirectory


class DirectoryPlace:
    """The directory of one export."""

    def __init__(self, held: HeldDirectory, work: WorkDirectory, made: Path | None) -> None:
        """See :meth:`open`."""
        self.work = work
        self._held, self._made = held, made
        self._out = held.path

    @classmethod
    def open(cls, request: ExportRequest) -> Self:
        """Take the directory, or make it; raises ConfigError if that is impossible."""
        out = Path(request.out)
        held, made = take_place(out, fresh=request.fresh)
        shared = request.works_elsewhere
        identity = {"command": "export", **request.identity()}
        work = WorkDirectory.open(out / WORK, identity, fresh=request.fresh, shared=shared)
        if shared:
            held.path = out
        return cls(held, work, made)

    @property
    def has_discarded(self) -> bool:
        """Whether what another export had left unfinished was deleted."""
        return self.work.has_discarded

    def assign(self, task: ExportTask) -> ExportTask:
        """A task that writes here."""
        return msgspec.structs.replace(task, work=str(self.work.root), out=str(self._out))

    def is_done(self, task: ExportTask) -> bool:
        """Whether an earlier run has finished a task."""
        return self.work.done(task.name) is not None

    def begin(self) -> None:
        """Spark is there: what was finished before is so no more."""
        (self._out / MANIFEST).unlink(missing_ok=True)

    def commit(self, parts: Sequence[ExportedPart], manifest: dict[str, Any]) -> None:
        """Bring the parts to their places, then write the manifest."""
        take_parts(self.work, self._out, parts)
        self._remove_others({part["name"] for part in parts})
        with written_beside(self._out / MANIFEST, self.work.partial) as beside:  # a kill here leaves nothing in `out`
            write_synced(beside, msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")
        fsync_directory(self._out)
        self.work.remove()

    def undo(self) -> None:
        """Nothing is there to go on from: leave everything as it was."""
        self.work.remove()
        leave_place(self._held.name, self._made)

    @contextlib.contextmanager
    def named_errors(self) -> Iterator[None]:
        """Let errors of a block call the directory by its name."""
        with self._held.named_errors(), self.work.named_errors():
            yield

    def close(self) -> None:
        """Let another run work here."""
        self.work.close()
        self._held.close()

    def _remove_others(self, names: Iterable[str]) -> None:
        """Delete parts of other segments or formats, which a run that was never finished left."""
        for name in os.listdir(self._out):
            if PART.fullmatch(name) and name not in names:
                (self._out / name).unlink()
