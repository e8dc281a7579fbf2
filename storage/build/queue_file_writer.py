"""Write the files of one queue as one stream of bytes: of full length each, sparse behind what was written.

Nothing is kept open: a task builds thousands of queues side by side, and a process has a thousand descriptors. What is
written lies in memory until there is enough of it; `flush` makes room earlier. What is long goes past the page cache,
where the file system allows it: nobody is going to read it from this process, and `fsync_tree` has less to wait for.
"""

import ctypes
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from protocol.errors import StoreError
from storage.files.direct_writer import PAGE, write_past_cache
from storage.files.mapped_file import LARGEST_OFFSET, SEGMENT_NAME_DIGITS

FLUSH_BYTES: Final = 1 << 20
"""What one queue holds in memory at most, but for what is added at a time."""

DIRECT_BYTES: Final = 1 << 18
"""The least that is written past the page cache, where each write waits for the disk."""

_FILL_BYTES: Final = 1 << 16
_FSYNCS_AT_ONCE: Final = 16


class QueueFileWriter:
    """Files of `file_size` bytes in `directory`, named by byte offset, the first one at `start`.

    Whatever lies in the directory is removed: an earlier attempt left it.
    """

    __slots__ = ("_directory", "_file_size", "_first", "_flushed", "_pending", "position")

    def __init__(self, directory: Path, file_size: int, start: int = 0) -> None:
        """Start a stream; nothing is on disk before the first flush. `start` is a multiple of the file size."""
        if start % file_size or not 0 <= start <= LARGEST_OFFSET - file_size:
            raise StoreError(directory, expected=f"a multiple of {file_size}", found=start, what="start of a queue")
        shutil.rmtree(directory, ignore_errors=True)
        self._directory = directory
        self._file_size = file_size
        self._first = self._flushed = self.position = start
        self._pending = bytearray()

    @property
    def pending(self) -> int:
        """Bytes in memory."""
        return len(self._pending)

    def append(self, data: "memoryview | bytes | bytearray") -> None:
        """Add bytes at the end; they are copied."""
        self._pending += data
        self.position += len(data)
        if len(self._pending) >= FLUSH_BYTES:
            self.flush()

    def fill(self, unit: bytes, count: int) -> None:
        """Add the same unit `count` times."""
        at_once = max(_FILL_BYTES // len(unit), 1)
        for done in range(0, count, at_once):
            self.append(unit * min(at_once, count - done))

    def flush(self) -> None:
        """Bring to the files what is in memory."""
        with memoryview(self._pending) as pending:
            done = 0
            while done < len(pending):
                done += self._write(pending[done:])
        self._pending.clear()

    def finish(self) -> int:
        """Bring to the files what is in memory; their number. That they outlive a power failure is `fsync_tree`'s."""
        self.flush()
        return len(range(self._first, self.position, self._file_size))

    def discard(self) -> None:
        """Remove everything; the writer is of no more use."""
        self._pending.clear()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _write(self, data: memoryview) -> int:
        """Write what belongs into the file where the stream is; how much that was."""
        inside = self._flushed % self._file_size
        data = data[: self._file_size - inside]
        if not inside:
            self._make_directory()
        descriptor = os.open(self._path(self._flushed - inside), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if not inside:
                os.ftruncate(descriptor, self._file_size)
            written = min(-inside % PAGE, len(data))
            _write_all(descriptor, data[:written], inside)
            if len(data) - written >= DIRECT_BYTES:
                written += write_past_cache(descriptor, data[written:], inside + written)
            _write_all(descriptor, data[written:], inside + written)
        finally:
            os.close(descriptor)
        self._flushed += len(data)
        return len(data)

    def _make_directory(self) -> None:
        """Make the queue's directory, its topic's and its tree's; what these lie in is not made anew if it is gone."""
        for directory in (self._directory.parent.parent, self._directory.parent, self._directory):
            directory.mkdir(exist_ok=True)

    def _path(self, start: int) -> Path:
        return self._directory / f"{start:0{SEGMENT_NAME_DIGITS}d}"


def _write_all(descriptor: int, data: memoryview, position: int) -> None:
    written = 0
    while written < len(data):
        written += os.pwrite(descriptor, data[written:], position + written)


def fsync_file(path: Path) -> None:
    """Make a file, or the names in a directory, outlive a power failure."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_tree(root: Path) -> None:
    """Make all files and names below a directory outlive a power failure: several at a time, which a disk likes."""
    found = list(os.walk(root))
    files = [Path(directory, name) for directory, _, names in found for name in names]
    with ThreadPoolExecutor(_FSYNCS_AT_ONCE) as threads:
        for paths in (files, [Path(directory) for directory, _, _ in found]):
            list(threads.map(fsync_file, paths))


def sync_file_system(path: Path) -> None:
    """Make everything outlive a power failure that was written to the file system of a path.

    One call for thousands of small files, each of which would cost milliseconds on its own.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        library = ctypes.CDLL(None, use_errno=True)
        if hasattr(library, "syncfs"):
            if library.syncfs(descriptor):
                error = ctypes.get_errno()
                raise StoreError(path, what=f"cannot be brought to the disk: {os.strerror(error)}")
        else:  # no Linux
            os.sync()
    finally:
        os.close(descriptor)
