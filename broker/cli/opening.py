"""Open a store for a command."""

import gc
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from protocol.errors import ConfigError
from storage.files.own_directories import is_writable
from storage.files.write_guard import check_outside

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.store.message_store import MessageStore
    from storage.store.store_state import StoreIdentity

ENTRIES = "entries"
"""Where in a state directory keys lie that were found by scanning the log."""


class StoreArguments(msgspec.Struct, frozen=True):
    """What a command's options say of the store that it opens; None where an option was not given."""

    commit_log_directories: tuple[Path, ...] | None = None
    index_slots: int | None = None
    index_entries: int | None = None
    state_directory: Path | None = None

    def check(self, path: Path) -> None:
        """Raise `ConfigError` for options of the store at `path` that cannot be."""
        if (self.index_slots is None) != (self.index_entries is None):
            raise ConfigError("--index-slots and --index-entries are given together or not at all")
        check_outside((path, *(self.commit_log_directories or ())), {"--state-dir": self.state_directory})
        if self.state_directory is not None and not is_writable(self.state_directory):
            raise ConfigError(f"--state-dir {self.state_directory}: cannot be written to")


NO_ARGUMENTS = StoreArguments()


def _new_state_directory(
    path: Path, commit_log_directories: tuple[Path, ...], identity: "StoreIdentity"
) -> Path | None:
    """Where to keep what is found out about a store of which nothing is kept yet; None where that cannot be."""
    from broker.service.state_directory import can_be_had, default_state_directory

    try:
        directory = default_state_directory(path, identity)
        check_outside((path, *commit_log_directories), {"the state directory": directory})
    except ConfigError:
        return None
    return directory if can_be_had(directory) else None


def open_store(
    path: Path,
    arguments: StoreArguments = NO_ARGUMENTS,
    *,
    scan_budget: int | None = None,
    check_budget: int | None = None,
    entries_directory: "Callable[[StoreIdentity], Path | None] | None" = None,
    keeps_state: bool = True,
) -> "MessageStore":
    """Open a store as the shared options say.

    `scan_budget` bounds the bytes of log scanned for keys that no index file covers, `check_budget` those of index
    files that are checked; None is all. Keys that were scanned before are read from `entries_directory`, and the state
    directory, which is the store's own below the user's unless another is given, is written to by who `keeps_state`.

    Raises `ConfigError` for options that cannot be, `StoreError` for what is no store.
    """
    arguments.check(path)
    logs = arguments.commit_log_directories or ()
    # What a start makes lives as long as the process: looking for garbage in it takes a tenth of the start.
    gc.disable()
    try:
        from broker.service.state_directory import known_state_directory
        from storage.store.message_store import MessageStore, StoreOptions

        state_directory = arguments.state_directory or known_state_directory(path)
        options = StoreOptions(
            commit_log_directories=logs,
            index_slots=arguments.index_slots,
            index_entries=arguments.index_entries,
            state_directory=state_directory,
            scan_budget=scan_budget,
            check_budget=check_budget,
            keeps_state=keeps_state,
            new_state_directory=partial(_new_state_directory, path, logs),
            entries_directory=entries_directory or (lambda _: state_directory and state_directory / ENTRIES),
        )
        return MessageStore.open(path, options)
    finally:
        gc.enable()
