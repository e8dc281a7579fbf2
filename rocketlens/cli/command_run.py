"""Run a bulk job for the person at a terminal, or for a program: checks, progress, report, exit code.

What runs a job is imported when it starts: a usage error must not wait for it.
"""

import contextlib
import errno
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias, cast

import click

from protocol.errors import (
    ConfigError,
    FilterSyntaxError,
    NoSuchTopic,
    NotAStore,
    RocketLensError,
    StoreError,
    is_out_of_room,
)
from protocol.printable import one_line
from rocketlens.cli.opening import refuse_servers
from spark_jobs.build.exchange_names import FILES, SHUFFLE
from spark_jobs.places.file_systems import has_scheme, is_url, local_path
from spark_jobs.run.engine import check_spark
from spark_jobs.run.engine_names import AUTO, SUBMITTED, uses_spark
from storage.amounts import bytes_text
from storage.files.write_guard import check_outside
from storage.layout.store_layout import recognise_store
from storage.layout.tier_layout import is_tier

if TYPE_CHECKING:  # only for types: a usage error must not wait for what runs a job
    from spark_jobs.build.build_request import BuildRequest
    from spark_jobs.run.local_engine import LocalEngine
    from spark_jobs.run.progress import JobProgress
    from spark_jobs.run.report import AnyReport, Report
    from spark_jobs.tables.table_request import TableDetails

NOT_FOUND: Final = 1
USAGE: Final = 2
STORE_ERROR: Final = 3
STOPPED: Final = 130
"""The exit code that shells report for a command that Ctrl-C ended; a report has the other codes."""

_UNWRITABLE: Final = frozenset(
    {errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG}
)
"""Why a place takes no output, besides that it is full; what reads a store has errors of its own."""

BUILD_TASKS: Final = "spark_jobs.build.exchange"
"""The module of the tasks of jobs that build files of a store."""

DEEP_TASKS: Final = "spark_jobs.doctor.deep_check"

JobOptions: TypeAlias = dict[str, Any]
"""What a command line says, by the fields of the request that is made of it once the job is imported."""

Job = Callable[[JobOptions, "JobProgress", "LocalEngine | None"], "AnyReport"]
"""Runs with the options of its request, and with the local engine that was started ahead, if one was."""

Check = Callable[[JobOptions], None]
"""Raises ConfigError for options of a request that cannot be; imports little, since nothing is started before."""


def rebuild(options: JobOptions, progress: "JobProgress", ahead: "LocalEngine | None") -> "AnyReport":
    """Rebuild what the options ask for."""
    from spark_jobs.build.rebuild_request import RebuildRequest
    from spark_jobs.commands.run import run_rebuild

    return run_rebuild(RebuildRequest(**options), progress, ahead)


def check_sent(options: JobOptions) -> None:
    """Raise ConfigError for --out by URL without a directory to build in, where one is needed."""
    out = options["out"] or ""
    if not has_scheme(out) or options["work"]:
        return
    if options["exchange"] == FILES:
        raise ConfigError(
            f"--out {out} needs --work DIR, where the files are built and sent from, or --exchange {SHUFFLE}"
        )
    if is_url(options["store"]):
        raise ConfigError(
            f"STORE and --out are both URLs: --work DIR is needed, for copies of what {options['store']} has"
        )


def compact(options: JobOptions, progress: "JobProgress", ahead: "LocalEngine | None") -> "AnyReport":
    """Compact the index."""
    from spark_jobs.commands.run import run_compact
    from spark_jobs.compact.compact_request import CompactRequest

    return run_compact(CompactRequest(**options), progress, ahead)


def convert(options: JobOptions, progress: "JobProgress", ahead: "LocalEngine | None") -> "AnyReport":
    """Convert a store of DLedger's."""
    from spark_jobs.commands.run import run_convert
    from spark_jobs.convert.convert_request import ConvertRequest

    return run_convert(ConvertRequest(**options), progress, ahead)


def rescue(options: JobOptions, progress: "JobProgress", ahead: "LocalEngine | None") -> "AnyReport":
    """Make a whole store of a damaged one."""
    from spark_jobs.commands.run import run_rescue
    from spark_jobs.convert.rescue_request import RescueRequest

    return run_rescue(RescueRequest(**options), progress, ahead)


def fetch(options: JobOptions, progress: "JobProgress") -> "AnyReport":
    """Fetch a rebuild into a store."""
    from spark_jobs.commands.run import run_fetch
    from spark_jobs.publish.fetch import FetchRequest

    return run_fetch(FetchRequest(**options), progress)


def read_deeply(options: JobOptions, progress: "JobProgress", ahead: "LocalEngine | None") -> "AnyReport":
    """Compare queues and index with the log."""
    from spark_jobs.doctor.deep_check import run_deep_check
    from spark_jobs.doctor.deep_request import DeepRequest

    return run_deep_check(DeepRequest(**options), progress, ahead)


def run_command(
    job: Job,
    *,
    as_json: bool,
    goes_on: bool = True,
    reads_tier: bool = False,
    tasks: str = BUILD_TASKS,
    check: Check | None = None,
    dry_run: bool = False,
    **options: Any,
) -> NoReturn:
    """Run a job with the options of its request, report on stdout and end with the exit code.

    `goes_on`: another run goes on where one was stopped. `reads_tier`: STORE may be tiered files alone. `dry_run`:
    only the plan of the job is printed. `tasks` is the module of the tasks, which workers import ahead.
    """
    if dry_run:
        _print_plan(job, check, options, as_json=as_json)
        sys.exit(0)
    ways = {"goes_on": goes_on, "reads_tier": reads_tier}
    report = run_job(job, as_json=as_json, **ways, tasks=tasks, check=check, **options)
    from rocketlens.cli.show_report import print_report

    print_report(report, as_json=as_json)
    sys.exit(report.exit_code)


def run_command_every(
    job: Job,
    seconds: int,
    metrics: tuple[str, int] | None,
    *,
    as_json: bool,
    tasks: str,
    check: Check,
    **options: Any,
) -> NoReturn:
    """Run a job that appends to a table again and again, reporting each run, until SIGINT or SIGTERM ends it.

    `metrics` are the host and the port for Prometheus. What cannot succeed later ends the process, with a line and a
    code.
    """
    from rocketlens.cli.show_report import print_report
    from spark_jobs.tables.every import TableMetrics, append_every, served

    table = TableMetrics()

    def run() -> "Report[TableDetails]":
        try:
            return cast("Report[TableDetails]", job(options, progress, engine))
        except OSError as error:
            if not is_out_of_room(error):
                raise
            where, said = error.filename or options["out"], f"cannot be written: {error.strerror}"
            raise StoreError(str(where), what=said) from error  # the next run may find room

    def show(outcome: "Report[TableDetails] | RocketLensError") -> None:
        if isinstance(outcome, RocketLensError):
            click.echo(f"rocketlens: {one_line(str(outcome))}", err=True)
        else:
            print_report(cast("AnyReport", outcome), as_json=as_json)
            sys.stdout.flush()

    with ending_with_a_line(goes_on=True):
        _check(options, check, reads_tier=True)
        progress = progress_of(as_json=as_json)
        with contextlib.ExitStack() as stack:
            engine = stack.enter_context(_ahead(options, tasks))
            if metrics is not None:
                port = stack.enter_context(served(table, *metrics))
                click.echo(f"rocketlens: metrics on http://{metrics[0]}:{port}/metrics", err=True)
            # Stopping is how this ends: nothing of a run that is broken off is left, and the next one goes on.
            with contextlib.suppress(KeyboardInterrupt):
                append_every(run, seconds, table, show)
    sys.exit(0)


def run_job(
    job: Job,
    *,
    as_json: bool,
    goes_on: bool = True,
    reads_tier: bool = False,
    tasks: str = BUILD_TASKS,
    check: Check | None = None,
    **options: Any,
) -> "AnyReport":
    """Run a job with the options of its request; what ends it early ends the process, with a line and a code."""
    started = time.monotonic()
    place = str(options.get("work") or options.get("out") or options.get("store") or "")
    with ending_with_a_line(goes_on=goes_on, place=place):
        _check(options, check, reads_tier=reads_tier)
        progress = progress_of(as_json=as_json)
        with _ahead(options, tasks) as engine:
            report = job(options, progress, engine)
        # Deleting the work directory and ending what ran the tasks take their time too, and the person waits for them.
        report.seconds = time.monotonic() - started
        return report
    raise AssertionError


def _check(options: JobOptions, check: Check | None, *, reads_tier: bool) -> None:
    """Raise a RocketLensError for what cannot be, before anything is started."""
    if "storage" in options:
        options["store"] = local_path(options["store"])
    check_places(options)
    if check is not None:
        check(options)
    if not reads_tier:
        refuse_tier(options["store"], options.get("commit_log_directories", ()))


def _print_plan(job: Job, check: Check | None, options: JobOptions, *, as_json: bool) -> None:
    """Print what a job would do; what cannot be ends the process as it would end the job."""
    with ending_with_a_line(goes_on=False):
        _check(options, check, reads_tier=False)
        from rocketlens.cli.show_report import print_plan
        from spark_jobs.build.rebuild_request import RebuildRequest
        from spark_jobs.commands.run import plan_job
        from spark_jobs.compact.compact_request import CompactRequest
        from spark_jobs.convert.convert_request import ConvertRequest
        from spark_jobs.convert.rescue_request import RescueRequest

        kinds: dict[Job, type[BuildRequest]]
        kinds = {rebuild: RebuildRequest, compact: CompactRequest, convert: ConvertRequest, rescue: RescueRequest}
        plan = plan_job(job.__name__, kinds[job](**options))
        print_plan(plan, as_json=as_json)


@contextlib.contextmanager
def ending_with_a_line(*, goes_on: bool, place: str = "") -> Iterator[None]:
    """Have what ends the block early end the process, with a line and a code; `place` is where most is written."""
    try:
        with _interruptible():
            yield
    except KeyboardInterrupt:
        _fail("stopped; run the same command again to continue" if goes_on else "stopped", STOPPED)
    except (ConfigError, FilterSyntaxError) as error:
        _fail(str(error), USAGE)
    except NoSuchTopic as error:
        _fail(str(error), NOT_FOUND)
    except RocketLensError as error:
        _fail(_said(error) + _room(error, place, goes_on=goes_on), USAGE if is_out_of_room(error) else STORE_ERROR)
    except OSError as error:
        if not is_out_of_room(error) and error.errno not in _UNWRITABLE:
            raise
        _fail(_said(error) + _room(error, place, goes_on=goes_on), USAGE)


def _room(error: Exception, place: str, *, goes_on: bool) -> str:
    """What to do where a disk is full, and how much of it is free; nothing for another error.

    `place` is on the disk, if the error does not say what is.
    """
    if not is_out_of_room(error):
        return ""
    again = "then type the same command again" + (": it goes on where it was" if goes_on else "")
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__cause__
    name = getattr(cause, "filename", None) or place
    if not name or has_scheme(os.fsdecode(name)):
        return f"; make room, {again}"
    path = Path(os.fsdecode(name)).absolute()
    there = next(each for each in (path, *path.parents) if os.path.exists(each))
    return f"; {bytes_text(shutil.disk_usage(there).free)} are free at {there}: make room there, {again}"


def check_places(options: JobOptions) -> None:
    """Raise ConfigError where something would be written into a store that must stay as it is, and for a server.

    Also for a URL where a path belongs: everywhere but for the store of a job that has options of a file system, and
    for --out of jobs that have options for its file system.
    """
    store, target = options["store"], options.get("out") or ""
    refuse_servers(store)
    is_remote = "storage" in options and is_url(store)
    is_sent = "out_storage" in options and has_scheme(target)
    builds = "drop_backup" in options
    places = () if is_remote else (store, *options.get("commit_log_directories", ()))
    places += tuple(copy for copy in options.get("fill_from", ()) if not is_url(copy))
    stores = [Path(place) for place in places]
    out, work = (Path(options[name]) if options.get(name) else None for name in ("out", "work"))
    if is_sent:
        out = None if is_url(target) else Path(local_path(target))
    if builds and is_remote and not target:
        raise ConfigError(f"STORE {store} is a URL and stays as it is: --out says where to write")
    if is_remote and is_sent and f"{target.rstrip('/')}/".startswith(f"{store.rstrip('/')}/"):
        raise ConfigError(f"--out {target} lies inside the store: choose a place beside it")
    if builds and out is not None and stores and out.resolve() == stores[0].resolve():
        raise ConfigError("--out is the store itself: omit it to replace the store's own files")
    if builds and target and options["drop_backup"]:
        raise ConfigError("--drop-backup and --out cannot be combined: with --out nothing is replaced")
    check_outside(stores, {"--to" if "since_last" in options else "--out": out, "--work": work})


def refuse_tier(store: str, commit_log_directories: Sequence[str]) -> None:
    """Raise NotAStore for tiered files without their store; whatever else is no store the job finds out."""
    if is_url(store) or commit_log_directories:
        return
    root = Path(local_path(store))
    try:
        recognise_store(root)
    except NotAStore:
        if is_tier(root):
            raise


@contextlib.contextmanager
def _ahead(options: JobOptions, tasks: str) -> Iterator["LocalEngine | None"]:
    """Have the local engine start while we import what the job needs; not for what is no store anyway.

    Raises ConfigError where the job runs on Spark, and that or Java is missing.
    """
    engine, master, settings = (options.get(name) for name in ("engine", "master", "settings"))
    if uses_spark(engine or AUTO, master or "", settings, shuffles=options.get("exchange") == SHUFFLE):
        check_spark()
        yield None
    elif not (is_url(options["store"]) or Path(options["store"]).is_dir()):
        yield None
    else:
        from spark_jobs.run.local_engine import LocalEngine

        with LocalEngine(tasks) as local:
            yield local


def progress_of(*, as_json: bool) -> "JobProgress":
    """Progress on stderr; none for a program that reads what spark-submit makes of stdout and stderr: one stream."""
    from rocketlens.cli.show_progress import progress_on
    from spark_jobs.run.progress import Silence

    return Silence() if as_json and SUBMITTED in os.environ else progress_on()


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Let SIGINT and SIGTERM end the job alike, even where a shell in the background has them ignored."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    numbers = (signal.SIGINT, signal.SIGTERM)
    handlers = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    except KeyboardInterrupt:
        # The end has begun: another Ctrl-C would only spoil it.
        handlers = dict.fromkeys(numbers, signal.SIG_IGN)
        raise
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _said(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.filename or 'the output'} cannot be written: {error.strerror}"
    return str(error)


def _fail(text: str, code: int) -> NoReturn:
    click.echo(f"rocketlens: {one_line(text)}", err=True)
    sys.exit(code)
