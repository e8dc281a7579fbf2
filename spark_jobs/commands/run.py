"""Run a job that writes, from request to report: lock, source, work directory, engine, publishing."""

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import msgspec

from protocol.errors import ConfigError, StoreError
from spark_jobs.build.build_request import BuildRequest
from spark_jobs.build.exchange import Exchange, FileExchange
from spark_jobs.build.index_profiles import TAGGED_PROFILE
from spark_jobs.build.rebuild import Rebuild, Rebuilt
from spark_jobs.build.rebuild_request import RebuildRequest
from spark_jobs.commands.job_plan import JobPlan, make_plan, plan_lines, refuse_without_room
from spark_jobs.commands.store_report import StoreReport, compacted_report, new_store_report, rebuilt_report
from spark_jobs.compact.compact import Compact
from spark_jobs.compact.compact_request import CompactRequest
from spark_jobs.convert.convert import Convert, check_log_open, check_source, check_stopped, has_ledger
from spark_jobs.convert.convert_request import ConvertRequest
from spark_jobs.convert.foresee import foresee
from spark_jobs.convert.log_copies import copies_identity
from spark_jobs.convert.mend import Mend
from spark_jobs.convert.new_log import NewLog, settled_request
from spark_jobs.convert.rescue_request import RescueRequest
from spark_jobs.places.file_systems import is_url
from spark_jobs.places.output_place import OutputPlace
from spark_jobs.places.place_names import JOURNAL, MANIFEST, WORK
from spark_jobs.places.placed_run import Driver, PlacedRecord
from spark_jobs.publish.deliver import deliver, end_last_publishing, made_out
from spark_jobs.publish.fetch import FetchRequest, fetch, read_sent
from spark_jobs.publish.fewer_records import LeftOut, refuse_fewer
from spark_jobs.publish.new_config import check_config
from spark_jobs.publish.new_store import check_rocksdb, fetch_rest
from spark_jobs.publish.publish import Staged, check_replaced
from spark_jobs.publish.publish_journal import remove_journal
from spark_jobs.publish.publish_names import find_unfinished
from spark_jobs.publish.send import ToSend, check_send, open_run, send
from spark_jobs.publish.sent_manifest import SentManifest, SentOptions, mark_index, mark_log
from spark_jobs.publish.store_lock import StoreLock
from spark_jobs.run.engine import Engine, opened_engine
from spark_jobs.run.local_engine import LocalEngine
from spark_jobs.run.progress import JobProgress
from spark_jobs.run.work_directory import REPORT, JobIdentity, WorkDirectory, work_left
from spark_jobs.scan.scan_log import probe_source
from spark_jobs.scan.source import StoreSource, find_source, opened_source
from storage.build.queue_plan import QueuePlan
from storage.files.own_directories import HeldDirectory
from storage.layout.store_layout import (
    BATCH_CONSUME_QUEUE,
    CHECKPOINT,
    COMMIT_LOG,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    INDEX,
)

_INDEX: Final = "index-mark"


class JobResult(NamedTuple):
    """The report of a job, what it has staged, and the records of tasks that have sent their files to a URL.

    `index_mark` is a digest of the index files that it was made of, as they were before, "" if it was made of the log.
    """

    report: StoreReport
    staged: list[Staged]
    sent: Sequence[PlacedRecord] = ()
    index_mark: str = ""


MakeLog = Callable[[ConvertRequest, StoreSource, WorkDirectory, Engine, JobProgress], tuple[NewLog, Rebuilt]]
"""Makes the log of a new store, and what leads to its records."""

Make = Callable[[StoreSource, WorkDirectory, Engine, Driver | None], Callable[[], JobResult]]
"""Builds by the tasks of an engine; what it returns stages the result and reports once that is gone."""


def run_rebuild(request: RebuildRequest, progress: JobProgress, ahead: LocalEngine | None = None) -> StoreReport:
    """Rebuild as asked; raises a RocketLensError, with the store as it was, for what cannot be done."""

    def make(
        source: StoreSource, work: WorkDirectory, engine: Engine, driver: Driver | None
    ) -> Callable[[], JobResult]:
        identity = {"request": request.identity(), "source": source.identity()}
        with contextlib.closing(_exchange(request, work, engine, progress, driver, identity)) as exchange:
            rebuilt = Rebuild(request, source, work, engine, exchange).run()
        return lambda: JobResult(*rebuilt_report(request, source, work, rebuilt), exchange.sent)

    return _run("rebuild", request, progress, make, ahead)


def run_compact(request: CompactRequest, progress: JobProgress, ahead: LocalEngine | None = None) -> StoreReport:
    """Compact the index; raises a RocketLensError, with the store as it was, for what cannot be done."""

    def make(
        source: StoreSource, work: WorkDirectory, engine: Engine, driver: Driver | None
    ) -> Callable[[], JobResult]:
        index = "" if request.sent_to is None or request.from_log else _marked_index(source, work)
        identity = {"request": request.identity(), "source": source.identity(), "index": index}
        with contextlib.closing(_exchange(request, work, engine, progress, driver, identity)) as exchange:
            compacted = Compact(request, source, work, engine, exchange).run()
        return lambda: JobResult(*compacted_report(request, source, work, compacted), exchange.sent, index)

    return _run("compact", request, progress, make, ahead)


def run_convert(request: ConvertRequest, progress: JobProgress, ahead: LocalEngine | None = None) -> StoreReport:
    """Convert a store of DLedger's into a plain one; raises a RocketLensError if that is impossible.

    The store stays as it is, and the new one is there once it is complete.
    """
    return _run_new_store("convert", request, progress, ahead, _converted, _check_converted)


def run_rescue(request: RescueRequest, progress: JobProgress, ahead: LocalEngine | None = None) -> StoreReport:
    """Make a whole store of a damaged one, as :func:`run_convert`; one of DLedger's is converted."""
    return _run_new_store("rescue", request, progress, ahead, _rescued, partial(_check_rescued, request))


def _run_new_store(
    command: str,
    request: ConvertRequest,
    progress: JobProgress,
    ahead: LocalEngine | None,
    make_log: MakeLog,
    check: Callable[[StoreSource], None],
) -> StoreReport:
    published = _published_report(command, request)
    if published is not None:
        return published

    def make(source: StoreSource, work: WorkDirectory, engine: Engine, _: Driver | None) -> Callable[[], JobResult]:
        fetch_rest(source)
        log, rebuilt = make_log(request, source, work, engine, progress)
        return lambda: JobResult(*new_store_report(command, request, source, work, log, rebuilt))

    return _run(command, request, progress, make, ahead, check=check)


def _converted(
    request: ConvertRequest, source: StoreSource, work: WorkDirectory, engine: Engine, progress: JobProgress
) -> tuple[NewLog, Rebuilt]:
    """Move the records first, and build what leads to them of the new log."""
    log = Convert(request, source, work, engine, progress).run()
    with contextlib.closing(FileExchange(engine, work, progress)) as exchange:
        return log, Rebuild(log.rebuild, log.source, work, engine, exchange, log.moved).run()


def _rescued(
    request: ConvertRequest, source: StoreSource, work: WorkDirectory, engine: Engine, progress: JobProgress
) -> tuple[NewLog, Rebuilt]:
    """Read the old log once, mend what was found, and build what leads to its records, which stay where they are."""
    if not isinstance(request, RescueRequest) or has_ledger(source):
        return _converted(request, source, work, engine, progress)
    probed = probe_source(engine, source, index=True, slots=request.slots, queues_stay=False)
    settled = settled_request(request, probed)
    bare = msgspec.structs.replace(source, index_files=(), problems=())
    with contextlib.closing(FileExchange(engine, work, progress)) as exchange:
        rebuild = Rebuild(settled, bare, work, engine, exchange, checks_all=True)
        read = rebuild.scan()
        log = Mend(request, source, work, engine.run_tasks, progress).run(read, settled)
        return log, rebuild.build(read)


def plan_job(command: str, request: BuildRequest) -> JobPlan:
    """Plan a job as it would run now, and change nothing; raises what the job raises before it starts.

    The log is read for a rescue alone, whose losses are part of its plan.
    """
    with opened_source(request.store, request.commit_log_directories, request.storage) as source:
        if isinstance(request, RescueRequest):
            _check_rescued(request, source)
            plan = make_plan(command, request, source)
            plan.outlook = foresee(request, source)
            return plan
        if isinstance(request, ConvertRequest):
            _check_converted(source)
        elif isinstance(request, RebuildRequest) and request.queues:
            _check_rocksdb(request, source)
        return make_plan(command, request, source)


def _check_converted(source: StoreSource) -> None:
    """Raise a RocketLensError for a store that cannot be converted, before what another run left is given up for it."""
    check_source(source)
    check_rocksdb(source.layout)


def _check_rescued(request: RescueRequest, source: StoreSource) -> None:
    """Raise a RocketLensError for a store that cannot be rescued, with the command that can do something."""
    if has_ledger(source) and request.fill_from:
        raise ConfigError(
            f"{source.layout.root} is a store of DLedger's, of which a rescue makes a plain one: do without "
            "--fill-from, or rescue the store of another member of its group"
        )
    check_stopped(source)
    check_rocksdb(source.layout)


def _exchange(
    request: BuildRequest,
    work: WorkDirectory,
    engine: Engine,
    progress: JobProgress,
    driver: Driver | None,
    identity: JobIdentity,
) -> Exchange:
    """The exchange that was asked for; Spark's own has tasks send what they build to the URL of a driver themselves."""
    if not request.shuffles:
        return FileExchange(engine, work, progress)
    # Only what has asked for it runs on Spark.
    from spark_jobs.build.shuffle_exchange import ShuffleExchange, Target
    from spark_jobs.run.session import SparkEngine

    target = None if driver is None else Target(driver.run, driver.found, identity)
    return ShuffleExchange(cast("SparkEngine", engine).context, work, progress, target)


def run_fetch(request: FetchRequest, progress: JobProgress) -> StoreReport:
    """Fetch a finished rebuild or compaction into the store.

    Raises a RocketLensError, with the store as it was, where it cannot.
    """
    started = time.monotonic()
    base = Path(request.work or Path(request.store) / WORK)
    directories = tuple(map(Path, request.commit_log_directories))
    with work_left(base) as left, _held(request, base, left, progress) as lock:
        source = find_source(Path(request.store), directories)
        if end_last_publishing(lock, source, left):
            ended = _last_report("fetch", request, left)
            if ended is not None:
                return ended
            source = find_source(Path(request.store), directories)
        place, manifest = read_sent(request, source)
        if lock is not None:
            check_replaced(lock, manifest.names)
        if CONSUME_QUEUE in manifest.names:
            _refuse_rocksdb(source)
        identity = {
            "command": "fetch", "request": request.identity(), "source": source.identity(), "run": manifest.run,
        }  # fmt: skip
        with contextlib.closing(WorkDirectory.open(base, identity, fresh=request.fresh)) as work, work.named_errors():
            resumed = any(work.staged.iterdir())
            report = _sent_report(place, manifest)
            report.command, report.store, report.out = "fetch", request.url, request.store
            report.resumed = resumed

            def finish() -> JobResult:
                return JobResult(report, fetch(place, manifest, work, progress))

            _conclude(request, source, work, finish, lock, options=manifest.options)
            report.steady_seconds, report.seconds = 0.0, time.monotonic() - started
            work.remove()
            return report


def _run(
    command: str,
    request: BuildRequest,
    progress: JobProgress,
    make: Make,
    ahead: LocalEngine | None,
    *,
    check: Callable[[StoreSource], None] = check_log_open,
) -> StoreReport:
    started, began = time.monotonic(), time.time()
    with (
        _base(request) as base,
        work_left(base) as left,
        _held(request, base, left, progress) as lock,
        _source(request) as source,
    ):
        if end_last_publishing(lock, source, left):
            ended = _last_report(command, request, left)
            if ended is not None:
                return ended
            source = find_source(Path(request.store), tuple(map(Path, request.commit_log_directories)))
        if lock is not None:
            check_replaced(lock, _replaced(request))
        check(source)
        if isinstance(request, RebuildRequest) and request.queues:
            _check_rocksdb(request, source)
        for problem in source.problems:
            progress.note(problem)
        plan = make_plan(command, request, source)
        for line in plan_lines(plan):
            progress.note(line)
        if isinstance(request, RescueRequest) and left is None:  # what a killed run has made takes no more room
            refuse_without_room(plan)
        identity = {"command": command, "request": request.identity(), "source": source.identity()}
        if isinstance(request, RescueRequest):
            identity |= copies_identity(request)
        shared = request.works_elsewhere
        opened = WorkDirectory.open(base, identity, fresh=request.fresh, shared=shared)
        with contextlib.closing(opened) as work, work.named_errors():
            resumed = any((work.root / "done").iterdir())
            with (
                _sending(command, request, work) as driver,
                opened_engine(command, request, work.root, ahead=ahead, tasks=__name__, notify=progress.note) as engine,
            ):
                finish = make(source, work, engine, driver)
                if lock is None:
                    sender = None if driver is None else partial(_send, request, engine, driver, work)
                    report = _conclude(request, source, work, finish, lock, sender)
            if lock is not None:  # here, since Spark has closed its files in the store by now
                report = _conclude(request, source, work, finish, lock)
            report.notes = list(map(source.named, report.notes))
            report.resumed = resumed or (driver is not None and bool(driver.found))
            report.steady_seconds -= report.details.scan.began if report.details.scan is not None else began
            report.seconds = time.monotonic() - started
            work.remove()
            return report


def _replaced(request: BuildRequest) -> Iterator[str]:
    """The names of what a request replaces in a store."""
    if not isinstance(request, RebuildRequest) or request.index:
        yield INDEX
        if not request.keep_checkpoint:
            yield CHECKPOINT
    if isinstance(request, RebuildRequest) and request.queues:
        yield CONSUME_QUEUE
        if Path(request.store, BATCH_CONSUME_QUEUE).is_dir():
            yield BATCH_CONSUME_QUEUE
        if request.ext:
            yield CONSUME_QUEUE_EXT


def _check_rocksdb(request: RebuildRequest, source: StoreSource) -> None:
    """Raise ConfigError where queues are in RocksDB and what was asked for cannot be made of them."""
    if request.is_for_store:
        _refuse_rocksdb(source)
    elif source.layout.rocksdb_queues is not None and not request.without_config:
        check_config(source.layout, Path(request.target))


def _refuse_rocksdb(source: StoreSource) -> None:
    """Raise ConfigError where queues would be exchanged that a broker keeps in RocksDB."""
    place = source.layout.rocksdb_queues
    if place is not None:
        raise ConfigError(f"{place} is a RocksDB, which is not exchanged for files: give a directory to --out")


@contextlib.contextmanager
def _base(request: BuildRequest) -> Iterator[Path]:
    """Where the work directory lies. What tasks send to a URL themselves needs none that stays, nor one for them."""
    if request.sent_to is not None and request.work is None:
        with tempfile.TemporaryDirectory(prefix="rocketlens-") as directory:
            yield Path(directory, WORK)
    else:
        yield request.work_base


@contextlib.contextmanager
def _sending(command: str, request: BuildRequest, work: WorkDirectory) -> Iterator[Driver | None]:
    """The run at the URL to which the output is sent, None where it goes into a directory."""
    if request.sent_to is None:
        yield None
        return
    driver = open_run(command, work, request.sent_to, request.out_storage, fresh=request.fresh)
    try:
        yield driver
    finally:
        driver.leave()


def _send(request: BuildRequest, engine: Engine, driver: Driver, work: WorkDirectory, what: ToSend) -> None:
    """Send the files that are staged, by tasks: of this machine where others may not see the work directory."""
    if not request.shuffles:
        send(driver, engine.run_tasks, work, what)
        return
    with LocalEngine(send.__module__) as local:
        send(driver, local.run_tasks, work, what)


def _source(request: BuildRequest) -> contextlib.AbstractContextManager[StoreSource]:
    """The store; copies of files behind a URL lie where all machines see them, as they do the work directory."""
    beside = request.work_base if request.is_whole_store else Path(request.work or request.target)
    copies = beside if is_url(request.store) else None
    shared = copies is not None and request.works_elsewhere
    return opened_source(request.store, request.commit_log_directories, request.storage, copies, shared=shared)


def _conclude(
    request: BuildRequest,
    source: StoreSource,
    work: WorkDirectory,
    finish: Callable[[], JobResult],
    lock: StoreLock | None,
    sender: Callable[[ToSend], None] | None = None,
    *,
    options: SentOptions | None = None,
) -> StoreReport:
    """Stage and publish, or send; until then, `steady_seconds` of the report is when that was done."""
    made = finish()
    report, staged = made.report, made.staged
    if lock is not None and report.damages and not request.allow_fewer:
        slots = report.details.index.slots if report.details.index is not None else 0
        refuse_fewer(source, staged, report.damages, slots, _left_out(request, report, options or _options(request)))
    work.finish(REPORT, msgspec.to_builtins(report))
    if sender is not None:
        sender(_to_send(request, source, made))
    else:
        report.details.backups = deliver(request, source, work, staged, lock)
    report.details.published = [each.name for each in staged]
    report.steady_seconds = time.time()
    return report


def _to_send(request: BuildRequest, source: StoreSource, made: JobResult) -> ToSend:
    report, staged, sent, index_mark = made
    end = report.details.log_end
    log = mark_log(source.segments, source.segments[0].base_offset if end is None else end)
    return ToSend(report.command, staged, log, msgspec.to_builtins(report), _options(request), index_mark, sent)


def _marked_index(source: StoreSource, work: WorkDirectory) -> str:
    """The digest of the index files before any of them was read, by this run or by one that it continues.

    A broker may put entries into the last one while the job runs: these are not in the output, so the digest must not
    know them either.
    """
    kept = work.done(_INDEX) or work.finish(_INDEX, {"sha256": mark_index(source)})
    return str(kept["sha256"])


def _sent_report(place: OutputPlace, manifest: SentManifest) -> StoreReport:
    try:
        return msgspec.convert(manifest.report, StoreReport)
    except msgspec.ValidationError as error:
        what = f"is no manifest of a {manifest.command}: {error}"
        raise StoreError(place.path(MANIFEST), what=what) from error


def _options(request: BuildRequest) -> SentOptions:
    """The options of a request that say what it leaves out."""
    if isinstance(request, CompactRequest):
        return SentOptions(left_out_topics=request.topics, drop_tags=request.drop_tags)
    return SentOptions(drop_unknown_topics=isinstance(request, RebuildRequest) and request.drop_unknown_topics)


def _left_out(request: BuildRequest, report: StoreReport, options: SentOptions) -> LeftOut:
    """Return what a job of some options leaves out on purpose, which is no loss."""
    has_tags = report.details.index is not None and report.details.index.profile == TAGGED_PROFILE
    tags = options.drop_tags or not has_tags
    if options.drop_unknown_topics:
        return LeftOut(QueuePlan.of(Path(request.store)).is_unknown, tags)
    return LeftOut(frozenset(options.left_out_topics).__contains__, tags)


@contextlib.contextmanager
def _held(
    request: BuildRequest, work: Path, left: HeldDirectory | None, progress: JobProgress
) -> Iterator[StoreLock | None]:
    """The store's lock where its own directories are going to be replaced; with --out nothing must be in the way."""
    if request.sent_to is not None:
        check_send(request.sent_to, request.out_storage, left, fresh=request.fresh)
        yield None
        return
    if request.out is not None:
        with made_out(request):
            yield None
        return
    elsewhere = tuple(map(Path, request.commit_log_directories))
    with StoreLock(Path(request.store), elsewhere=elsewhere, work=work, warn=progress.note) as lock:
        if left is None or not os.path.lexists(left.path / JOURNAL):
            for path in find_unfinished(lock.store):
                progress.note(
                    f"{path} is left over from a publishing without a journal: compare it with the current one by hand"
                )
        yield lock


def _last_report(command: str, request: BuildRequest, left: HeldDirectory | None) -> StoreReport | None:
    """Return the report of a run that was killed while publishing, if the same request is made again."""
    work = WorkDirectory.left_in(left)
    manifest, record = (work.manifest(), work.done(REPORT)) if work else (None, None)
    if left is not None:
        remove_journal(left.path / JOURNAL)
    if work is None or manifest is None or record is None:
        return None
    if (manifest.identity.get("command"), manifest.identity.get("request")) != (command, _plain(request.identity())):
        return None
    report = msgspec.convert(record, StoreReport)
    report.resumed = True
    work.remove()
    return report


def _published_report(command: str, request: ConvertRequest) -> StoreReport | None:
    """Return the report of a run that was killed when its store had just got its place, if it was the same request.

    A store that has been taken away since is made again.
    """
    with work_left(request.work_base) as left:
        work, out = WorkDirectory.left_in(left), Path(request.target)
        if work is None or work.staged.exists() or work.done(REPORT) is None or not (out / COMMIT_LOG).is_dir():
            return None
        return _last_report(command, request, left)


def _plain(value: Any) -> Any:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(value))
