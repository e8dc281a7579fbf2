"""`rocketlens rebuild`: index files and queues from the log, in bulk."""

import click

from broker.cli.lazy_group import LazyGroup


@click.group(
    cls=LazyGroup,
    later={
        "index": "spark_jobs.rebuild_index:rebuild_index",
        "queues": "spark_jobs.rebuild_queues:rebuild_queues",
        "all": "spark_jobs.rebuild_all:rebuild_all",
    },
)
def rebuild() -> None:
    """Build the index files or queues of a store anew, as a broker would have, on all cores or a Spark cluster.

    Without --out the new directories take the place of the store's own, each in one step, and the old ones are kept;
    no broker may be using the store then. A run that was stopped goes on where it was.
    """
