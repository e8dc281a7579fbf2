"""`rocketlens rebuild index`; `spark_jobs/rebuild_index.py` is the same for spark-submit."""

from typing import Any

import click

from rocketlens.cli.command_options import (
    allow_fewer_option,
    built_out_options,
    drop_backup_option,
    dry_run_option,
    exchange_option,
    fresh_option,
    from_offset_option,
    index_options,
    job_options,
    keep_checkpoint_option,
    storage_option,
    store_argument,
    work_option,
)
from rocketlens.cli.command_run import check_sent, rebuild, run_command
from rocketlens.cli.grouped_command import GroupedCommand


@click.command("index", cls=GroupedCommand)
@store_argument
@built_out_options
@index_options
@from_offset_option
@keep_checkpoint_option
@drop_backup_option
@allow_fewer_option
@work_option(".rocketlens-work in --out, or in STORE")
@storage_option
@exchange_option
@fresh_option
@dry_run_option
@job_options
def rebuild_index(**options: Any) -> None:
    """Build the index files of the store in STORE anew, from its commit log.

    The files are, byte for byte, those that a broker would have made from the same log. Intact files at the front are
    kept. Damage in the log is skipped and listed; without --out, the log ends at damage at which the broker is going
    to cut it.

    Exit code 4: done, but the log is damaged.
    """
    run_command(rebuild, check=check_sent, index=True, **options)
