"""Write one big file from page-aligned memory, past the page cache where the file system allows it.

A rebuilt index file is 420 MB that nobody is going to read from this process. Written with O_DIRECT it reaches the
disk several times as fast as through the page cache, and pushes out nothing that a broker beside it needs. And it is
written while it is built: the disk has nearly all of it when the last entry is put.
"""

import errno
import fcntl
import mmap
import os
import threading
from pathlib import Path
from typing import Final, Self

from protocol.checksum import crc32
from storage.files.own_directories import new_file

PAGE: Final = mmap.PAGESIZE
CHUNK: Final = 16 * 1024 * 1024
"""Bytes of one write; a multiple of the page."""

MOST_WAITING: Final = 4 * CHUNK
"""Bytes that may be filled and not yet on their way to the disk before the filling thread has to wait."""

_STAGED_BYTES: Final = 1024 * 1024
_staging = threading.local()

_NOT_DIRECT: Final = {errno.EINVAL, errno.EOPNOTSUPP, errno.ENOTSUP}


def aligned_memory(size: int) -> mmap.mmap:
    """Zeroed memory of `size` bytes, rounded up to whole pages, that starts on a page."""
    memory = mmap.mmap(-1, max(-(-size // PAGE) * PAGE, PAGE), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


class GrowingFile:
    """A new file that a thread writes from page-aligned memory while that is still being filled.

    The bytes from `first` on are filled in order, and those before it may change up to the end. With `forget` memory is
    given back as soon as it is written, so that no more than `MOST_WAITING` of it is held behind `first`.
    """

    def __init__(self, path: Path, memory: mmap.mmap, first: int = 0, *, forget: bool = False) -> None:
        """Make the file; raises OSError if that is impossible."""
        self._memory, self._forget = memory, forget
        self.first = self._taken = self._written = self._settled = -(-first // PAGE) * PAGE
        self.checksum = 0
        """CRC-32 of the bytes from `first` (a whole number of pages) on, and then of those before it."""
        self._used: int | None = None
        self._given_up = False
        self._size = 0
        self._error: OSError | None = None
        self._changed = threading.Condition()
        self._descriptor = _open(path)
        self._thread = threading.Thread(target=self._run, name=f"writing {path.name}", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Wait for the end of the writing; raises the OSError that it ended with."""
        with self._changed:
            self._given_up = kind is not None or self._used is None
            self._changed.notify_all()
        self._thread.join()
        os.close(self._descriptor)
        if self._error is not None and kind is None:
            raise self._error

    def settle(self, stop: int) -> None:
        """From `first` up to `stop` the bytes are what they will be; waits where too many of them are not written."""
        with self._changed:
            self._settled = max(self._settled, stop // PAGE * PAGE)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._settled - self._written <= MOST_WAITING or self._error is not None)

    def finish(self, used: int, size: int) -> None:
        """All bytes are what they will be, and zero from `used` on; the file is to have `size` of them."""
        with self._changed:
            self._used, self._size = used, size
            self._settled = min(-(-used // PAGE) * PAGE, len(self._memory))
            self._changed.notify_all()

    def _run(self) -> None:
        try:
            while (chunk := self._next_chunk()) is not None:
                self._write(*chunk)
                with self._changed:
                    self._written = chunk[1]
                    self._changed.notify_all()
            if self._used is not None and not self._given_up:
                self._write(0, min(self.first, self._settled))
                os.ftruncate(self._descriptor, self._used)
                os.ftruncate(self._descriptor, self._size)
                os.fsync(self._descriptor)
        except OSError as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _next_chunk(self) -> tuple[int, int] | None:
        """Return the next chunk to write, a whole one until the end is known; None if nothing comes any more."""
        with self._changed:
            while not self._given_up:
                waiting = self._settled - self._taken
                if waiting >= CHUNK or (self._used is not None and waiting > 0):
                    start = self._taken
                    self._taken = start + min(waiting, CHUNK)
                    return start, self._taken
                if self._used is not None:
                    return None
                self._changed.wait()
            return None

    def _write(self, start: int, stop: int) -> None:
        """Write some pages, add them to the checksum and forget them."""
        with memoryview(self._memory) as view:
            at = start
            while at < stop:
                at += self._write_some(view[at : min(at + CHUNK, stop)], at)
            with view[start : stop if self._used is None else min(stop, self._used)] as counted:
                self.checksum = crc32(counted, self.checksum)
        if self._forget and start < stop:
            self._memory.madvise(mmap.MADV_DONTNEED, start, stop - start)

    def _write_some(self, data: memoryview, position: int) -> int:
        """Write; through the page cache from the moment on where the file system wants it so."""
        with data:
            try:
                return os.pwrite(self._descriptor, data, position)
            except OSError as error:
                flags = fcntl.fcntl(self._descriptor, fcntl.F_GETFL)
                if error.errno not in _NOT_DIRECT or not flags & os.O_DIRECT:
                    raise
                fcntl.fcntl(self._descriptor, fcntl.F_SETFL, flags & ~os.O_DIRECT)
                return os.pwrite(self._descriptor, data, position)


def write_past_cache(descriptor: int, data: memoryview, position: int) -> int:
    """Write the whole pages of `data` to a file at `position`, a multiple of the page, without keeping them in memory.

    Returns how many bytes that was: 0 where the file system does not allow it. The file must be open for writing; its
    flags are afterwards as before.
    """
    size = len(data) // PAGE * PAGE
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    written = 0
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_DIRECT)
        while written < size:
            piece = min(size - written, _STAGED_BYTES)
            memory = _staging_memory()
            memory[:piece] = data[written : written + piece]
            with memoryview(memory) as view, view[:piece] as pages:
                done = os.pwrite(descriptor, pages, position + written)
            written += done // PAGE * PAGE
            if done % PAGE:
                break
    except OSError as error:
        if error.errno not in _NOT_DIRECT:
            raise
    finally:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)
    return written


def _staging_memory() -> mmap.mmap:
    """The thread's own page-aligned memory, from which O_DIRECT can write."""
    memory: mmap.mmap | None = getattr(_staging, "memory", None)
    if memory is None:
        memory = _staging.memory = aligned_memory(_STAGED_BYTES)
    return memory


def fsync_directory(path: Path) -> None:
    """Make the names in a directory outlive a power failure."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    """Make a new file, to be written past the page cache where that is possible."""
    with new_file(path) as file:
        descriptor = fcntl.fcntl(file.fileno(), fcntl.F_DUPFD_CLOEXEC, 0)
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_DIRECT)
    except OSError as error:
        if error.errno not in _NOT_DIRECT:
            os.close(descriptor)
            raise
    return descriptor
