"""`rocketlens doctor`; `spark_jobs/doctor_store.py` is the same for spark-submit."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

import click

from rocketlens.cli.command_options import DIRECTORY, doctor_options, job_options, store_argument
from rocketlens.cli.command_run import (
    DEEP_TASKS,
    check_places,
    ending_with_a_line,
    read_deeply,
    refuse_tier,
    run_job,
)
from rocketlens.cli.errors import STORE_ERROR, say
from rocketlens.cli.grouped_command import GroupedCommand
from rocketlens.cli.opening import EXPECTED, address_in, open_url, refuse_layout, several_option
from rocketlens.cli.options import is_typed
from rocketlens.cli.server_options import NO_SERVER_ARGUMENTS, ServerArguments, server_options
from rocketlens.cli.time_options import timezone_option
from rocketlens.opening import StoreArguments
from spark_jobs.places.file_systems import is_url, local_path, refuse_page

if TYPE_CHECKING:  # a usage error must not wait for what examines a store
    from broker.endpoint import Endpoint
    from spark_jobs.doctor.deep_request import DeepDetails
    from spark_jobs.run.report import Report
    from storage.doctor.examine import Examination


@click.command("doctor", cls=GroupedCommand)
@click.option("--deep", is_flag=True, help="Also read every record, queue unit and index entry; this may take minutes.")
@click.option(
    "--since-last",
    is_flag=True,
    help="As --deep, but only what came since the last reading that found nothing wrong, and the whole of index files "
    "with entries of it; how far that was is kept in the user's state directory.",
)
@click.argument("store", type=DIRECTORY, metavar="SOURCE", required=False)
@several_option
@doctor_options
@timezone_option
@job_options
@server_options
def doctor(deep: bool, since_last: bool, store: str | None, stores: tuple[Path, ...], **options: Any) -> None:
    """Say what is wrong with the store of SOURCE: where it is, what it means, and how to fix it.

    This takes seconds: it looks at files, ends and checkpoints, at every index file, and at samples of messages and
    queue units. A picture shows which parts of the log exist, are in queues, and are in the index. The store is only
    read, and a broker may be running on it. SOURCE may be the HOST:PORT of a RocketLens server, which looks at its own;
    the lines that it prints are for its machine.

    With --deep every record is read, and every queue unit and index entry is compared with what follows from the
    records. Of a SOURCE that is a URL, such as s3://bucket/store, nothing else is looked at then.

    Exit code 0: nothing is wrong. 4: something is wrong. 3: SOURCE is not a store that can be read. Of several stores
    the largest of their codes, but 3 where one cannot be read.
    """
    asked = [*([] if store is None else [store]), *map(str, stores)]
    if not asked or (store is not None and stores):
        raise click.UsageError(EXPECTED)
    codes = [_code_of(each, deep=deep or since_last, since_last=since_last, **options) for each in asked]
    sys.exit(STORE_ERROR if STORE_ERROR in codes else max(codes))


def _code_of(store: str, **options: Any) -> int:
    """Look at one store; the exit code."""
    try:
        _run(store=store, **options)
    except SystemExit as ended:
        return cast(int, ended.code)


@click.command("verify", cls=GroupedCommand, hidden=True)
@store_argument
@doctor_options
@timezone_option
@job_options
def verify_store(**options: Any) -> None:
    """Do the same as `rocketlens doctor --deep`, whose earlier name this is; it goes with the next release."""
    _run(deep=True, since_last=False, **options)


def _run(
    *,
    store: str,
    deep: bool,
    as_json: bool,
    index_slots: int | None,
    index_entries: int | None,
    server_arguments: ServerArguments = NO_SERVER_ARGUMENTS,
    **options: Any,
) -> NoReturn:
    if (index_slots is None) != (index_entries is None):
        raise click.UsageError("--index-slots and --index-entries: give both or neither")
    store = local_path(store)
    server = None if os.path.exists(store) or is_url(store) else address_in(store)
    if server is not None:
        _ask(server, server_arguments, as_json=as_json)
    server_arguments.refuse()
    with ending_with_a_line(goes_on=False):
        refuse_page(store)
        if is_url(store):
            directories = () if deep else options["commit_log_directories"]
            refuse_layout(StoreArguments(directories, index_slots=index_slots, index_entries=index_entries))
    if is_url(store) and not deep:
        _look(store, options, as_json=as_json)
    if is_url(store) and options["since_last"]:
        raise click.UsageError(f"{store} is a URL: --since-last is for a directory, --deep reads all of a store there")
    if deep:
        with ending_with_a_line(goes_on=False):
            check_places({"store": store, **options})
    vouched = None if index_slots is None or index_entries is None else (index_slots, index_entries)
    examination = None if is_url(store) else _examine(store, options["commit_log_directories"], vouched)
    from rocketlens.cli.show_diagnosis import Shown  # a usage error does not wait for it

    shown = Shown(store, None if examination is None else examination.diagnosis, as_json=as_json)
    if deep:
        shown.begin()
    if deep and (examination is None or examination.store is not None):
        try:
            report = run_job(read_deeply, as_json=as_json, goes_on=False, tasks=DEEP_TASKS, store=store, **options)
            shown.join(cast("Report[DeepDetails]", report), examination)
        except BaseException as error:
            # Whatever ends the reading, what was found before it is said.
            shown.end(error.code if isinstance(error, SystemExit) else 1)
            raise
    sys.exit(shown.end())


def _look(url: str, options: dict[str, Any], *, as_json: bool) -> NoReturn:
    """Look at a store behind a URL, show what was found, and end with the exit code."""
    from rocketlens.cli.show_diagnosis import Shown

    with ending_with_a_line(goes_on=False):
        with open_url(url, options["storage"]) as opened:
            diagnosis = opened.doctor()
        sys.exit(Shown(url, diagnosis, as_json=as_json).end())
    raise AssertionError


def _ask(server: "Endpoint", arguments: ServerArguments, *, as_json: bool) -> NoReturn:
    """Have a server look at its store, show what it found, and end with the exit code."""
    typed = [each for each in click.get_current_context().params if is_typed(each)]
    others = [each for each in typed if each not in ("store", "as_json", *ServerArguments.__struct_fields__)]
    if others:
        raise click.UsageError(
            f"--deep, and options of a STORE, are not for a server: {server} has a quick look at its own"
        )
    arguments.check()
    from rocketlens.cli.show_diagnosis import Shown

    with ending_with_a_line(goes_on=False):
        with arguments.connect(server) as opened:
            diagnosis, where = opened.doctor(), opened.info().where  # of a name server its broker's
        shown = Shown(where, diagnosis, as_json=as_json)
        say(f"looked at by {where}: paths and commands are those of its machine")
        sys.exit(shown.end())
    raise AssertionError


def _examine(store: str, directories: Sequence[str], vouched: tuple[int, int] | None) -> "Examination":
    """Look at a store for seconds; what it cannot be ends the process, with a line and a code."""
    from storage.doctor.examine import look_at  # a usage error does not wait for it

    with ending_with_a_line(goes_on=False):
        refuse_tier(store, directories)
        return look_at(Path(store), tuple(map(Path, directories)), vouched)
    raise AssertionError
