"""The task that exports one segment: its messages into one file, or one object behind a URL."""

import contextlib
import hashlib
import os
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, NotRequired, TypedDict, cast

import msgspec

from spark_jobs.export.export_formats import FORMATS
from spark_jobs.places.hashed_file import HashedFile
from spark_jobs.places.placed_run import PlacedAttempt, PlacedRecord, PlacedRun, run_placed
from spark_jobs.read.log_ranges import LogRange
from spark_jobs.read.read_range import RangeReader
from spark_jobs.run.attempt import Attempt, AttemptRecord, Notify, run_attempt
from spark_jobs.run.work_directory import WorkDirectory
from storage.columns.body_content import BodyContent
from storage.columns.mask import read_mask
from storage.columns.wanted import Wanted
from storage.files.direct_writer import fsync_directory

PHASE: Final = "export"
MOST_PROBLEMS: Final = 1000
"""Places of damage of one segment that are listed; more are counted."""


class ExportTask(msgspec.Struct, frozen=True):
    """One segment and what to make of it; `name` differs for each state of the segment and each set of options.

    Behind a URL there is a `placed` run to write in, and `found` are attempts that earlier runs have finished.
    """

    name: str
    work: str
    out: str
    range: LogRange
    wanted: Wanted
    columns: tuple[str, ...]
    format: str
    style: str
    masked: tuple[str, ...]
    content: BodyContent | None = None
    placed: PlacedRun | None = None
    found: tuple[str, ...] = ()

    @property
    def part(self) -> str:
        """The name of the file, in which a queue of a tier is a hash: a topic may have any name."""
        queue = self.range.queue
        hashed = f"-{hashlib.sha256(queue.encode()).hexdigest()[:16]}" if queue else ""
        return f"part-{self.range.base_offset:020d}{hashed}.{self.format}"


class PartProblem(TypedDict):
    """The fields of a :class:`spark_jobs.read.log_ranges.Problem`."""

    path: str
    physical_offset: int
    length: int
    reason: str


class ExportedPart(AttemptRecord):
    """A part: what the manifest says of it, and, from `log_bytes` on, what only the report does.

    `queue` is `TOPIC/QUEUE` where the part has messages of a tier's queue.
    """

    name: str
    records: int
    bytes: int
    sha256: str
    first_physical_offset: int
    last_physical_offset: int
    queue: NotRequired[str]
    log_bytes: int
    hidden_whole: NotRequired[int]
    problems: list[PartProblem]
    more_problems: int
    bodies: list[int]


def export_part(task: ExportTask) -> ExportedPart:
    """Export one segment: what the manifest says of it, and what only the report does.

    No file is made where there is no message. `seconds` are those that it took now. The driver has to bring a file to
    its place, by :func:`take_parts`; an object stays where it is.
    """
    began = time.monotonic()
    record: ExportedPart
    if task.placed is None:
        record = run_attempt(task.work, task.name, partial(_export, task), partial(_is_there, task))
    else:
        record = cast("ExportedPart", run_placed(task.placed, task.name, task.found, partial(_export_object, task)))
    record["seconds"] = time.monotonic() - began
    return record


def take_parts(work: WorkDirectory, out: Path, parts: Iterable[ExportedPart]) -> None:
    """Move the files of the valid attempts to their final names, unless they are there already."""
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
    with HashedFile.at(attempt.partial) as file:
        record = _write(task, file, notify)
        file.finish(os.fsync)
    if not record["records"]:
        attempt.partial.unlink()
    return record


def _export_object(task: ExportTask, attempt: PlacedAttempt) -> PlacedRecord:
    with reported(task.work, attempt) as notify, attempt.writing(task.part) as (file, commit):
        record = _write(task, file, notify)
        if record["records"]:
            commit()
            record["name"] = attempt.objects[0].name
    return cast("PlacedRecord", record)


@contextlib.contextmanager
def reported(work: str, attempt: PlacedAttempt) -> Iterator[Notify]:
    """Report how far the attempt is where the driver's directory is seen, which it need not be."""
    try:
        progress = WorkDirectory(Path(work)).report(os.path.basename(attempt.directory))
    except OSError:
        yield lambda *_: None
        return
    with contextlib.closing(progress):
        yield progress.update


def _write(task: ExportTask, file: HashedFile, notify: Notify) -> ExportedPart:
    read = task.columns if "physical_offset" in task.columns else (*task.columns, "physical_offset")
    mask = read_mask(task.masked) if task.masked else None
    reader = RangeReader(task.range, task.wanted, read if mask is None else mask.reading(read), content=task.content)
    first, last = -1, -1
    writer = FORMATS[task.format](cast(Any, file), task.columns, task.style)
    for columns in reader.read():
        offsets = cast(Any, columns["physical_offset"])
        first, last = int(offsets[0]) if first < 0 else first, int(offsets[-1])
        if "physical_offset" not in task.columns:
            del columns["physical_offset"]
        writer.write(columns if mask is None else mask.apply(columns, task.columns))
        notify(last - task.range.base_offset - task.range.start, reader.messages)
    writer.close()
    notify(task.range.size, reader.messages)
    problems = [msgspec.to_builtins(problem) for problem in reader.problems[:MOST_PROBLEMS]]
    part: ExportedPart = {
        "name": task.part,
        "records": reader.messages,
        "bytes": file.size,
        "sha256": file.sha256,
        "first_physical_offset": first,
        "last_physical_offset": last,
        "log_bytes": task.range.size,
        "hidden_whole": 0 if mask is None else mask.hidden_whole,
        "problems": problems,
        "more_problems": max(len(reader.problems) - MOST_PROBLEMS, 0),
        "bodies": list(reader.bodies),
    }
    if task.range.queue:
        part["queue"] = task.range.queue
    return part
