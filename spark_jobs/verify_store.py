"""`rocketlens verify`, and the same for spark-submit: `spark-submit spark_jobs/verify_store.py STORE …`."""

from typing import Any

import click

from spark_jobs.commands.command_options import (
    delay_levels_option,
    job_options,
    limit_option,
    storage_option,
    store_argument,
    work_option,
)
from spark_jobs.commands.command_run import VERIFY_TASKS, run_command, verify


@click.command("verify")
@store_argument
@delay_levels_option
@limit_option
@work_option("a temporary one")
@storage_option
@job_options
def verify_store(**options: Any) -> None:
    """Check every message of the store in STORE, and every queue unit and index entry against them.

    STORE is a directory, or a URL such as s3://bucket/store.

    The store is only read. Exit code 0: nothing is wrong. 4: something is wrong; the report says what and where.
    """
    run_command(verify, goes_on=False, tasks=VERIFY_TASKS, **options)


if __name__ == "__main__":
    verify_store()
