"""All files below a URL as one listing had them, and copies of them on this machine: of all, or as hollow files.

What looks at names and sizes alone looks at a hollow copy of a store: a tree of the same names and sizes, in which
files are holes and take no room. Files that are read whole are fetched by the task that reads them; of a tree of which
a task reads a part it has a hollow copy too, and fetches the files of that part.
"""

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec

from protocol.errors import ConfigError, StoreError
from spark_jobs.places.file_systems import file_system, said, state_of, time_of
from spark_jobs.places.place_names import COPIES
from spark_jobs.places.remote_file import (
    DIRECTORY,
    FETCHED_AT_ONCE,
    RemoteFile,
    RemoteObject,
    RemoteReadError,
    persist,
)

COPIES_LIE: Final = "a copy of what is behind a URL is made below TMPDIR"

LONGEST_NAME: Final = 255
"""Bytes of a name in a directory; no broker wrote a file with a longer one."""


class RemoteEntry(msgspec.Struct, frozen=True, array_like=True):
    """A file by its path relative to the tree's URL; size and state as in :class:`RemoteObject`.

    It was written `written` seconds after 1970, or nobody said when.
    """

    path: str
    size: int
    state: str
    written: float | None = None


class RemoteTree(msgspec.Struct, frozen=True):
    """The files and directories below a URL; `storage` are options of its file system as JSON."""

    url: str
    storage: str
    files: tuple[RemoteEntry, ...]
    directories: tuple[str, ...] = ()

    def below(self, *places: str) -> "RemoteTree":
        """The part of the tree that are these files, or lies in these directories."""
        wanted = {PurePosixPath(place) for place in places}

        def is_wanted(path: str) -> bool:
            return not wanted.isdisjoint((PurePosixPath(path), *PurePosixPath(path).parents))

        chosen = (each for each in self.files if is_wanted(each.path))
        return RemoteTree(self.url, self.storage, tuple(chosen), tuple(filter(is_wanted, self.directories)))

    def without_larger(self, most: int) -> "RemoteTree":
        """The tree without files of more than so many bytes."""
        return msgspec.structs.replace(self, files=tuple(each for each in self.files if each.size <= most))

    def object(self, path: str) -> RemoteObject:
        """The file at a path of the tree, or the directory."""
        if path in self.directories:
            return RemoteObject(f"{self.url}/{path}", DIRECTORY)
        return self._object(next(each for each in self.files if each.path == path))

    def objects(self) -> dict[str, RemoteObject]:
        """All files by their paths."""
        return {each.path: self._object(each) for each in self.files}

    def hollow(self, root: Path) -> None:
        """Make the tree below a directory, files of the same sizes and times that hold nothing but a hole.

        The time of a file is zero where none is known, and that of a directory always. Raises StoreError where this
        machine cannot have such files.
        """
        path = root
        try:
            self._make_directories(root)
            for each in self.files:
                path = root / each.path
                with path.open("wb") as file:
                    file.truncate(each.size)
                _date(path, each.written)
            for directory in self.directories:
                path = root / directory
                _date(path, None)
        except OSError as error:
            raise StoreError(path, what=f"cannot be copied: {error.strerror}; {COPIES_LIE}") from error

    def fetch(self, root: Path) -> None:
        """Copy all files to their places below a directory, several at a time; raises RemoteReadError."""
        self._make_directories(root)
        with ThreadPoolExecutor(FETCHED_AT_ONCE, "fetching files") as pool:
            for _ in pool.map(partial(self.fetch_file, root), self.files):
                pass

    def named(self, root: Path) -> Callable[[str], str]:
        """What gives texts in which the tree's copy below a directory bears the name that it has as a URL."""
        return named_as(root, self.url)

    def _object(self, entry: RemoteEntry) -> RemoteObject:
        return RemoteObject(f"{self.url}/{entry.path}", entry.size, entry.state, self.storage)

    def fetch_file(self, root: Path, entry: RemoteEntry) -> None:
        """Copy one of the files to its place below a directory, which is there; raises RemoteReadError."""
        found = self._object(entry)
        with RemoteFile(found.url, self.storage, found) as file:
            file.copy_to(root / entry.path)

    def _make_directories(self, root: Path) -> None:
        for path in {*self.directories, *(os.path.dirname(each.path) for each in self.files)}:
            (root / path).mkdir(parents=True, exist_ok=True)


def _date(path: Path, written: float | None) -> None:
    try:
        os.utime(path, ns=(round((written or 0) * 1e9),) * 2)
    except (OverflowError, ValueError, OSError):  # a time that no file of this machine can have
        os.utime(path, ns=(0, 0))


def named_as(copy: Path, name: str) -> Callable[[str], str]:
    """What gives texts in which a copy bears the name of what it was made of."""
    return str if str(copy) == name else partial(_renamed, str(copy), name)


def _renamed(old: str, new: str, text: str) -> str:
    return text.replace(old, new)


def list_tree(url: str, storage: str) -> RemoteTree:
    """List all that lies below a URL; raises RemoteReadError, and ConfigError for a URL that cannot be one.

    Left out is what cannot be a file on a disk too: no broker wrote it.
    """
    url = url.rstrip("/")
    system, inner = file_system(url, storage)
    start = inner.strip("/") + "/"
    try:
        system.invalidate_cache()
        found = persist(lambda: system.find(inner, withdirs=True, detail=True))
    except FileNotFoundError:
        found = {}
    except Exception as error:  # each file system has errors of its own
        raise RemoteReadError(url, what=f"cannot be listed: {said(error)}") from error
    files: dict[str, RemoteEntry] = {}
    directories: set[str] = set()
    for name, info in found.items():
        path = name.strip("/").removeprefix(start)
        if not name.strip("/").startswith(start) or not _is_possible(path):
            continue
        directories.update(str(parent) for parent in PurePosixPath(path).parents)
        if info["type"] == "directory" or name.endswith("/"):
            directories.add(path)
        else:
            files[path] = RemoteEntry(path, int(info["size"] or 0), state_of(info), time_of(info))
    kept = tuple(files[path] for path in sorted(files) if path not in directories)
    return RemoteTree(url, storage, kept, tuple(sorted(directories - {"."})))


def _is_possible(path: str) -> bool:
    """Whether a file of this machine can have a path, and one below a directory."""
    parts = path.split("/")
    return "\0" not in path and all(
        part not in ("", ".", "..") and len(os.fsencode(part)) <= LONGEST_NAME for part in parts
    )


def refuse_elsewhere(places: Iterable[str]) -> None:
    """Raise ConfigError for directories of a log that do not lie in a store that is a URL."""
    if any(places):
        raise ConfigError("--commit-log and a STORE that is a URL cannot be combined: the log must lie in the store")


@contextlib.contextmanager
def local_copy(path: str, remote: RemoteObject | None) -> Iterator[Path]:
    """A file of this machine with the content of one that may be behind a URL; a copy is gone afterwards.

    Of a directory in the place of a file the copy is one, too.
    """
    if remote is None:
        yield Path(path)
        return
    with tempfile.TemporaryDirectory(prefix=COPIES) as directory:
        copy = Path(directory, os.path.basename(path))
        if remote.size == DIRECTORY:
            copy.mkdir()
        else:
            with RemoteFile(path, "", remote) as file:
                file.copy_to(copy)
        yield copy
