"""Find the processes that have files of a store open for writing, by /proc.

A broker takes the store's lock only after it has loaded: for minutes it may have every file of the store mapped
writable while nobody holds the lock. Files are known by device and inode, so that a broker in a container, which knows
them by other paths, is found too, and by path where a file system shows other numbers there (btrfs, overlay). Processes
of other namespaces that /proc does not list are not seen.
"""

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

PROC: Final = Path("/proc")
_FLAGS: Final = b"flags:"
_WRITABLE: Final = re.compile(rb"^\S+ .w.s .*", re.MULTILINE)
"""The lines of maps that are writable and shared."""

_DELETED: Final = " (deleted)"
_GONE: Final = (FileNotFoundError, ProcessLookupError)


@dataclass(frozen=True, slots=True)
class Process:
    """A process by id and command name; `path` is a file of the store that it may write to, "" if nobody could look."""

    pid: int
    name: str
    path: str = ""

    @classmethod
    def of(cls, pid: int, path: str = "") -> Self:
        """The process of an id, with the name that its command has now."""
        name = "?"
        with contextlib.suppress(*_GONE):
            name = (PROC / str(pid) / "comm").read_text().strip()
        return cls(pid, name, path)

    def __str__(self) -> str:
        return f"{self.pid} ({self.name})"


def find_writers(directories: Sequence[Path], besides: Path | None = None) -> tuple[list[Process], list[Process]]:
    """Other processes that may write to files below some directories, and those that this one may not look at.

    `besides` is a directory below them that does not count.
    """
    files = _StoreFiles(directories, besides)
    writers, unseen = [], []
    for pid in _other_processes():
        try:
            path = next((path for path in _written(pid) if files.have(*path)), None)
        except PermissionError:
            if not _is_of_the_kernel(pid):
                unseen.append(Process.of(pid))
            continue
        if path is not None:
            writers.append(Process.of(pid, path[0]))
    return writers, unseen


class _StoreFiles:
    """Whether a file is one of the store's."""

    def __init__(self, directories: Sequence[Path], besides: Path | None) -> None:
        roots = [os.path.realpath(directory) for directory in directories]
        self._besides = None if besides is None else os.path.realpath(besides)
        self._prefixes = tuple(f"{root}/" for root in roots)
        self._known = {known for root in roots for known in self._walk(root)}

    def have(self, path: str, device: int, inode: int) -> bool:
        """By its numbers, or by its path unless it lies in what does not count or has no name any more."""
        if (device, inode) in self._known:
            return True
        return path.startswith(self._prefixes) and not self._is_beside(path) and not path.endswith(_DELETED)

    def _walk(self, root: str) -> Iterator[tuple[int, int]]:
        for directory, names, _ in os.walk(root):
            names[:] = [name for name in names if not self._is_beside(os.path.join(directory, name))]
            with contextlib.suppress(*_GONE), os.scandir(directory) as entries:
                device = os.stat(directory).st_dev
                yield from ((device, entry.inode()) for entry in entries if entry.is_file(follow_symlinks=False))

    def _is_beside(self, path: str) -> bool:
        return self._besides is not None and f"{path}/".startswith(f"{self._besides}/")


def _other_processes() -> Iterator[int]:
    pids = [int(name) for name in os.listdir(PROC) if name.isdecimal()]
    return (pid for pid in sorted(pids) if pid != os.getpid())


def _written(pid: int) -> Iterator[tuple[str, int, int]]:
    """Files that a process may write to, as (path, device, inode)."""
    yield from _open_files(f"{PROC}/{pid}")
    yield from _mapped_files(f"{PROC}/{pid}")


def _open_files(process: str) -> Iterator[tuple[str, int, int]]:
    """Files that are open for writing."""
    with contextlib.suppress(*_GONE):
        for number in os.listdir(f"{process}/fd"):
            with contextlib.suppress(*_GONE):
                path = os.readlink(f"{process}/fd/{number}")
                if path.startswith("/") and _may_write(f"{process}/fdinfo/{number}"):
                    yield path, *_numbers(f"{process}/fd/{number}")


def _may_write(information: str) -> bool:
    with open(information, "rb", buffering=0) as file:
        flags = file.read().split(_FLAGS, 1)[1].split(None, 1)[0]
    return int(flags, 8) & os.O_ACCMODE != os.O_RDONLY


def _numbers(descriptor: str) -> tuple[int, int]:
    """Device and inode of an open file; -1 where its file system keeps them from us."""
    try:
        status = os.stat(descriptor)
    except FileNotFoundError:
        raise
    except OSError:
        return -1, -1
    return status.st_dev, status.st_ino


def _mapped_files(process: str) -> Iterator[tuple[str, int, int]]:
    """Files that are mapped shared and writable; the descriptors they were mapped by may be closed."""
    with contextlib.suppress(*_GONE), open(f"{process}/maps", "rb", buffering=0) as file:
        for line in _WRITABLE.findall(file.read()):
            _, _, _, device, inode, *path = line.split(None, 5)
            if path:
                major, minor = (int(number, 16) for number in device.split(b":"))
                yield os.fsdecode(path[0]), os.makedev(major, minor), int(inode)


def _is_of_the_kernel(pid: int) -> bool:
    """Whether a process is a thread of the kernel (or a corpse): it has no command line, and no files of a store."""
    with contextlib.suppress(*_GONE):
        return not (PROC / str(pid) / "cmdline").read_bytes()
    return True
