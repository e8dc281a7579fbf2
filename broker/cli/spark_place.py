"""Where a search or look-up finds its store, and whether Spark looks there: it does for a URL, and where it is named.

Late imports: without Spark nothing of it is loaded.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from broker.cli.errors import say
from broker.cli.opening import open_store
from protocol.errors import ConfigError
from rocketlens.opening import StoreArguments
from spark_jobs.places.file_systems import is_url, local_path

if TYPE_CHECKING:
    from spark_jobs.search.search import SparkTarget
    from spark_jobs.search.searched_store import SearchedStore


class StorePlace(msgspec.Struct, frozen=True):
    """What the options say of the store and of Spark: path or URL, options of its file system, master, properties."""

    store: str
    storage: str
    master: str
    settings: dict[str, str]

    @property
    def is_remote(self) -> bool:
        """Whether the store lies behind a URL that is not one of this machine's files."""
        return is_url(self.store)

    @property
    def needs_spark(self) -> bool:
        """Whether Spark is to look."""
        return bool(self.master or self.settings) or self.is_remote

    @property
    def directory(self) -> Path:
        """The store as a directory of this machine."""
        return Path(local_path(self.store))

    @property
    def spark(self) -> "SparkTarget":
        """The Spark that looks."""
        from spark_jobs.search.search import SparkTarget

        return SparkTarget(self.master, self.settings, say)


@contextlib.contextmanager
def searched_store(
    place: StorePlace, arguments: StoreArguments, topic: str | None, *, with_keys: bool
) -> Iterator["SearchedStore"]:
    """Look at a store that Spark is going to search, for messages of a topic if one is given.

    `with_keys`: with every index file of a directory checked, and what the index lacks scanned. Raises ConfigError for
    options that a URL cannot have, and where Spark or Java is missing; StoreError for what is no store.
    """
    from spark_jobs.commands.command_run import check_spark

    if place.is_remote:
        _refuse_options(arguments)
    check_spark()
    from rocketlens.store import message_store_of
    from spark_jobs.search.searched_store import SearchedStore, searched_url

    if not place.is_remote:
        opened = open_store(place.directory, arguments)
        yield SearchedStore(message_store_of(opened, "a search with Spark", with_keys=with_keys, masks=True))
        return
    with searched_url(place.store, place.storage, topic) as searched:
        yield searched


def _refuse_options(arguments: StoreArguments) -> None:
    """Raise ConfigError for options that only a directory can have."""
    given = {
        "--commit-log": arguments.commit_log_directories,
        "--index-slots": arguments.index_slots,
        "--index-entries": arguments.index_entries,
        "--state-dir": arguments.state_directory,
        "--tier": arguments.tier,
    }
    name = next((name for name, value in given.items() if value), None)
    if name is not None:
        raise ConfigError(f"{name} and a STORE that is a URL cannot be combined")
