"""Write one big file from page-aligned memory, past the page cache where the file system allows it.

A rebuilt index file is 420 MB that nobody is going to read from this process. Written with O_DIRECT it reaches the
disk several times as fast as through the page cache, and pushes out nothing that a broker beside it needs.
"""

import errno
import mmap
import os
from pathlib import Path
from typing import Final

PAGE: Final = mmap.PAGESIZE
CHUNK: Final = 16 * 1024 * 1024
"""Bytes of one write; a multiple of the page."""

_NOT_DIRECT: Final = {errno.EINVAL, errno.EOPNOTSUPP, errno.ENOTSUP}


def aligned_memory(size: int) -> mmap.mmap:
    """Zeroed memory of `size` bytes, rounded up to whole pages, that starts on a page."""
    memory = mmap.mmap(-1, max(-(-size // PAGE) * PAGE, PAGE), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


def write_file(path: Path, memory: mmap.mmap, used: int, size: int) -> None:
    """Write the first `used` bytes of `memory` as a new file of `size` bytes, the rest a hole, and fsync it.

    The file has no other name meanwhile: whoever needs it whole or not at all renames it afterwards.
    """
    aligned = min(-(-used // PAGE) * PAGE, len(memory))
    view = memoryview(memory)[:aligned]
    descriptor = _open(path, os.O_DIRECT)
    try:
        try:
            _write(descriptor, view)
        except OSError as error:
            if error.errno not in _NOT_DIRECT:
                raise
            os.close(descriptor)
            descriptor = _open(path, 0)
            _write(descriptor, view)
        os.ftruncate(descriptor, used)
        os.ftruncate(descriptor, size)
        os.fsync(descriptor)
    finally:
        view.release()
        os.close(descriptor)


def fsync_directory(path: Path) -> None:
    """Make the names in a directory outlive a power failure."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _open(path: Path, flags: int) -> int:
    flags |= os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o644)
    except OSError as error:
        if not flags & os.O_DIRECT or error.errno not in _NOT_DIRECT:
            raise
    return os.open(path, flags & ~os.O_DIRECT, 0o644)


def _write(descriptor: int, view: memoryview) -> None:
    position = 0
    while position < len(view):
        position += os.pwrite(descriptor, view[position : position + CHUNK], position)
