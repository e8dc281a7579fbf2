"""A hollow copy of a tree behind a URL, in which each piece of a file is fetched when it is first looked at.

So a store behind a URL is read by what reads one in a directory (:mod:`storage.files.hollow_files`): its small files
whole, of its log the records that a question leads to.
"""

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from protocol.errors import StoreError
from spark_jobs.places.remote_file import RemoteFile, RemoteObject, RemoteReadError
from spark_jobs.places.remote_tree import COPIES_LIE, RemoteEntry, RemoteTree, list_tree
from storage.files.hollow_files import forget_tree, register_tree
from storage.ranges import Range, Ranges, merge, subtract

UNIT_BYTES: Final = 64 * 1024
"""Fetched at least: it takes as long as a few bytes."""

MOST_AHEAD: Final = 8 * 1024 * 1024
"""Bytes that are fetched at most behind those that are asked for, of a file that is read on and on."""

LONG_BYTES: Final = 4 * 1024 * 1024
"""Longer stretches are read ahead, one after the other, not several at a time."""


class FilledFile:
    """A file of this machine that is a hole at first, into which bytes of a remote one are written; raises StoreError.

    `source` is closed by who opened it. Not safe to use from several threads.
    """

    def __init__(self, source: RemoteFile, path: Path) -> None:
        """Take a file that has the size of the remote one already."""
        self._source, self._path = source, path
        self._there: Ranges = ()

    def show(self, wanted: Sequence[Range]) -> None:
        """Have ranges of bytes be there."""
        lacking = subtract(merge(wanted), self._there)
        if not lacking:
            return
        try:
            with self._path.open("r+b") as file:
                written_ns = os.fstat(file.fileno()).st_mtime_ns
                for start, stop in lacking:
                    if stop - start > LONG_BYTES:
                        self._source.copy_range(file, start, stop)
                self._source.copy_pieces(file, [piece for piece in lacking if piece[1] - piece[0] <= LONG_BYTES])
                file.flush()
                os.utime(file.fileno(), ns=(written_ns, written_ns))
        except OSError as error:
            raise StoreError(self._path, what=f"cannot be written: {error.strerror or error}; {COPIES_LIE}") from error
        self._there = merge((*self._there, *lacking))


class HollowCopy:
    """A hollow copy of a tree below a directory, whose files are filled by who reads them in this process."""

    def __init__(self, tree: RemoteTree, root: Path) -> None:
        """Make the hollow files."""
        tree.hollow(root)
        self.tree, self._root = tree, root
        self._entries = {each.path: each for each in tree.files}
        self._objects = tree.objects()
        self._contents: dict[str, _Content] = {}
        self._read: set[str] = set()
        self._lock, self._settling = threading.Lock(), threading.Lock()
        self.failure: BaseException | None = None
        """Why something could not be fetched: what was read since is not to be believed."""

    def fill(self, path: Path) -> None:
        """Have all of a file be there, for who reads files in his own way; raises RemoteReadError."""
        content = self._content_of(path.relative_to(self._root).as_posix())
        if content is not None:
            content.fill()
            if self.failure is not None:
                raise self.failure

    @contextlib.contextmanager
    def read_here(self) -> Iterator[None]:
        """Have files be filled meanwhile by who reads them in this process; :meth:`settle` says if that went well.

        Who reads on afterwards is told so by `settle`: what is not filled any more is zeros.
        """
        register_tree(self._root, self._content_of)
        try:
            yield
        finally:
            self.failure = self.failure or StoreError(self.tree.url, what="it was closed while it was read")
            forget_tree(self._root)

    def settle(self) -> None:
        """Raise the error for which something that was read may be wrong; RemoteReadError where a file has changed."""
        with self._settling:
            with self._lock:
                read = frozenset(self._read)
            for name in read:
                self._contents[name].rest()
            if self.failure is None and read:
                self._refuse_changed(read)
            if self.failure is not None:
                raise self.failure
            with self._lock:
                self._read -= read

    def _refuse_changed(self, read: Iterable[str]) -> None:
        """Note it where one of some files is another than the one that was listed."""
        now = {each.path: each for each in list_tree(self.tree.url, self.tree.storage).files}
        for name in sorted(read):
            if now.get(name) != self._entries[name]:
                what = "has changed since it was listed, or was removed"
                self.failure = RemoteReadError(f"{self.tree.url}/{name}", what=what)

    def _content_of(self, name: str) -> "_Content | None":
        """The content of a file by its path in the tree; None for one that is not in it."""
        entry = self._entries.get(name)
        if entry is None:
            return None
        with self._lock:
            if name not in self._contents:
                self._contents[name] = _Content(self, entry, self._objects[name], self._root / name)
            return self._contents[name]

    def note(self, name: str, failure: BaseException | None) -> None:
        """Note that a file was read, or could not be."""
        with self._lock:
            self._read.add(name)
            self.failure = self.failure or failure


class _Content:
    """The content of one file of a hollow copy."""

    def __init__(self, copy: HollowCopy, entry: RemoteEntry, found: RemoteObject, path: Path) -> None:
        """Nothing is there yet."""
        self._copy, self._entry = copy, entry
        self._source = RemoteFile(found.url, copy.tree.storage, found)
        self._filled = FilledFile(self._source, path)
        self._units = bytearray(-(-entry.size // UNIT_BYTES))
        self._behind, self._ahead = -1, 0
        self._lock = threading.Lock()

    def show(self, start: int, stop: int) -> None:
        """As :class:`storage.files.hollow_files.HollowContent` says."""
        try:
            self._show(start, stop)
        except BaseException as error:  # a kernel may ask, and nothing goes through it
            self._copy.note(self._entry.path, error)

    def _show(self, start: int, stop: int) -> None:
        first, behind = start // UNIT_BYTES, -(-stop // UNIT_BYTES)
        if 0 not in self._units[first:behind] or self._copy.failure is not None:
            return
        self._copy.note(self._entry.path, None)
        with self._lock:
            self._ahead = max(2 * self._ahead, 1) if first == self._behind else 0
            behind = min(behind + min(self._ahead, MOST_AHEAD // UNIT_BYTES), len(self._units))
            self._behind = behind
            self._filled.show([(first * UNIT_BYTES, min(behind * UNIT_BYTES, self._entry.size))])
            self._units[first:behind] = b"\1" * (behind - first)
            if 0 not in self._units:
                self._source.release()

    def fill(self) -> None:
        """Have all of it be there, as it was listed."""
        if 0 in self._units:
            self.show(0, self._entry.size)
            try:
                self._source.close()
            except StoreError as error:
                self._copy.note(self._entry.path, error)

    def rest(self) -> None:
        """Give up what was asked for ahead."""
        with self._lock:
            self._source.release()
