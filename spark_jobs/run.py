"""Run a bulk job from request to report: lock, source, work directory, Spark, publishing."""

import contextlib
import hashlib
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from protocol.errors import ConfigError
from spark_jobs.new_checkpoint import latest_end_timestamp, write_checkpoint
from spark_jobs.progress import Progress
from spark_jobs.publish import Staged, publish, roll_forward
from spark_jobs.rebuild import Rebuild, Rebuilt
from spark_jobs.request import RebuildRequest, Report
from spark_jobs.scan_log import total
from spark_jobs.session import spark_context
from spark_jobs.source import Source, find_source
from spark_jobs.stage import stage_kept
from spark_jobs.store_lock import StoreLock
from spark_jobs.work_directory import WorkDirectory
from storage.direct_writer import fsync_directory
from storage.queue_store import BATCH_CONSUME_QUEUE, CONSUME_QUEUE
from storage.store_layout import CHECKPOINT, INDEX

WORK_DIRECTORY: Final = ".rocketlens-work"
JOURNAL: Final = "journal.msgpack"
REPORT: Final = "report"
CONSUME_QUEUE_EXT: Final = "consumequeue_ext"


def run_rebuild(request: RebuildRequest, progress: Progress) -> Report:
    """Rebuild as asked; raises a RocketLensError, with the store as it was, for what cannot be done."""
    started = time.monotonic()
    work_root = Path(request.work or Path(request.target) / WORK_DIRECTORY)
    source = find_source(Path(request.store), tuple(map(Path, request.commit_log_directories)))
    with _held(request, work_root, progress) as lock:
        if lock is not None:
            ended = roll_forward(lock, work_root / JOURNAL, source=_log_digest(source))
            report = _report_of(WorkDirectory(work_root), request) if ended else None
            if report is not None:
                return report
            source = find_source(Path(request.store), tuple(map(Path, request.commit_log_directories)))
        for problem in source.problems:
            progress.note(problem)
        identity = {"command": "rebuild", "request": request.identity(), "source": source.identity()}
        work = WorkDirectory.open(work_root, identity, fresh=request.fresh)
        resumed = any((work.root / "done").iterdir())
        with spark_context("rebuild", request.master, work.root, request.settings) as context:
            rebuilt = Rebuild(request, source, work, context, progress).run()
        report = _report(request, source, rebuilt)
        report.resumed = resumed
        staged = _stage(request, source, work, rebuilt)
        work.finish(REPORT, msgspec.to_builtins(report))
        _publish(request, source, work, staged, lock, report)
        report.seconds = time.monotonic() - started
        report.steady_seconds = time.time() - report.details["scan"]["began"]
        work.remove()
        return report


@contextlib.contextmanager
def _held(request: RebuildRequest, work: Path, progress: Progress) -> Iterator[StoreLock | None]:
    """The store's lock where its own directories are going to be replaced; with --out nothing must be in the way."""
    if request.out is None:
        elsewhere = tuple(map(Path, request.commit_log_directories))
        with StoreLock(Path(request.store), elsewhere=elsewhere, work=work, warn=progress.note) as lock:
            yield lock
        return
    if Path(request.out).resolve().is_relative_to(Path(request.store).resolve()):
        raise ConfigError(f"--out {request.out} lies in the store, which stays as it is; leave --out away to replace")
    for name in (INDEX, CONSUME_QUEUE, BATCH_CONSUME_QUEUE, CONSUME_QUEUE_EXT, CHECKPOINT):
        if os.path.lexists(Path(request.out) / name):
            raise ConfigError(f"--out {request.out}: there is {name} already; remove it or choose another directory")
    Path(request.out).mkdir(parents=True, exist_ok=True)
    yield None


def _stage(request: RebuildRequest, source: Source, work: WorkDirectory, rebuilt: Rebuilt) -> list[Staged]:
    """Everything that is to be published, complete in the work directory."""
    staged: list[Staged] = []
    if request.index:
        directory = work.staged / INDEX
        stage_kept(rebuilt.kept.names, source.layout.index, directory, link=request.out is None)
        staged.append(Staged(INDEX, directory, synced=True))
        latest = latest_end_timestamp(directory)
        if latest is not None and not request.keep_checkpoint:
            write_checkpoint(source.layout.checkpoint, work.staged / CHECKPOINT, latest)
            staged.append(Staged(CHECKPOINT, work.staged / CHECKPOINT, synced=True))
    return staged


def _publish(
    request: RebuildRequest,
    source: Source,
    work: WorkDirectory,
    staged: list[Staged],
    lock: StoreLock | None,
    report: Report,
) -> None:
    if lock is None:
        out = Path(request.target)
        for each in staged:
            fsync_directory(each.path if each.path.is_dir() else each.path.parent)
            os.rename(each.path, out / each.name)
        fsync_directory(out)
        return
    moment = datetime.now(UTC).strftime("%Y%m%d%H%M%S")
    published = publish(lock, staged, work.root / JOURNAL, moment, source=_log_digest(source), enter=work.enter)
    report.details["backups"] = [str(path) for path in published.backups]


def _report(request: RebuildRequest, source: Source, rebuilt: Rebuilt) -> Report:
    return Report(
        command="rebuild",
        store=request.store,
        out=request.target,
        bytes=source.size,
        messages=total(rebuilt.segments, "records"),
        entries=total(rebuilt.index_files, "entries"),
        details={
            "index": {
                "slots": rebuilt.shape.slots,
                "entries": rebuilt.shape.capacity,
                "profile": "5.5" if rebuilt.shape.tags else "classic",
                "kept": list(rebuilt.kept.names),
                "built": [file["name"] for file in rebuilt.index_files],
                "reasons": list(rebuilt.kept.reasons),
            },
            "logEnd": rebuilt.log_end.end,
            "scan": {
                "bytes": total(rebuilt.segments, "bytes_read"),
                "taskSeconds": total(rebuilt.segments, "seconds"),
                "began": min(summary["began"] for summary in rebuilt.segments),
            },
        },
        damages=list(rebuilt.log_end.damages),
        more_damages=rebuilt.log_end.more_damages,
        notes=[*source.problems, *rebuilt.notes],
    )


def _report_of(work: WorkDirectory, request: RebuildRequest) -> Report | None:
    """What the run that was killed while publishing had to report, if it had the same request."""
    manifest, record = work.manifest(), work.done(REPORT)
    same = manifest is not None and manifest.identity.get("request") == _plain(request.identity())
    if record is None or not same:
        return None
    report = msgspec.convert(record, Report)
    report.resumed = True
    work.remove()
    return report


def _plain(value: Any) -> Any:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(value))


def _log_digest(source: Source) -> str:
    """What tells this state of the log from another."""
    return hashlib.sha256(repr(source.identity()["files"][: len(source.segments)]).encode()).hexdigest()
