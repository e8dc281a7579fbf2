"""The lock of a store, held as a broker holds it while something is published into the store.

It is a POSIX record lock (fcntl, not flock) on byte 0 of `lock`, what Java's `FileChannel.tryLock(0, 1, false)` takes:
a broker that starts meanwhile ends with "Lock failed,MQ already started". A broker takes it only after loading, so
files of the store that somebody has open for writing are looked for too. Source: store-format §1.5.

Closing any descriptor of the file in this process drops the lock. `storage.store.store_state` knows this and does not
open it; in case something else does, the lock is taken anew each time it is confirmed.
"""

import contextlib
import fcntl
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Self

from protocol.errors import PlantedFile, StoreError
from spark_jobs.publish._open_writers import Process, find_writers
from spark_jobs.publish._staged_tree import give_to_owner
from storage.amounts import counted
from storage.files.own_directories import HeldDirectory, open_regular
from storage.store.store_state import FLOCK, LOCKED_HERE, identity_of, is_locked_here

LOCK: Final = "lock"
WHAT_ELSE: Final = "stop it first, or write beside the store with --out"
_PROCESSES_LISTED: Final = 5


class StoreLock:
    """Holds a store and its lock from `with` to the end of the block; StoreError where somebody else writes there.

    `store` is the directory as it was named, `root` a path that leads to it for as long as it is held.
    `elsewhere` are directories of the store outside of it (of its log); `work` is a directory in it that is ours;
    `warn` is called once with a sentence about the processes that could not be examined.
    """

    def __init__(
        self,
        store: Path,
        *,
        elsewhere: Sequence[Path] = (),
        work: Path | None = None,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Name the store; nothing is opened."""
        self.store = self.root = store
        self.path = store / LOCK
        self._directories = (store, *elsewhere)
        self._work = work
        self._warn = warn
        self._descriptor = -1
        self._key = (0, 0)
        self._held: HeldDirectory | None = None

    def __enter__(self) -> Self:
        # To open it once more, and close it, would drop the lock that is held.
        if is_locked_here(self.path):
            raise StoreError(self.path, what="is locked by this process already")
        held = _hold(self.store)
        try:
            self._descriptor = _open(self.path, held)
            self._take()
        except BaseException:
            self._close(held)
            raise
        self._held, self.root = held, held.path
        self._key = identity_of(os.fstat(self._descriptor))
        LOCKED_HERE.add(self._key)
        try:
            self._refuse_writers(self._warn)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        LOCKED_HERE.discard(self._key)
        self._close(self._held)
        self.root = self.store

    def _close(self, held: HeldDirectory | None) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        if held is not None:
            held.close()

    def named_errors(self) -> contextlib.AbstractContextManager[None]:
        """Let errors of a block call the store by its name."""
        return contextlib.nullcontext() if self._held is None else self._held.named_errors()

    @property
    def identity(self) -> tuple[int, int]:
        """Inode and time of the last change of the file. A broker writes to it when it starts, we never do."""
        status = os.fstat(self._descriptor)
        return status.st_ino, status.st_mtime_ns

    def confirm(self) -> None:
        """Make sure that the lock is still held and that nobody writes to the store; StoreError if not."""
        with contextlib.suppress(FileNotFoundError):
            # By both: another store may bear the name now, and this one may have another lock.
            if all(identity_of(os.lstat(root / LOCK)) == self._key for root in (self.store, self.root)):
                self._take()
                self._refuse_writers(lambda _: None)
                return
        raise StoreError(self.path, what="was removed or replaced while it was locked; start again")

    def _take(self) -> None:
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0, os.SEEK_SET)
        except (BlockingIOError, PermissionError):
            raise StoreError(self.path, what=f"is locked by {self._holder()}: {WHAT_ELSE}") from None
        except OSError as error:
            raise StoreError(self.path, what=f"cannot be locked: {error.strerror}") from error

    def _holder(self) -> str:
        """The process that holds the lock, in words."""
        asked = FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        pid = FLOCK.unpack(fcntl.fcntl(self._descriptor, fcntl.F_GETLK, asked))[4]
        return (
            f"process {Process.of(pid)}, a broker or another rebuild"
            if pid > 0
            else "a process that is not visible here"
        )

    def _refuse_writers(self, warn: Callable[[str], None]) -> None:
        try:
            writers, unseen = find_writers(self._directories, self._work)
        except OSError as error:
            warn(f"processes cannot be examined ({error}): make sure that no broker is starting on {self.store}")
            return
        if writers:
            first, more = writers[0], len(writers) - 1
            others = f" and {counted(more, 'other process')}" if more else ""
            raise StoreError(first.path, what=f"is open for writing by process {first}{others}: {WHAT_ELSE}")
        if unseen:
            listed = ", ".join(map(str, unseen[:_PROCESSES_LISTED])) + (
                ", …" if len(unseen) > _PROCESSES_LISTED else ""
            )
            way_out = ", or run this as root" if os.geteuid() else ""
            warn(
                f"{counted(len(unseen), 'process')} of other users may not be examined ({listed}): make sure that none "
                f"of them is a broker that is starting on {self.store}{way_out}"
            )


def _hold(store: Path) -> HeldDirectory:
    try:
        return HeldDirectory.open(store)
    except OSError as error:
        raise StoreError(store / LOCK, what=f"cannot be opened to lock the store: {error.strerror}") from error


def _open(path: Path, store: HeldDirectory) -> int:
    """A descriptor for reading and writing; the file is created if missing, as a broker would."""
    try:
        try:
            return open_regular(path.name, os.O_RDWR, directory=store.descriptor)
        except FileNotFoundError:
            return _make(path.name, store)
    except PlantedFile as error:
        raise PlantedFile(path, what=f"{error.what}: the store cannot be locked") from None
    except OSError as error:
        raise StoreError(path, what=f"cannot be opened to lock the store: {error.strerror}") from error


def _make(name: str, store: HeldDirectory) -> int:
    """Make the file, for the store's owner: its broker has to be able to write to it."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, 0o644, dir_fd=store.descriptor)
    try:
        give_to_owner(descriptor, os.fstat(store.descriptor))
    except OSError:
        os.close(descriptor)
        os.unlink(name, dir_fd=store.descriptor)
        raise
    return descriptor
