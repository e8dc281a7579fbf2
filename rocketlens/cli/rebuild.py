"""`rocketlens rebuild`: index files and queues from the log, in bulk."""

import click

from rocketlens.cli.lazy_group import Later, LazyGroup


@click.group(
    cls=LazyGroup,
    later={
        "index": Later("rocketlens.cli.rebuild_index:rebuild_index", "Build the index files anew."),
        "queues": Later("rocketlens.cli.rebuild_queues:rebuild_queues", "Build the queues anew."),
        "clean": Later("rocketlens.cli.clean:clean_place", "List or remove what killed jobs left where output goes."),
        "fetch": Later("rocketlens.cli.fetch:fetch_store", "Bring what was rebuilt behind a URL into a store."),
        "all": Later(
            "rocketlens.cli.rebuild_all:rebuild_all", "Build index files and queues anew, reading the log once."
        ),
    },
)
def rebuild() -> None:
    """Build the index files or queues of a store anew, as a broker would have, on all cores or a Spark cluster.

    Without --out the new directories replace the store's own, each in one step, and the old ones are kept; no broker
    may be using the store then. Run the same command again to continue a run that was stopped.
    """
