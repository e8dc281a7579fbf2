"""`rocketlens rebuild queues`; `spark_jobs/rebuild_queues.py` is the same for spark-submit."""

from typing import Any

import click

from rocketlens.cli.command_options import (
    build_options,
    built_out_options,
    queue_options,
    store_argument,
)
from rocketlens.cli.command_run import check_sent, rebuild, run_command
from rocketlens.cli.grouped_command import GroupedCommand


@click.command("queues", cls=GroupedCommand)
@store_argument
@built_out_options
@queue_options
@build_options
def rebuild_queues(**options: Any) -> None:
    """Build the queues of the store in STORE anew, from its commit log: consumequeue, batchconsumequeue and
    consumequeue_ext.

    Queue offsets do not change, so consumers continue where they were. Damage in the log is skipped and listed;
    without --out, the log ends at damage at which the broker is going to cut it.

    Exit code 4: done, but the log is damaged.
    """
    run_command(rebuild, check=check_sent, queues=True, **options)
