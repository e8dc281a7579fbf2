"""Open a store for a command."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

from rocketlens.opening import NO_ARGUMENTS, StoreArguments

if TYPE_CHECKING:
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
