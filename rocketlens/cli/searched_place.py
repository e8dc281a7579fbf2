"""Where a search or look-up finds its store, and whether the tasks of an engine look there.

They do for a URL, and where an engine is named. Late imports: without that nothing of it is loaded.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rocketlens.cli.errors import say
from rocketlens.cli.opening import SPELLED, refuse_layout
from rocketlens.opening import StoreArguments
from spark_jobs.places.file_systems import is_url, local_path
from spark_jobs.run.engine import EngineOptions, check_spark

if TYPE_CHECKING:
    from spark_jobs.search.searched_store import SearchedStore


class StorePlace(EngineOptions, frozen=True, kw_only=True):
    """What the options say of the store and of the engine: path or URL, and options of its file system."""

    store: str
    storage: str

    @property
    def is_remote(self) -> bool:
        """Whether the store lies behind a URL that is not one of this machine's files."""
        return is_url(self.store)

    @property
    def needs_engine(self) -> bool:
        """Whether the tasks of an engine are to look; raises ConfigError for options that contradict each other."""
        return self.is_named or self.is_remote

    @property
    def directory(self) -> Path:
        """The store as a directory of this machine."""
        return Path(local_path(self.store))


@contextlib.contextmanager
def searched_store(
    place: StorePlace, arguments: StoreArguments, topic: str | None, *, with_keys: bool
) -> Iterator["SearchedStore"]:
    """Look at a store that an engine is going to search, for messages of a topic if one is given.

    `with_keys`: with every index file of a directory checked, and what the index lacks scanned. Raises ConfigError for
    options that a URL cannot have, and where Spark or Java is missing; StoreError for what is no store.
    """
    if place.is_remote:
        refuse_layout(arguments)
    if place.is_on_spark:
        check_spark()
    from rocketlens.by_tasks import StoreByTasks
    from spark_jobs.search.searched_store import searched_url

    if not place.is_remote:
        arguments.check(place.directory, SPELLED)
        yield StoreByTasks(place.directory, arguments, place, say).searched(with_keys=with_keys)
        return
    with searched_url(place.store, place.storage, topic) as searched:
        yield searched
