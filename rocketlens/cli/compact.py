"""`rocketlens compact`: less to keep and less to read for the same answers."""

import click

from rocketlens.cli.lazy_group import Later, LazyGroup


@click.group(
    cls=LazyGroup,
    later={
        "index": Later("rocketlens.cli.compact_index:compact_index", "Make index files smaller and faster to read.")
    },
)
def compact() -> None:
    """Make the index of a store smaller and faster to read, on all cores or a Spark cluster."""
