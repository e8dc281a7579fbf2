"""Open what a command reads: a store, or a server that runs."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from broker.endpoint import Endpoint
from rocketlens.cli.options import DIRECTORY, gathered, is_typed, store_options
from rocketlens.cli.server_options import ServerArguments, server_option, server_options
from rocketlens.opening import NO_ARGUMENTS, StoreArguments

if TYPE_CHECKING:
    import rocketlens
    from rocketlens.store import Store

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


class Source(msgspec.Struct, frozen=True):
    """What a command reads, by its arguments: a store, or a server."""

    store: Path | None
    server: Endpoint | None
    store_arguments: StoreArguments
    server_arguments: ServerArguments

    def open(self) -> "rocketlens.Store | rocketlens.RemoteStore":
        """As `open_source`."""
        return open_source(self.store, self.server, self.store_arguments, self.server_arguments)


def source_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add STORE and --server with the options of each to a command; it gets them as `source`."""
    command = store_options(server_options(gathered(source=Source)(command)))
    return click.argument("store", type=DIRECTORY, required=False)(server_option(command))


def refuse_store_options(arguments: StoreArguments) -> None:
    """Raise a usage error if an option of a STORE was typed, because a server is asked.

    What a mask hides would be shown, so one in the environment is refused too.
    """
    if arguments.masked or arguments.mask_files:
        raise click.UsageError("--mask and --mask-file are for a STORE, not for a server; also in the environment")
    if is_typed(*StoreArguments.__struct_fields__):
        raise click.UsageError("options of a STORE cannot be used with a server")


def open_source(
    store: Path | None, server: Endpoint | None, store_arguments: StoreArguments, server_arguments: ServerArguments
) -> "rocketlens.Store | rocketlens.RemoteStore":
    """Open the store, or connect to the brokers, that the arguments of a command name.

    A store that is typed counts more than a server in the environment. Raises as `open_store`, and a usage error for
    both, for neither, and for options that are typed of the one that is not named.
    """
    if store is not None and not is_typed("server"):
        server_arguments.refuse()
        return open_store(store, store_arguments)
    if server is None or store is not None:
        raise click.UsageError("expected either STORE or --server")
    refuse_store_options(store_arguments)
    server_arguments.check()
    return server_arguments.connect(server)
