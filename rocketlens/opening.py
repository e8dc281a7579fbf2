"""Open a store: the options that it takes, and what they become."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from protocol.errors import ConfigError
from protocol.mask import rules_of_file
from storage.files.own_directories import is_writable
from storage.files.write_guard import check_outside

if TYPE_CHECKING:
    from storage.store.message_store import MessageStore
    from storage.store.store_state import StoreIdentity

ENTRIES: Final = "entries"
"""Where in a state directory keys lie that were found by scanning the log."""


class StoreArguments(msgspec.Struct, frozen=True):
    """The options of opening a store; None for those that are not given."""

    commit_log_directories: tuple[Path, ...] | None = None
    index_slots: int | None = None
    index_entries: int | None = None
    state_directory: Path | None = None
    tier: Path | None = None
    masked: tuple[str, ...] = ()
    mask_files: tuple[str, ...] = ()

    @property
    def rules(self) -> tuple[str, ...]:
        """The rules of what is hidden of messages, those of files too; raises ConfigError."""
        return (*self.masked, *(rule for file in self.mask_files for rule in rules_of_file(file)))

    def check(self, path: Path, spelled: Mapping[str, str] | None = None) -> None:
        """Raise `ConfigError` for what cannot be said of the store at `path`; `spelled` is how a command names it."""
        names = {name: name for name in self.__struct_fields__} | dict(spelled or {})
        if (self.index_slots is None) != (self.index_entries is None):
            raise ConfigError(f"{names['index_slots']} and {names['index_entries']}: give both or neither")
        state = names["state_directory"]
        tiers = () if self.tier is None else (self.tier,)
        check_outside((path, *(self.commit_log_directories or ()), *tiers), {state: self.state_directory})
        if self.state_directory is not None and not is_writable(self.state_directory):
            raise ConfigError(f"{state} {self.state_directory}: cannot be written to")


NO_ARGUMENTS: Final = StoreArguments()


def open_message_store(
    path: Path,
    arguments: StoreArguments = NO_ARGUMENTS,
    *,
    scan_budget: int | None = None,
    check_budget: int | None = None,
    entries_directory: "Callable[[StoreIdentity], Path | None] | None" = None,
    keeps_state: bool = True,
) -> "MessageStore":
    """Open a store with arguments that were checked.

    `scan_budget` bounds the bytes of log scanned for keys that no index file covers, `check_budget` those of index
    files that are checked; None is all. Keys that were scanned before are read from `entries_directory`, and the state
    directory, which is the store's own below the user's unless another is given, is written to by who `keeps_state`.

    Raises `StoreError` for what is no store.
    """
    logs = arguments.commit_log_directories or ()
    from storage.store.message_store import MessageStore, StoreOptions
    from storage.store.state_place import known_state_directory

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
        tier=arguments.tier,
        entries_directory=entries_directory or (lambda _: state_directory and state_directory / ENTRIES),
    )
    return MessageStore.open(path, options)


def _new_state_directory(
    path: Path, commit_log_directories: tuple[Path, ...], identity: "StoreIdentity"
) -> Path | None:
    """Where to keep what is found out about a store of which nothing is kept yet; None if that is impossible."""
    from storage.store.state_place import can_be_had, default_state_directory

    try:
        directory = default_state_directory(path, identity)
        check_outside((path, *commit_log_directories), {"the state directory": directory})
    except ConfigError:
        return None
    return directory if can_be_had(directory) else None
