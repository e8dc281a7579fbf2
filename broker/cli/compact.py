"""`rocketlens compact`: less to keep and less to read for the same answers."""

import click

from broker.cli.lazy_group import LazyGroup


@click.group(cls=LazyGroup, later={"index": "spark_jobs.compact_index:compact_index"})
def compact() -> None:
    """Make the index of a store smaller and faster to read, on all cores or a Spark cluster."""
