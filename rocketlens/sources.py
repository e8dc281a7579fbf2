"""Which source of messages a place is: what `rocketlens.open` decides."""

import json
import os
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypedDict, Unpack, cast, overload

from protocol.errors import ConfigError
from rocketlens.arguments import check_names
from rocketlens.opening import StoreArguments
from rocketlens.source import Source
from rocketlens.store import Store

if TYPE_CHECKING:
    import ssl


class DirectoryOptions(TypedDict, total=False):
    """The keyword arguments of :func:`open` for the directory of a store."""

    commit_log_directories: Iterable[str | PathLike[str]] | None
    index_slots: int | None
    index_entries: int | None
    state_directory: str | PathLike[str] | None
    tier: str | PathLike[str] | None
    mask: Iterable[str]


class ServerOptions(TypedDict, total=False):
    """The keyword arguments of :func:`open` for a server, those of :func:`connect`."""

    access_key: str | None
    secret_key: str | None
    tls: "bool | ssl.SSLContext"
    group: str
    timeout_seconds: float
    connect_timeout_seconds: float


class OpenOptions(DirectoryOptions, ServerOptions, total=False):
    """The keyword arguments of :func:`open`."""

    storage_options: Mapping[str, object] | None


OF_A_DIRECTORY: Final = frozenset(DirectoryOptions.__annotations__)
OF_A_SERVER: Final = frozenset(ServerOptions.__annotations__)
OF_A_URL: Final = frozenset(("mask", "storage_options"))
OF_SEVERAL: Final = frozenset(("index_slots", "index_entries", "mask"))


@overload
def open(source: PathLike[str], **options: Unpack[OpenOptions]) -> Store: ...


@overload
def open(source: str | Iterable[str | PathLike[str]], **options: Unpack[OpenOptions]) -> Source: ...


def open(source: str | PathLike[str] | Iterable[str | PathLike[str]], **options: Unpack[OpenOptions]) -> Source:
    """Open the messages at a place: what exists as a path is a store's directory, then come URLs, then ``HOST:PORT``.

    A directory is a stopped broker's, a running one's, or a backup; several directories are asked as one. A URL
    (``s3://…``, with `storage_options` of its file system) is read where it lies. A server is asked as by
    :func:`connect`, and takes its options.

    Of a directory `commit_log_directories` are where the log lies if not in `commitlog/` below it; `index_slots` and
    `index_entries` those of its index files, should the files not tell. What is found out about the store is kept in
    `state_directory`, by default below the user's state directory, so that it is opened faster the next time; nothing
    is ever written into the store. `tier` is the directory of the store's tiered files; a tier alone is given as
    `source`. `mask` are rules of what is hidden of messages (docs/security.md); by that none is found.

    Raises :class:`NotAStore` for anything else, :class:`ConfigError` for options that are impossible or not
    those of such a source.
    """
    check_names(options, OpenOptions)
    if not isinstance(source, str | PathLike):
        from rocketlens.several_stores import SeveralStores

        _refuse_others(options, OF_SEVERAL, "several directories")
        return SeveralStores([_directory(Path(each), options) for each in source])
    place = os.fspath(source)
    if isinstance(source, str) and not os.path.exists(place):
        if place.startswith("file://"):
            from spark_jobs.places.file_systems import local_path

            place = local_path(place)
        elif "://" in place:
            from rocketlens.url_store import UrlStore

            _refuse_others(options, OF_A_URL, "a URL")
            storage = options.get("storage_options")
            return UrlStore(place, "" if storage is None else json.dumps(dict(storage)), options.get("mask", ()))
        elif _is_address(place):
            from rocketlens.remote_plain import connect

            _refuse_others(options, OF_A_SERVER, "a server")
            return connect(place, **cast(ServerOptions, options))
    _refuse_others(options, OF_A_DIRECTORY, "a directory")
    return _directory(Path(place), options)


def _directory(path: Path, options: OpenOptions) -> Store:
    state, tier = options.get("state_directory"), options.get("tier")
    arguments = StoreArguments(
        tuple(map(Path, options.get("commit_log_directories") or ())),
        options.get("index_slots"),
        options.get("index_entries"),
        None if state is None else Path(state),
        None if tier is None else Path(tier),
        tuple(options.get("mask", ())),
    )
    arguments.check(path)
    return Store(path, arguments, warns=True)


def _is_address(place: str) -> bool:
    """Whether a place that is no path is the address of a server."""
    from broker.endpoint import Endpoint

    try:
        Endpoint.parse(place)
    except ConfigError:
        return False
    return True


def _refuse_others(options: Mapping[str, object], known: frozenset[str], what: str) -> None:
    """Raise ConfigError for an option that this kind of source does not have."""
    for name, value in options.items():
        if name not in known and value is not None:
            raise ConfigError(f"{name}: {what} has no such option, it has {', '.join(sorted(known))}")
