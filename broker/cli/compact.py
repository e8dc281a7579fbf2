"""`rocketlens compact`: less to keep and less to read for the same answers."""

import click

from broker.cli.lazy_group import Later, LazyGroup


@click.group(
    cls=LazyGroup,
    later={"index": Later("spark_jobs.compact_index:compact_index", "Make index files smaller and faster to read.")},
)
def compact() -> None:
    """Make the index of a store smaller and faster to read, on all cores or a Spark cluster."""
