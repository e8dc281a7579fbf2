"""The directory in which one server keeps the files that must outlive it, locked for as long as it runs.

No file of a store is ever written. Every file here is written beside its old version, synced to disk, and then renamed
to its place, so that a kill at any moment leaves one of the two complete.

The directory belongs to the server's user, or to root, who may have made it for a group; it is held by its descriptor,
and its files are looked at one by one: of what somebody else may have put there nothing is read or written through.
"""

import fcntl
import os
import stat
from pathlib import Path
from typing import Final

from protocol.errors import ConfigError, PlantedFile
from storage.files.direct_writer import fsync_directory
from storage.files.own_directories import HeldDirectory, new_file, open_own, read_own, require_own, user_text
from storage.store.state_place import UnusableDirectory

_ROOT: Final = frozenset({0})
_RIGHTS: Final = stat.S_IWOTH
"""What nobody else may do to the files: a group may share them."""

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
        """Create the directory if it is missing, and lock it.

        Raises `UnusableDirectory` where that fails, `ConfigError` where another server uses it, both naming
        `--state-dir`; `PlantedFile` for what belongs to another user.
        """
        self.path = path
        try:
            self._held = HeldDirectory.open(path, make=True)
            with self._held.named_errors():
                require_own(path, os.fstat(self._held.descriptor), also=_ROOT, rights=0)
                self._lock = _open_lock(self._held.path / LOCK)
        except OSError as error:
            raise UnusableDirectory(f"{path} cannot be written to ({_why(path, error)}): give --state-dir") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.close()
            raise ConfigError(
                f"another server keeps its state in {path}; give this one a directory of its own with --state-dir"
            ) from error

    def read(self, name: str) -> bytes | None:
        """Return a file's content, None if there is no such file. Raises `ConfigError` where it cannot be read."""
        try:
            with self._held.named_errors():
                return read_own(self._held.path / name, also=_ROOT, rights=_RIGHTS)
        except FileNotFoundError:
            return None
        except PlantedFile as error:
            raise ConfigError(f"--state-dir {self.path}: {name} cannot be read: it {error.what}") from error
        except OSError as error:
            raise ConfigError(f"--state-dir {self.path}: {name} cannot be read: {error.strerror}") from error

    def write(self, name: str, content: bytes) -> None:
        """Replace a file by a new version. Waits for the disk; raises `OSError` where that fails."""
        root = self._held.path
        target, beside = root / name, root / f"{name}.new"
        beside.unlink(missing_ok=True)
        with new_file(beside) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, target)
        fsync_directory(root)

    def set_aside(self, name: str) -> Path:
        """Rename a file that holds more than can be taken over, so that nothing is lost; return its new path."""
        root = self._held.path
        os.replace(root / name, root / f"{name}{ASIDE}")
        return self.path / f"{name}{ASIDE}"

    def close(self) -> None:
        """Unlock the directory."""
        os.close(self._lock)
        self._held.close()


def _open_lock(path: Path) -> int:
    try:
        descriptor = open_own(path, os.O_RDWR, also=_ROOT, rights=_RIGHTS)
    except FileNotFoundError:
        new_file(path).close()
        descriptor = open_own(path, os.O_RDWR, also=_ROOT, rights=_RIGHTS)
    status = os.fstat(descriptor)
    if status.st_uid == os.geteuid() and status.st_nlink == 1:  # and no second name of another file of ours
        os.fchmod(descriptor, 0o600)  # who can read a file can lock it, and keep a server from starting
    return descriptor


def _why(path: Path, error: OSError) -> str:
    """What an error says; with the owner of a directory that is somebody else's."""
    reason = error.strerror or str(error)
    try:
        owner = os.stat(path).st_uid
    except OSError:
        return reason
    if not isinstance(error, PermissionError) or owner == os.geteuid():
        return reason
    return f"{reason}: it belongs to {user_text(owner)}, and this runs as {user_text(os.geteuid())}"
