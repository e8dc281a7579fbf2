"""`rocketlens rebuild index`; `spark_jobs/rebuild_index.py` is the same for spark-submit."""

from typing import Any

import click

from rocketlens.cli.command_options import (
    build_options,
    built_out_options,
    from_offset_option,
    index_options,
    keep_checkpoint_option,
    store_argument,
)
from rocketlens.cli.command_run import check_sent, rebuild, run_command
from rocketlens.cli.grouped_command import GroupedCommand


@click.command("index", cls=GroupedCommand)
@store_argument
@built_out_options
@index_options
@from_offset_option
@keep_checkpoint_option
@build_options
def rebuild_index(**options: Any) -> None:
    """Build the index files of the store in STORE anew, from its commit log.

    The files are, byte for byte, those that a broker would have made from the same log. Intact files at the front are
    kept. Damage in the log is skipped and listed; without --out, the log ends at damage at which the broker is going
    to cut it.

    Exit code 4: done, but the log is damaged.
    """
    run_command(rebuild, check=check_sent, index=True, **options)
