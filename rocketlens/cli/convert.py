"""`rocketlens convert`; `spark_jobs/convert_store.py` is the same for spark-submit."""

from typing import Any

import click

from rocketlens.cli.command_options import (
    dry_run_option,
    fresh_option,
    job_options,
    new_store_option,
    new_store_options,
    storage_option,
    store_argument,
)
from rocketlens.cli.command_run import JobOptions, convert, run_command
from rocketlens.cli.grouped_command import GroupedCommand


def check(options: JobOptions) -> None:
    """Raise ConfigError for options that cannot be, before anything is started."""
    from spark_jobs.convert.convert_request import ConvertRequest  # help does without

    ConvertRequest(**options)


@click.command("convert", cls=GroupedCommand)
@store_argument
@new_store_option("DIR")
@new_store_options
@storage_option
@fresh_option
@dry_run_option
@job_options
def convert_store(**options: Any) -> None:
    """Make a plain store of the DLedger store in STORE, on which a broker starts without enableDLegerCommitLog.

    Every message, its queue offset, and the offsets of all consumers stay; what changes are physical offsets, and with
    them offset message ids. The log becomes plain records, index and queues are built anew, configuration and timers
    are taken over. STORE is not changed; no broker may be running on it.

    Exit code 4: done, but the log is damaged; what is damaged is left out.
    """
    run_command(convert, check=check, tasks="spark_jobs.convert.convert", **options)
