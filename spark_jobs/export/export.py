"""Export the messages of a store: a file for each segment that holds some, and a manifest, which is written last.

    OUT/part-BASE.FORMAT        the messages of the segment that starts at physical offset BASE
    OUT/_manifest.json          what is in the parts, with counts and checksums; without it the export is not finished
    OUT/.rocketlens-work/       what is half done; gone when the manifest is there

A run that was stopped goes on: parts that are finished are kept, as long as their segments stay what they were.
"""

import os
import time
import zlib
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from protocol.errors import RocketLensError
from spark_jobs.export.export_part import PHASE, ExportedPart, ExportTask, export_part, take_parts
from spark_jobs.export.export_place import MANIFEST, PART, WORK, leave_place, take_place
from spark_jobs.export.export_request import ExportDetails, ExportRequest
from spark_jobs.places.file_systems import is_url
from spark_jobs.read.log_ranges import LogRange, LogRanges, Problem, find_ranges
from spark_jobs.run.attempt import BOOKKEEPING, run_phase
from spark_jobs.run.launch import Launch
from spark_jobs.run.progress import JobProgress, Phase
from spark_jobs.run.report import Damage, Report
from spark_jobs.run.session import run_tasks, spark_context
from spark_jobs.run.work_directory import WorkDirectory, write_synced
from storage.columns.mask import read_mask
from storage.columns.names import KINDS, check_names
from storage.columns.wanted import Wanted
from storage.files.attempt_names import written_beside
from storage.files.direct_writer import fsync_directory
from storage.layout.store_config import StoreConfig
from storage.layout.store_layout import BATCH_CONSUME_QUEUE, CONSUME_QUEUE
from storage.queue.queue_store import directories

VERSION: Final = 1
REPORTED: Final = frozenset({"problems", "more_problems", "log_bytes"}) | BOOKKEEPING
"""Fields of a part that the report needs and the manifest does not have."""


def run_export(request: ExportRequest, progress: JobProgress, launch: Launch | None = None) -> Report[ExportDetails]:
    """Export; raises a RocketLensError for options that cannot be, and where there is no store."""
    started = time.monotonic()
    wanted, names = request.wanted, check_names(request.columns or tuple(KINDS))
    read_mask(request.masked)
    found = find_ranges(request.store, request.commit_log_directories, request.storage)
    out = Path(request.out)
    made = take_place(out, fresh=request.fresh)
    work = WorkDirectory.open(out / WORK, {"command": "export", **request.identity()}, fresh=request.fresh)
    resumed = is_up = False
    try:
        tasks = [_task(each, request, wanted, names, work) for each in found.ranges]
        resumed = any(work.done(task.name) for task in tasks)
        with spark_context(
            "export", request.master, work.root, request.settings, launch=launch, warm=export_part.__module__
        ) as context:
            is_up, began = True, time.monotonic()
            (out / MANIFEST).unlink(missing_ok=True)
            total = sum(each.size for each in found.ranges)
            run = partial(run_tasks, context)
            parts = run_phase(run, work, progress, Phase(PHASE, total, "bytes"), tasks, export_part)
        steady = time.monotonic() - began
        report = _finish(work, request, found, parts)
        if work.has_discarded and not request.fresh:
            report.notes.append("unfinished files of a run with other options were deleted")
        work.remove()
    except RocketLensError:
        if not (is_up or resumed):  # nothing is there to go on from
            work.remove()
            leave_place(out, made)
        raise
    finally:
        work.close()
    report.resumed, report.steady_seconds, report.seconds = resumed, steady, time.monotonic() - started
    return report


def _task(
    range_: LogRange, request: ExportRequest, wanted: Wanted, names: tuple[str, ...], work: WorkDirectory
) -> ExportTask:
    state = f"{range_.path} {range_.start} {range_.stop} {_state(range_)}"
    return ExportTask(
        name=f"{PHASE}-{range_.base_offset:020d}-{zlib.crc32(state.encode()):08x}",
        work=str(work.root),
        out=request.out,
        range=range_,
        wanted=wanted,
        columns=names,
        format=request.format,
        compression=request.compression,
        masked=request.masked,
    )


def _state(range_: LogRange) -> str:
    """Return a text that differs for another state of a segment's file; empty for a URL."""
    if is_url(range_.path):
        return ""
    try:
        status = os.stat(range_.path)
    except OSError:
        return "gone"
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ino}"


def _finish(
    work: WorkDirectory, request: ExportRequest, found: LogRanges, parts: list[ExportedPart]
) -> Report[ExportDetails]:
    """Bring the parts to their places and write the manifest; the report."""
    out, whole = Path(request.out), [part for part in parts if part["records"]]
    take_parts(work, out, whole)
    _remove_others(out, {part["name"] for part in whole})
    problems = [*found.problems, *(Problem(**each) for part in parts for each in part["problems"])]
    more = sum(part["more_problems"] for part in parts)
    records, part_bytes = (sum(part[name] for part in whole) for name in ("records", "bytes"))
    manifest = {
        "version": VERSION,
        **request.identity(),
        "columns": list(request.columns or KINDS),
        "log": {"minimum": found.minimum, "end": found.end},
        "records": records,
        "bytes": part_bytes,
        "parts": [{name: value for name, value in part.items() if name not in REPORTED} for part in whole],
        "problems": [msgspec.to_builtins(problem) for problem in problems],
        "more_problems": more,
    }
    with written_beside(out / MANIFEST, work.partial) as beside:  # a run that is killed here leaves nothing in `out`
        write_synced(beside, msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")
    fsync_directory(out)
    return Report(
        command="export",
        store=request.store,
        out=request.out,
        bytes=sum(part["log_bytes"] for part in parts),
        messages=records,
        details=ExportDetails(
            format=request.format,
            parts=len(whole),
            part_bytes=part_bytes,
            part_seconds=sum(part["seconds"] for part in parts),
            found=records > 0,
        ),
        damages=list(_damages(problems)),
        more_damages=more,
        notes=list(_notes(request, records)),
    )


def _notes(request: ExportRequest, records: int) -> Iterator[str]:
    """Sentences about an empty result: no message matched, or a topic does not exist."""
    if not records:
        yield "no message of the log matches"
    root, places = Path(request.store), (CONSUME_QUEUE, BATCH_CONSUME_QUEUE)
    known = {*StoreConfig.load(root).topics, *(name for place in places for name in directories(root / place))}
    # Behind a URL, and beside a log that lies alone, no topics are known.
    yield from (f"the store has no topic {topic}" for topic in request.topics if known and topic not in known)


def _remove_others(out: Path, names: Iterable[str]) -> None:
    """Delete parts of other segments or formats, which a run that was never finished left."""
    for name in os.listdir(out):
        if PART.fullmatch(name) and name not in names:
            (out / name).unlink()


def _damages(problems: Iterable[Problem]) -> Iterable[Damage]:
    for each in problems:
        yield Damage(each.path, each.physical_offset, each.length, "an intact record", each.reason)
