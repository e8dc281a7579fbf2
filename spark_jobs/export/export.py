"""Export the messages of a store: a file for each segment that holds some, and a manifest, which is written last.

    OUT/part-BASE.FORMAT        the messages of the segment that starts at physical offset BASE
    OUT/part-BASE-HASH.FORMAT   for a tier, in which each queue has a log of its own; the manifest names the queue
    OUT/_manifest.json          what is in the parts, with counts and checksums; without it the export is not finished
    OUT/.rocketlens-work/       what is half done; gone when the manifest is there

A run that was stopped goes on: parts that are finished are kept, as long as their segments stay what they were.
Behind a URL the parts lie under names of attempts: :mod:`spark_jobs.places.placed_run`.
"""

import contextlib
import hashlib
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from protocol.errors import ConfigError, NoSuchTopic, RocketLensError
from spark_jobs.export._directory_place import DirectoryPlace
from spark_jobs.export._url_place import UrlPlace
from spark_jobs.export.export_part import PHASE, ExportedPart, ExportTask, export_part
from spark_jobs.export.export_request import ExportDetails, ExportRequest
from spark_jobs.places.file_systems import file_system, has_scheme, is_url, state_of
from spark_jobs.read.absent_topics import absent_topics, unread_of_store
from spark_jobs.read.log_ranges import LogRange, LogRanges, Problem, find_ranges
from spark_jobs.run.attempt import BOOKKEEPING, run_phase
from spark_jobs.run.engine import opened_engine
from spark_jobs.run.local_engine import LocalEngine
from spark_jobs.run.progress import JobProgress, Phase
from spark_jobs.run.report import Damage, Report
from spark_jobs.run.work_directory import WorkDirectory
from storage.columns.body_content import BodyCounts
from storage.columns.names import KINDS, check_names
from storage.columns.wanted import Wanted
from storage.filter.hidden import refuse_hidden
from storage.layout.store_config import StoreConfig
from storage.layout.store_layout import BATCH_CONSUME_QUEUE, CONSUME_QUEUE
from storage.names import did_you_mean, similar_names
from storage.patterns.mask import hidden_notes, mask_of
from storage.queue.queue_store import directories

VERSION: Final = 1
REPORTED: Final = (
    frozenset({"problems", "more_problems", "bodies", "hidden_whole", "log_bytes", "objects"}) | BOOKKEEPING
)
"""Fields of a part that the report needs and the manifest does not have."""


class ExportPlace(Protocol):
    """Where an export goes: a directory, or objects behind a URL."""

    work: WorkDirectory

    @property
    def has_discarded(self) -> bool:
        """Whether what another export had left unfinished was deleted."""

    def assign(self, task: ExportTask, /) -> ExportTask:
        """A task that writes here."""

    def is_done(self, task: ExportTask, /) -> bool:
        """Whether an earlier run has finished a task."""

    def begin(self) -> None:
        """The engine is there, and tasks are going to run."""

    def commit(self, parts: Sequence[ExportedPart], manifest: dict[str, Any], /) -> None:
        """Make the parts, and the manifest that names them, the export."""

    def undo(self) -> None:
        """Nothing is there to go on from: leave everything as it was."""

    def named_errors(self) -> contextlib.AbstractContextManager[None]:
        """Let errors of a block call places by their names."""

    def close(self) -> None:
        """End, whether or not the export was committed."""


def run_export(
    request: ExportRequest, progress: JobProgress, ahead: LocalEngine | None = None
) -> Report[ExportDetails]:
    """Export; raises a RocketLensError for impossible options, and where there is no store."""
    started = time.monotonic()
    wanted, names = request.wanted, check_names(request.columns or tuple(KINDS))
    refuse_hidden(mask_of(request.masked), request.tag, request.where)
    found = find_ranges(request.store, request.commit_log_directories, request.storage)
    chosen = found.of_topics(wanted.topics)
    made = [_task(each, request, wanted, names) for each in chosen]
    place: ExportPlace = (UrlPlace if has_scheme(request.out) else DirectoryPlace).open(request)
    resumed = is_up = False
    try:
        with place.named_errors():
            tasks = list(map(place.assign, made))
            resumed = any(map(place.is_done, tasks))
            module, root = export_part.__module__, place.work.root
            with opened_engine("export", request, root, ahead=ahead, tasks=module, notify=progress.note) as engine:
                is_up, began = True, time.monotonic()
                place.begin()
                total = sum(each.size for each in chosen)
                phase = Phase(PHASE, total, "bytes")
                parts = run_phase(engine.run_tasks, place.work, progress, phase, tasks, export_part)
                if not any(part["records"] for part in parts):
                    _refuse_absent(request)
            steady = time.monotonic() - began
            report = _finish(place, request, found, parts)
            if place.has_discarded and not request.fresh:
                report.notes.append("unfinished files of a run with other options were deleted")
    except RocketLensError as error:
        if isinstance(error, NoSuchTopic | ConfigError) or not (is_up or resumed):
            place.undo()
        raise
    finally:
        place.close()
    report.resumed, report.steady_seconds, report.seconds = resumed, steady, time.monotonic() - started
    return report


def _refuse_absent(request: ExportRequest) -> None:
    """Raise NoSuchTopic where none of the topics that are asked for is anywhere, and none of their messages was found.

    Messages of a topic that was deleted may still lie in the log, so that this is known when it is read.
    """
    absent = absent_topics(request.store, request.commit_log_directories, request.storage, request.topics)
    if absent and len(absent) == len(request.topics):
        raise absent[0]


def _task(range_: LogRange, request: ExportRequest, wanted: Wanted, names: tuple[str, ...]) -> ExportTask:
    what = [VERSION, request.identity(), range_.path, range_.start, range_.stop, _state(range_)]
    digest = hashlib.sha256(msgspec.json.encode(what, order="deterministic")).hexdigest()[:16]
    return ExportTask(
        name=f"{PHASE}-{range_.base_offset:020d}-{digest}",
        work="",
        out=request.out,
        range=range_,
        wanted=wanted,
        columns=names,
        format=request.format,
        style=request.style,
        masked=request.masked,
        content=request.content,
    )


def _state(range_: LogRange) -> str:
    """Return a text that differs for another state of a segment's file or object."""
    try:
        if is_url(range_.path):
            system, inner = file_system(range_.path, range_.storage)
            info = system.info(inner)
            return f"{info.get('size', '')} {state_of(info)}"
        status = os.stat(range_.path)
    except Exception:  # each file system has errors of its own; the task will name this one
        return "gone"
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ino}"


def _finish(
    place: ExportPlace, request: ExportRequest, found: LogRanges, parts: list[ExportedPart]
) -> Report[ExportDetails]:
    """Commit the parts and the manifest; the report."""
    whole = [part for part in parts if part["records"]]
    problems = [*found.problems, *(Problem(**each) for part in parts for each in part["problems"])]
    more = sum(part["more_problems"] for part in parts)
    hidden = sum(part.get("hidden_whole", 0) for part in parts)
    records, part_bytes = (sum(part[name] for part in whole) for name in ("records", "bytes"))
    manifest = {
        "version": VERSION,
        "command": "export",
        **request.identity(),
        "columns": list(request.columns or KINDS),
        **_extent(found),
        "records": records,
        "bytes": part_bytes,
        "parts": [{name: value for name, value in part.items() if name not in REPORTED} for part in whole],
        "problems": [msgspec.to_builtins(problem) for problem in problems],
        "more_problems": more,
    }
    place.commit(whole, manifest)
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
        notes=[
            *_notes(request, found, records),
            *BodyCounts.total(part.get("bodies", ()) for part in parts).sentences(),
            *hidden_notes(hidden),
        ],
    )


def _extent(found: LogRanges) -> dict[str, object]:
    """What the manifest says of the whole log: where it begins and ends, or of how many queues a tier has logs."""
    if found.tier is None:
        return {"log": {"minimum": found.minimum, "end": found.end}}
    return {"tier": {"broker": found.tier.broker_name, "queues": len({each.queue for each in found.ranges})}}


def _notes(request: ExportRequest, found: LogRanges, records: int) -> Iterator[str]:
    """Sentences about what is left out of a result, or why it is empty: no message matched, or a topic is unknown."""
    what = "log" if found.tier is None else "tier"
    if not records:
        yield f"no message of the {what} matches"
    yield from unread_of_store(request.store, request.storage, request.topics)
    # Behind a URL, and beside a log that lies alone, no topics are known.
    known = _topics(Path(request.store)) if found.tier is None else found.tier.topics()
    which = "store" if found.tier is None else "tier"
    for topic in request.topics:
        if known and topic not in known:
            meant = did_you_mean(similar_names(topic, known))
            yield "; ".join(filter(None, (f"the {which} has no topic {topic}", meant)))


def _topics(root: Path) -> set[str]:
    """The topics that a store's configuration and queues name."""
    places = CONSUME_QUEUE, BATCH_CONSUME_QUEUE
    return {*StoreConfig.load(root).topics, *(name for place in places for name in directories(root / place))}


def _damages(problems: Iterable[Problem]) -> Iterable[Damage]:
    for each in problems:
        yield Damage(each.path, each.physical_offset, each.length, "an intact record", each.reason)
