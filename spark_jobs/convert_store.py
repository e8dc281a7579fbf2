"""`rocketlens convert`, and the same for spark-submit: `spark-submit spark_jobs/convert_store.py STORE …`."""

from typing import Any

import click

from spark_jobs.commands.command_options import (
    DIRECTORY,
    delay_levels_option,
    dry_run_option,
    fresh_option,
    index_options,
    job_options,
    storage_option,
    store_argument,
    without_config_option,
    work_option,
)
from spark_jobs.commands.command_run import JobOptions, convert, run_command


def check(options: JobOptions) -> None:
    """Raise ConfigError for options that cannot be, before anything is started."""
    from spark_jobs.convert.convert_request import ConvertRequest  # help does without

    ConvertRequest(**options)


@click.command("convert")
@store_argument
@click.option(
    "--out",
    type=DIRECTORY,
    metavar="DIR",
    required=True,
    help="Where the new store goes: a directory that is not there yet, or empty. It gets there in one step, once it is "
    "complete.",
)
@index_options
@delay_levels_option
@without_config_option
@work_option("beside --out, with .rocketlens-work at the end of its name")
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


if __name__ == "__main__":
    convert_store()
