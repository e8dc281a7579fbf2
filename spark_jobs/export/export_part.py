"""The task that exports one segment: its messages into one file, which the driver brings to its place when all are."""

import contextlib
import hashlib
import os
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final, TypedDict, cast

import msgspec

from spark_jobs.export.export_formats import FORMATS, HashedFile
from spark_jobs.read.log_ranges import LogRange
from spark_jobs.read.read_range import RangeReader
from spark_jobs.run.attempt import Attempt, AttemptRecord, Notify, run_attempt
from spark_jobs.run.work_directory import WorkDirectory
from storage.columns.mask import read_mask
from storage.columns.wanted import Wanted
from storage.files.direct_writer import fsync_directory

PHASE: Final = "export"
MOST_PROBLEMS: Final = 1000
"""Places of damage of one segment that are listed; more are counted."""


class ExportTask(msgspec.Struct, frozen=True):
    """One segment and what to make of it; `name` differs for each state of the segment."""

    name: str
    work: str
    out: str
    range: LogRange
    wanted: Wanted
    columns: tuple[str, ...]
    format: str
    compression: str
    masked: tuple[str, ...]

    @property
    def part(self) -> str:
        """The name of the file."""
        return f"part-{self.range.base_offset:020d}.{self.format}"


class PartProblem(TypedDict):
    """The fields of a :class:`spark_jobs.read.log_ranges.Problem`."""

    path: str
    physical_offset: int
    length: int
    reason: str


class ExportedPart(AttemptRecord):
    """A part: what the manifest says of it, and, from `log_bytes` on, what only the report does."""

    name: str
    records: int
    bytes: int
    sha256: str
    first_physical_offset: int
    last_physical_offset: int
    log_bytes: int
    problems: list[PartProblem]
    more_problems: int


def export_part(task: ExportTask) -> ExportedPart:
    """Export one segment: what the manifest says of it, and what only the report does.

    No file is made where there is no message. `seconds` are those that it took now. The driver has to bring the part
    to its place, by :func:`take_parts`.
    """
    began = time.monotonic()
    record: ExportedPart = run_attempt(task.work, task.name, partial(_export, task), partial(_is_there, task))
    record["seconds"] = time.monotonic() - began
    return record


def take_parts(work: WorkDirectory, out: Path, parts: Iterable[ExportedPart]) -> None:
    """Bring the files of the attempts that count to their places, as far as they are not there."""
    for part in parts:
        with contextlib.suppress(FileNotFoundError):
            os.replace(work.partial / part["attempt"], out / part["name"])
    fsync_directory(out)


def _is_there(task: ExportTask, work: WorkDirectory, done: ExportedPart) -> bool:
    """Whether the part is what it was, where the attempt left it or where it was brought."""
    if not done["records"]:
        return True
    made = work.partial / done["attempt"]
    try:
        if made.exists():
            return bool(made.stat().st_size == done["bytes"])
        # It may be the file of another attempt: the manifest has its checksum.
        with (Path(task.out) / task.part).open("rb") as file:
            return bool(hashlib.file_digest(file, "sha256").hexdigest() == done["sha256"])
    except OSError:
        return False


def _export(task: ExportTask, attempt: Attempt, notify: Notify) -> ExportedPart:
    record = _write(task, attempt.partial, notify)
    if not record["records"]:
        attempt.partial.unlink()
    return record


def _write(task: ExportTask, path: Path, notify: Notify) -> ExportedPart:
    read = task.columns if "physical_offset" in task.columns else (*task.columns, "physical_offset")
    reader = RangeReader(task.range, task.wanted, read)
    mask = read_mask(task.masked) if task.masked else None
    first, last = -1, -1
    with HashedFile(path) as file:
        writer = FORMATS[task.format](cast(Any, file), task.columns, task.compression)
        for columns in reader.read():
            offsets = cast(Any, columns["physical_offset"])
            first, last = int(offsets[0]) if first < 0 else first, int(offsets[-1])
            if "physical_offset" not in task.columns:
                del columns["physical_offset"]
            writer.write(columns if mask is None else mask.apply(columns))
            notify(last - task.range.base_offset - task.range.start, reader.messages)
        writer.close()
        file.finish(os.fsync)
        notify(task.range.size, reader.messages)
        problems = [msgspec.to_builtins(problem) for problem in reader.problems[:MOST_PROBLEMS]]
        return {
            "name": task.part,
            "records": reader.messages,
            "bytes": file.size,
            "sha256": file.sha256,
            "first_physical_offset": first,
            "last_physical_offset": last,
            "log_bytes": task.range.size,
            "problems": problems,
            "more_problems": max(len(reader.problems) - MOST_PROBLEMS, 0),
        }
