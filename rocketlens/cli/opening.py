"""Open what a command reads, its SOURCE: what exists as a path, a URL, or the address of a server that runs."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from broker.endpoint import Endpoint
from protocol.errors import ConfigError
from rocketlens.cli.command_options import storage_option_where
from rocketlens.cli.options import DIRECTORY, gathered, is_typed, store_options
from rocketlens.cli.server_options import ServerArguments, server_option, server_options
from rocketlens.opening import NO_ARGUMENTS, StoreArguments
from spark_jobs.places.file_systems import is_url, local_path

if TYPE_CHECKING:
    from rocketlens.source import Source
    from rocketlens.store import Store

EXPECTED: Final = "expected one SOURCE: the directory of a store, a URL, or the HOST:PORT of a broker or name server"

SPELLED: Final = {
    "index_slots": "--index-slots",
    "index_entries": "--index-entries",
    "state_directory": "--state-dir",
}
"""How commands spell the options of a store."""


def open_store(path: Path, arguments: StoreArguments = NO_ARGUMENTS) -> "Store":
    """Open a store as the shared options say.

    Raises `ConfigError` for options that are wrong, named as on the command line, and `StoreError` for a directory that
    is no store.
    """
    from rocketlens.store import Store

    arguments.check(path, SPELLED)
    return Store(path, arguments)


def meant_instead(store: "Store", topic: str) -> str:
    """The end of a sentence that asks for a topic that may be meant instead of one that a store does not have.

    Empty where the store has it, or none like it.
    """
    # Most commands start without what these need.
    from rocketlens.store import message_store_of
    from storage.names import did_you_mean
    from storage.store.topic_catalog import similar_topics

    proposed = similar_topics(message_store_of(store, with_keys=False, masks=True), topic)
    return f"; {did_you_mean(proposed)}" if proposed else ""


class SourceArguments(msgspec.Struct, frozen=True):
    """What a command reads, by its arguments, and the words that were typed behind it."""

    words: tuple[str, ...]
    stores: tuple[Path, ...]
    server: Endpoint | None
    storage: str
    store_arguments: StoreArguments
    server_arguments: ServerArguments

    @property
    def place(self) -> str | None:
        """The SOURCE that is typed first; None where --store says it, or a server that was named as formerly.

        What is typed counts more than a server in the environment.
        """
        if self.stores or is_typed("server") or not self.words:
            return None
        return self.words[0] if self.server is None or _is_place(self.words[0]) else None

    @property
    def rest(self) -> tuple[str, ...]:
        """What is typed behind SOURCE."""
        return self.words if self.place is None else self.words[1:]

    @property
    def is_named(self) -> bool:
        """Whether it was typed where to look, and not only what for."""
        first = self.words[0] if self.words else ""
        return bool(self.stores) or is_typed("server") or _is_place(first) or address_in(first) is not None

    def one_of(self, option: str | None) -> str | None:
        """What is typed once, behind SOURCE or by an option; None for neither, and a usage error for more."""
        found = (*self.rest, *(() if option is None else (option,)))
        if len(found) > 1:
            raise click.UsageError(f"{EXPECTED}; behind it only one word is taken, got {', '.join(found)}")
        return found[0] if found else None

    def refuse_rest(self) -> None:
        """Raise a usage error for words behind SOURCE, where none is taken."""
        if self.rest:
            raise click.UsageError(f"{EXPECTED}; got {', '.join(self.words)} as well")

    @property
    def directories(self) -> tuple[Path, ...]:
        """The directories that are read, where a store is: nothing may be written into them."""
        return self.stores if self.place is None else (Path(local_path(self.place)),)

    def open(self) -> "Source":
        """Open it. Raises as `open_store`, and a usage error for options that are typed of a source of another kind."""
        place = self.place
        if (place is None and not self.stores and self.server is None) or (self.stores and is_typed("server")):
            raise click.UsageError(EXPECTED)
        server = None if place is not None or self.stores else self.server
        if place is not None and not os.path.exists(place):
            if is_url(place):
                return self._url(place)
            server = address_in(place)
        if server is not None:
            refuse_store_options(self.store_arguments)
            self.server_arguments.check()
            return self.server_arguments.connect(server)
        self.server_arguments.refuse()
        stores = [open_store(path, self.store_arguments) for path in self.directories]
        if len(stores) == 1:
            return stores[0]
        from rocketlens.several_stores import SeveralStores  # few have several

        return SeveralStores(stores)

    def open_by_ids(self) -> "Source":
        """Connect to no server yet: to the one whose address is in each offset message id."""
        if self.stores or is_typed("server"):
            raise click.UsageError("--from-id takes no SOURCE: the address in each id says whom to ask")
        refuse_store_options(self.store_arguments)
        self.server_arguments.check()
        return self.server_arguments.connect(None)

    def _url(self, place: str) -> "Source":
        from rocketlens.url_store import UrlStore  # few stores are behind one

        self.server_arguments.refuse()
        refuse_layout(self.store_arguments)
        return UrlStore(place, self.storage, self.store_arguments.rules)


def source_options(metavar: str = "SOURCE") -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add SOURCE, with the options of each kind of it; a command gets them as `source`.

    `metavar` is how help calls it, with what the command takes behind it.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        command = store_options(server_options(gathered(source=SourceArguments)(command)))
        command = server_option(storage_option_where("SOURCE is a URL")(command))
        command = click.option(
            "--store",
            "stores",
            multiple=True,
            type=DIRECTORY,
            metavar="DIR",
            help="The directory of a store, in the place of SOURCE; repeatable, for stores that are asked as one.",
        )(command)
        return click.argument("words", nargs=-1, metavar=metavar)(command)

    return decorate


def refuse_store_options(arguments: StoreArguments) -> None:
    """Raise a usage error if an option of a STORE was typed, because a server is asked.

    What a mask hides would be shown, so one in the environment is refused too.
    """
    if arguments.masked or arguments.mask_files:
        raise click.UsageError("--mask and --mask-file are for a STORE, not for a server; also in the environment")
    if is_typed(*StoreArguments.__struct_fields__):
        raise click.UsageError("options of a STORE cannot be used with a server")


def refuse_layout(arguments: StoreArguments) -> None:
    """Raise ConfigError for options that only a directory can have, because a URL is read."""
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


def address_in(place: str) -> Endpoint | None:
    """The address that a text is, of a server; None where it is none."""
    try:
        return Endpoint.parse(place)
    except ConfigError:
        return None


def _is_place(text: str) -> bool:
    """Whether a text can be nothing but a SOURCE: a path that exists, or a URL."""
    return "://" in text or os.path.exists(text)
