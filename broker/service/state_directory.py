"""The directory in which one server keeps the files that must outlive it, locked for as long as it runs.

No file of a store is ever written. Every file here is written beside its old version, synced to disk, and then renamed
to its place, so that a kill at any moment leaves one of the two complete.
"""

import fcntl
import os
from pathlib import Path

from protocol.errors import ConfigError
from storage.store.state_place import UnusableDirectory

LOCK = "serving.lock"


def may_hold(directory: Path, name: str) -> bool:
    """Whether a directory has a file of this name; True also where that cannot be found out."""
    try:
        os.stat(directory / name)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


ASIDE = ".unreadable"
"""The suffix that is added to the name of a file that was set aside."""


class StateDirectory:
    """A locked state directory; the lock ends with the process, however that ends."""

    def __init__(self, path: Path) -> None:
        """Make the directory if there is none, and lock it.

        Raises `UnusableDirectory` where that fails, `ConfigError` where another server uses it; both name
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
        """Return a file's content, None if there is no such file. Raises `ConfigError` where it cannot be read."""
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConfigError(f"--state-dir {self.path}: {name} cannot be read: {error.strerror}") from error

    def write(self, name: str, content: bytes) -> None:
        """Replace a file by a new version. Waits for the disk; raises `OSError` where that fails."""
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
        """Rename a file that holds more than can be taken over, so that nothing is lost; return its new path."""
        aside = self.path / f"{name}{ASIDE}"
        os.replace(self.path / name, aside)
        return aside

    def close(self) -> None:
        """Unlock the directory."""
        os.close(self._lock)
