"""The task that exports one segment: its messages into one file, which has its name only when it is whole."""

import os
import time
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from spark_jobs.engine.work_directory import WorkDirectory
from spark_jobs.exporting.export_formats import FORMATS, HashedFile
from spark_jobs.reading.log_ranges import LogRange
from spark_jobs.reading.read_range import RangeReader
from storage.columns.mask import read_mask
from storage.columns.wanted import Wanted

PHASE: Final = "export"
MOST_PROBLEMS: Final = 1000
"""Places of damage of one segment that are listed; more are counted."""


class ExportTask(msgspec.Struct, frozen=True):
    """One segment and what to make of it; `name` tells this state of the segment from another."""

    name: str
    work: str
    out: str
    range: LogRange
    wanted: Wanted
    columns: tuple[str, ...]
    format: str
    masked: tuple[str, ...]

    @property
    def part(self) -> str:
        """The name of the file."""
        return f"part-{self.range.base_offset:020d}.{self.format}"


def export_part(task: ExportTask) -> dict[str, Any]:
    """Export one segment: what the manifest says of it, and what only the report does.

    No file is made where there is no message. `seconds` are those that it took now.
    """
    began = time.monotonic()
    work = WorkDirectory(Path(task.work))
    done = work.done(task.name)
    if done is not None and _is_there(task, done):
        return {**done, "seconds": 0.0}
    progress = work.report(task.name)
    partial = work.partial / task.part
    try:
        record = _write(task, partial, progress)
        if record["records"]:
            os.rename(partial, Path(task.out) / task.part)
            _sync_directory(Path(task.out))
        else:
            partial.unlink()
        return {**work.finish(task.name, record), "seconds": time.monotonic() - began}
    finally:
        progress.close()


def _is_there(task: ExportTask, done: dict[str, Any]) -> bool:
    try:
        return not done["records"] or os.stat(Path(task.out) / task.part).st_size == done["bytes"]
    except OSError:
        return False


def _write(task: ExportTask, path: Path, progress: Any) -> dict[str, Any]:
    read = task.columns if "physical_offset" in task.columns else (*task.columns, "physical_offset")
    reader = RangeReader(task.range, task.wanted, read)
    mask = read_mask(task.masked) if task.masked else None
    first, last = -1, -1
    with HashedFile(path) as file:
        writer = FORMATS[task.format](cast(Any, file), task.columns)
        for columns in reader.read():
            offsets = cast(Any, columns["physical_offset"])
            first, last = int(offsets[0]) if first < 0 else first, int(offsets[-1])
            if "physical_offset" not in task.columns:
                del columns["physical_offset"]
            writer.write(columns if mask is None else mask.apply(columns))
            progress.update(last - task.range.base_offset - task.range.start, reader.messages)
        writer.close()
        file.finish(os.fsync)
        progress.update(task.range.size, reader.messages)
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


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
