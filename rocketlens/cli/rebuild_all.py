"""`rocketlens rebuild all`; `spark_jobs/rebuild_all.py` is the same for spark-submit."""

from typing import Any

import click

from rocketlens.cli.command_options import (
    build_options,
    built_out_options,
    from_offset_option,
    index_options,
    keep_checkpoint_option,
    queue_options,
    store_argument,
)
from rocketlens.cli.command_run import check_sent, rebuild, run_command
from rocketlens.cli.grouped_command import GroupedCommand


@click.command("all", cls=GroupedCommand)
@store_argument
@built_out_options
@index_options
@from_offset_option
@queue_options
@keep_checkpoint_option
@build_options
def rebuild_all(**options: Any) -> None:
    """Build the index files and the queues of the store in STORE anew, from one pass over its commit log.

    The result is that of `rebuild index` and `rebuild queues`; their help has details.

    Exit code 4: done, but the log is damaged.
    """
    run_command(rebuild, check=check_sent, index=True, queues=True, **options)
