"""Bring what stays of a store's index beside what was built, so that both are published as one directory."""

import contextlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from storage.files.attempt_names import written_beside


def stage_kept(names: Iterable[str], source: Path, staged: Path, partial: Path, *, link: bool) -> None:
    """Put files of `source` into a staged directory under the same names.

    As second names of the same files where they go back into the same store (a broker never changes a full index
    file), else as copies, which lie in `partial` until they are whole. What is there already stays.
    """
    staged.mkdir(parents=True, exist_ok=True)
    for name in names:
        if link:
            with contextlib.suppress(FileExistsError):
                os.link(source / name, staged / name)
        elif not (staged / name).exists():
            copy_file(source / name, staged / name, partial)


def copy_file(source: Path, destination: Path, partial: Path) -> None:
    """Copy a file whole or not at all, holes as holes where the system can; fsyncs it. It is made in `partial`."""
    with written_beside(destination, partial) as beside:
        _copy(source, beside)
        shutil.copystat(source, beside)


def _copy(source: Path, destination: Path) -> None:
    with open(source, "rb") as reading, open(destination, "wb") as writing:
        size = os.fstat(reading.fileno()).st_size
        position = 0
        while position < size:
            start = _seek(reading.fileno(), position, os.SEEK_DATA, size)
            position = _seek(reading.fileno(), start, os.SEEK_HOLE, size)
            reading.seek(start)
            writing.seek(start)
            _copy_range(reading.fileno(), writing.fileno(), start, position)
        os.ftruncate(writing.fileno(), size)
        os.fsync(writing.fileno())


def _copy_range(source: int, destination: int, start: int, stop: int) -> None:
    while start < stop:
        try:
            count = os.copy_file_range(source, destination, stop - start, start, start)
        except OSError:  # between file systems that cannot, or on a kernel that does not
            count = os.pwrite(destination, os.pread(source, min(stop - start, 1 << 24), start), start)
        if not count:
            return
        start += count


def _seek(descriptor: int, position: int, whence: int, size: int) -> int:
    """SEEK_DATA or SEEK_HOLE; where the file system does not support them, everything is data."""
    try:
        return os.lseek(descriptor, position, whence)
    except OSError:
        return size if whence == os.SEEK_HOLE or position >= size else _first_data(descriptor, position, size)


def _first_data(descriptor: int, position: int, size: int) -> int:
    try:
        os.lseek(descriptor, position, os.SEEK_HOLE)
    except OSError:
        return position
    return size
