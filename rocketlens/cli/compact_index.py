"""`rocketlens compact index`; `spark_jobs/compact_index.py` is the same for spark-submit."""

from typing import Any

import click

from rocketlens.cli.command_options import (
    build_options,
    built_out_options,
    compact_options,
    index_options,
    keep_checkpoint_option,
    store_argument,
)
from rocketlens.cli.command_run import check_sent, compact, run_command
from rocketlens.cli.grouped_command import GroupedCommand


@click.command("index", cls=GroupedCommand)
@store_argument
@built_out_options
@compact_options
@index_options
@keep_checkpoint_option
@build_options
def compact_index(**options: Any) -> None:
    """Make the index of the store in STORE smaller and faster to read.

    Entries whose message is gone, and repeated entries of a key and message, are left out. The entries of a slot are
    put side by side, so that a look-up reads one or two pages of a file instead of one for each entry. Brokers read
    and continue such files as their own.

    Exit code 4: done, but the log is damaged.
    """
    run_command(compact, tasks="spark_jobs.compact.compact", check=check_sent, **options)
