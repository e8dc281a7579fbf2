"""Open what a command reads, its SOURCE: what exists as a path, a URL, or the address of a server that runs."""

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from broker.endpoint import Endpoint
from protocol.errors import ConfigError, NoSuchTopic, RocketLensError
from rocketlens.cli.command_options import storage_option_where
from rocketlens.cli.errors import about_store, say
from rocketlens.cli.options import DIRECTORY, gathered, is_typed, store_options
from rocketlens.cli.server_options import ServerArguments, server_option, server_options
from rocketlens.opening import NO_ARGUMENTS, StoreArguments
from spark_jobs.places.file_systems import is_url, local_path

if TYPE_CHECKING:
    from types import FrameType

    from rocketlens.source import Source
    from rocketlens.store import Store
    from spark_jobs.run.engine import EngineOptions

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


HINT: Final = "a part of a body is found by `search --contains`; keys are compared whole, and case counts"
"""What an answer says that nothing is named so, as the page does."""


def absence_of(source: "Source", topic: str | None) -> str:
    """A sentence that a source does not have a topic, and which may be meant instead.

    Empty where the source has it, or does not say which it has, and for no topic.
    """
    # Most commands start without what these need.
    from protocol.system_topics import LIGHT_PREFIX
    from storage.names import did_you_mean, similar_names

    if topic is None:
        return ""
    try:
        known = source.topics()
        names = [each.name for each in known]
        if topic in names or not known.is_whole:
            return ""
        if topic.startswith(LIGHT_PREFIX) and source.queues(topic):  # these are in no list
            return ""
    except RocketLensError:
        return ""
    return str(NoSuchTopic(topic, did_you_mean(similar_names(topic, names))))


def each_store(source: "Source", output_format: str = "json") -> Iterator["Source"]:
    """Each of several stores, whose name stands meanwhile in tables and maps and before what is said; else a source.

    For commands about one store; an empty line parts the outputs for people.
    """
    from rocketlens.several_stores import SeveralStores  # few have several

    if not isinstance(source, SeveralStores):
        yield source
        return
    for number, (where, store) in enumerate(source.stores.items()):
        if number and output_format == "table":
            click.echo("")
        with about_store(where):
            yield store


def say_nothing_is_named(reason: str, absence: str, details: str = "", *, hints: bool = True) -> None:
    """Print why a text names nothing: that its topic is nowhere, else the reason that a source gives, with a hint.

    `details` are what was searched in vain.
    """
    for line in (absence or reason, details, HINT if hints and not absence else ""):
        if line:
            say(line)


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
        """The words that are typed behind SOURCE."""
        return self.words if self.place is None else self.words[1:]

    @property
    def is_named(self) -> bool:
        """Whether it was typed where to look, and not only what for."""
        first = self.words[0] if self.words else ""
        return bool(self.stores) or is_typed("server") or _is_place(first) or address_in(first) is not None

    def one_of(self, option: str | None) -> str | None:
        """Return the one word that is typed behind SOURCE or by an option; None without one, a usage error for more."""
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
        if self.place is None:
            return self.stores
        return () if is_url(self.place) else (Path(local_path(self.place)),)

    def open(self, engine: "EngineOptions | None" = None, *, connects_too: bool = False) -> "Source":
        """Open it; with an `engine` that is named its tasks read the log of a store, and search it.

        Where a command `connects_too`, to another server, the options of connections are for that one as well.

        Raises as `open_store`, and a usage error for options that are typed of a source of another kind.
        """
        if engine is not None and not engine.is_named:
            engine = None
        place = self.place
        if (place is None and not self.stores and self.server is None) or (self.stores and is_typed("server")):
            raise click.UsageError(EXPECTED)
        server = None if place is not None or self.stores else self.server
        if place is not None and not os.path.exists(place):
            if is_url(place):
                if not connects_too:
                    self.server_arguments.refuse()
                return self._url(place, engine)
            server = address_in(place)
        if server is not None:
            if is_typed("engine", "master", "settings"):
                raise click.UsageError("--engine, --master and --conf are for a STORE, not for a server")
            refuse_store_options(self.store_arguments)
            self.server_arguments.check()
            return self.server_arguments.connect(server)
        if not connects_too:
            self.server_arguments.refuse()
        if engine is not None:
            return self._by_tasks(engine)
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

    def _by_tasks(self, engine: "EngineOptions") -> "Source":
        from rocketlens.by_tasks import StoreByTasks  # few commands name an engine

        if len(self.directories) > 1:
            raise ConfigError("--engine, --master and --conf are for one store, and several are named")
        path, arguments = self.directories[0], self.store_arguments
        arguments.check(path, SPELLED)
        _check_spark(engine)
        return StoreByTasks(path, arguments, engine, say)

    def _url(self, place: str, engine: "EngineOptions | None") -> "Source":
        refuse_layout(self.store_arguments)
        if engine is not None:
            _check_spark(engine)
        return open_url(place, self.storage, self.store_arguments.rules, engine)


def open_url(place: str, storage: str, rules: Sequence[str] = (), engine: "EngineOptions | None" = None) -> "Source":
    """A store behind a URL; what was copied of it is gone even where SIGTERM ends the process."""
    from rocketlens.url_store import UrlStore  # few stores are behind one

    def leave(number: int, _frame: "FrameType | None") -> None:
        sys.exit(128 + number)

    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, leave)
    return UrlStore(place, storage, rules, engine, say)


several_option = click.option(
    "--store",
    "stores",
    multiple=True,
    type=DIRECTORY,
    metavar="DIR",
    help="A store's directory, instead of SOURCE; repeatable.",
)


def source_options(metavar: str = "SOURCE") -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add SOURCE, with the options of each kind of it; a command gets them as `source`.

    `metavar` is how help calls it, with what the command takes behind it.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        command = store_options(server_options(gathered(source=SourceArguments)(command)))
        command = server_option(storage_option_where("SOURCE is a URL")(command))
        command = several_option(command)
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


def refuse_servers(*places: str) -> None:
    """Raise ConfigError for the address of a server, where a command reads the files of a store."""
    for place in places:
        if not os.path.exists(place) and address_in(place) is not None:
            raise ConfigError(f"{place} is a server, and the files of a store are read here: name its directory")


def address_in(place: str) -> Endpoint | None:
    """The address that a text is, of a server; None where it is none."""
    try:
        return Endpoint.parse(place)
    except ConfigError:
        return None


def _check_spark(engine: "EngineOptions") -> None:
    """Raise ConfigError where tasks are to run on Spark, and that or Java is missing."""
    if engine.is_on_spark:
        from spark_jobs.run.engine import check_spark

        check_spark()


def _is_place(text: str) -> bool:
    """Whether a text can be nothing but a SOURCE: a path that exists, or a URL."""
    return "://" in text or os.path.exists(text)
