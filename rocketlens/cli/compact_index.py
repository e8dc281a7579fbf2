"""`rocketlens compact index`; `spark_jobs/compact_index.py` is the same for spark-submit."""

from typing import Any

import click

from rocketlens.cli.command_options import (
    allow_fewer_option,
    built_out_options,
    compact_options,
    drop_backup_option,
    dry_run_option,
    exchange_option,
    fresh_option,
    index_options,
    job_options,
    keep_checkpoint_option,
    storage_option,
    store_argument,
    work_option,
)
from rocketlens.cli.command_run import check_sent, compact, run_command
from rocketlens.cli.grouped_command import GroupedCommand


@click.command("index", cls=GroupedCommand)
@store_argument
@built_out_options
@compact_options
@index_options
@keep_checkpoint_option
@drop_backup_option
@allow_fewer_option
@work_option(".rocketlens-work in --out, or in STORE")
@storage_option
@exchange_option
@fresh_option
@dry_run_option
@job_options
def compact_index(**options: Any) -> None:
    """Make the index of the store in STORE smaller and faster to read.

    Entries whose message is gone, and repeated entries of a key and message, are left out. The entries of a slot are
    put side by side, so that a look-up reads one or two pages of a file instead of one for each entry. Brokers read
    and continue such files as their own.

    Exit code 4: done, but the log is damaged.
    """
    run_command(compact, tasks="spark_jobs.compact.compact", check=check_sent, **options)
