"""Where the state of a store is kept by default: below the user's own state directory, never inside the store."""

import hashlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from protocol.errors import ConfigError

if TYPE_CHECKING:  # commands that open a store look for its directory before they load what opens it
    from storage.store.store_state import StoreIdentity


class UnusableDirectory(ConfigError):
    """The directory cannot be written to."""


def default_state_directory(store: Path, identity: "StoreIdentity") -> Path:
    """Where the state of a store is kept by default: below the user's state directory, by the store's names.

    Two stores of brokers with one name are distinguished by their paths. Raises `UnusableDirectory` for a user without
    a home directory.
    """
    names = re.sub(r"[^\w.-]", "_", f"{identity.cluster}-{identity.broker_name}")[:100]
    return _default_root() / f"{names}-{_place_of(store)}"


def known_state_directory(store: Path) -> Path | None:
    """The default one that an earlier server has made for a store, whose names need not be known; None without any."""
    try:
        found = list(_default_root().glob(f"*-{_place_of(store)}"))
    except (UnusableDirectory, OSError):
        return None
    return found[0] if len(found) == 1 and can_be_had(found[0]) else None


def readings_directory(store: Path) -> Path:
    """Where it is kept how far a store was read and found sound. Raises as `default_state_directory` does."""
    return _default_root() / f"{_place_of(store)}-readings"


def _default_root() -> Path:
    root = os.environ.get("XDG_STATE_HOME")
    if not root or not os.path.isabs(root):
        try:
            root = str(Path.home() / ".local" / "state")
        except RuntimeError as error:
            raise UnusableDirectory("there is no home directory to keep state in: give --state-dir") from error
    return Path(root) / "rocketlens"


def _place_of(store: Path) -> str:
    return hashlib.sha256(os.fsencode(store.resolve())).hexdigest()[:12]


def can_be_had(path: Path) -> bool:
    """Whether this user can write to a directory, or make it; nothing is made."""
    there = next(each for each in (path, *path.absolute().parents) if os.path.lexists(each))
    return os.path.isdir(there) and os.access(there, os.W_OK | os.X_OK)
