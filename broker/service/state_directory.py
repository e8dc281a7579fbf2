"""The directory in which one server keeps what must outlive it, locked for as long as it runs.

Nothing of a store is ever written to. Every file is written beside its old version, brought to the disk, and then takes
its place, so that a kill at any moment leaves one of the two whole.
"""

import fcntl
import hashlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from protocol.errors import ConfigError

if TYPE_CHECKING:  # commands that open a store look for its directory before they load what opens it
    from storage.store.store_state import StoreIdentity

LOCK = "serving.lock"


class UnusableDirectory(ConfigError):
    """Nothing can be written there."""


def default_state_directory(store: Path, identity: "StoreIdentity") -> Path:
    """Where the state of a store is kept unless told otherwise: below the user's state directory, by the store's names.

    Two stores of brokers with one name are told apart by where they lie. Raises `UnusableDirectory` for a user without
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


def may_hold(directory: Path, name: str) -> bool:
    """Whether there is a file in a directory, or it cannot be told that there is none."""
    try:
        os.stat(directory / name)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


ASIDE = ".unreadable"
"""What is put behind the name of a file that was set aside."""


class StateDirectory:
    """A locked state directory; the lock goes with the process, however that ends."""

    def __init__(self, path: Path) -> None:
        """Make the directory if it is not there, and lock it.

        Raises `UnusableDirectory` where that cannot be, `ConfigError` where another server uses it; both name
        `--state-dir`.
        """
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise UnusableDirectory(f"{path} cannot be written to ({error.strerror}): give --state-dir") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise ConfigError(
                f"another server keeps its state in {path}; give this one a directory of its own with --state-dir"
            ) from error

    def read(self, name: str) -> bytes | None:
        """A file's content, None where there is none. Raises `ConfigError` where it cannot be read."""
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConfigError(f"--state-dir {self.path}: {name} cannot be read: {error.strerror}") from error

    def write(self, name: str, content: bytes) -> None:
        """Put a file in the place of its old version. Waits for the disk; raises `OSError`."""
        target, beside = self.path / name, self.path / f"{name}.new"
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, target)
        directory = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def set_aside(self, name: str) -> Path:
        """Rename a file that holds more than can be taken over, so that nothing of it is lost; where it is now."""
        aside = self.path / f"{name}{ASIDE}"
        os.replace(self.path / name, aside)
        return aside

    def close(self) -> None:
        """Let another server have the directory."""
        os.close(self._lock)
