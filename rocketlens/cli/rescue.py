"""`rocketlens rescue`; `spark_jobs/rescue_store.py` is the same for spark-submit."""

from typing import Any

import click

from rocketlens.cli.command_options import (
    COUNT,
    DIRECTORY,
    dry_run_option,
    fresh_option,
    job_options,
    new_store_option,
    new_store_options,
    store_argument,
)
from rocketlens.cli.command_run import JobOptions, rescue, run_command
from rocketlens.cli.grouped_command import GroupedCommand


def check(options: JobOptions) -> None:
    """Raise ConfigError for options that cannot be, before anything is started."""
    from spark_jobs.convert.rescue_request import RescueRequest  # help does without

    RescueRequest(**options)


@click.command("rescue", cls=GroupedCommand)
@store_argument
@new_store_option("NEW")
@click.option(
    "--link",
    is_flag=True,
    help="Give sound segments a second name and do not copy them; never the last one. A broker on the new store then "
    "has them in common with STORE: start none on STORE any more.",
)
@click.option(
    "--fill-from",
    "fill_from",
    multiple=True,
    type=DIRECTORY,
    metavar="COPY",
    help="The store of a slave or an older copy, from which holes of the log are filled, where it fits: what is beside "
    "a hole is the same in COPY, byte for byte, and all messages in it are sound. Repeatable; the first that fits "
    "counts. COPY is only read.",
)
@click.option(
    "--segment-size",
    type=COUNT,
    metavar="BYTES",
    help="The broker's mappedFileSizeCommitLog, where the files do not show it. [default: what most files have]",
)
@new_store_options
@fresh_option
@dry_run_option
@job_options
def rescue_store(**options: Any) -> None:
    """Make a whole store of the damaged one in STORE, on which a stock broker starts and keeps all that can be read.

    Physical offsets stay, and with them ids, queues, and the offsets of consumers. Where the log is damaged the new one
    has fillers, over which a broker's recovery walks and which no consumer gets; queues and index are built anew, and
    configuration and timers are taken over. STORE is not changed; no broker may be running on it. What is lost is
    named. A store of DLedger's becomes a plain one, as by `convert`.

    Exit code 4: done, but the log is damaged; what is lost is listed.
    """
    run_command(rescue, check=check, tasks="spark_jobs.convert.mend", **options)
