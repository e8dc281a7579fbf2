"""One file of a store, mapped read-only, and the list of such files in a directory.

A file is opened with O_RDONLY and mapped once, whole. The map is never closed by hand: a slice of it keeps it
alive, and it goes with the last slice. How hot its pages are is remembered per 64 KiB for a second
(:mod:`storage.files.waiting`).
"""

import contextlib
import errno
import hashlib
import mmap
import os
import stat
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from protocol.errors import StoreError, TruncatedFile
from storage.files.hollow_files import HollowContent, hollow_content
from storage.files.waiting import Lookup, Wait, current_tick
from storage.kernels.file_map import FileMap
from storage.kernels.store_view import PROBE_BYTES, PROBE_SHIFT, FileView

if TYPE_CHECKING:  # there is no such module when code runs
    from _typeshed import ReadableBuffer

SEGMENT_NAME_DIGITS = 20
"""Digits in the name of a file of a logical stream: the byte offset of its first byte (store-format §1.2)."""

TIER_PREFIX_DIGITS = 8
"""Digits in front of them in the names of a tier's files."""

LARGEST_OFFSET = 2**63 - 1

_guards = False


def guard_maps() -> None:
    """From now on map files so that a look at bytes that somebody cut away finds zeros, and ends no process.

    For who asks :func:`storage.kernels.file_map.count_cuts` before what was found is used.
    """
    global _guards
    _guards = True


def _map(descriptor: int, size: int, *, is_hollow: bool) -> memoryview:
    if _guards or is_hollow:  # a look at a hole of a file on a full disk in memory finds no page either
        with contextlib.suppress(OSError):  # more maps than can be guarded
            return memoryview(FileMap(descriptor, size, is_walked=False))
    return memoryview(mmap.mmap(descriptor, size, access=mmap.ACCESS_READ))


class FileIdentity(NamedTuple):
    """What distinguishes one state of a file from another without reading it."""

    device: int
    inode: int
    size: int
    modified_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> "FileIdentity":
        """Identity from the result of a ``stat``."""
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def open_read_only(path: Path, start: int = 0, stop: int = LARGEST_OFFSET) -> int:
    """A descriptor of a regular file, opened for reading only; raises StoreError naming the path and the cause.

    Of a hollow file the bytes [start, stop), which are to be read, are there.
    """
    descriptor = _open(path)
    content = hollow_content(path)
    if content is not None:
        content.show(start, min(stop, os.fstat(descriptor).st_size))
    return descriptor


def _open(path: Path) -> int:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise StoreError(path, what=f"cannot be opened: {os.strerror(error.errno or errno.EIO)}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise StoreError(path, what="is not a regular file")
    return descriptor


def read_small_file(path: Path, limit: int) -> bytes:
    """The whole content of a regular file of at most ``limit`` bytes; raises StoreError for anything else.

    A FIFO would be waited on for ever, a device has no end; FileNotFoundError passes through.
    """
    try:
        os.stat(path)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StoreError(path, what=f"cannot be read: {os.strerror(error.errno or errno.EIO)}") from error
    descriptor = open_read_only(path)
    with os.fdopen(descriptor, "rb") as file:
        try:
            size = os.fstat(descriptor).st_size
            # No more room than it needs: a buffer for the longest file there may be is much for a small process.
            content = file.read(size + 1) if size <= limit else None
        except OSError as error:
            raise StoreError(path, what=f"cannot be read: {os.strerror(error.errno or errno.EIO)}") from error
    if content is None or len(content) > limit:
        raise StoreError(path, what=f"is longer than {limit} bytes")
    return content


def read_head(path: Path, size: int) -> bytes:
    """The first ``size`` bytes of a regular file; raises TruncatedFile for a shorter one."""
    data = read_piece(path, 0, size)
    if len(data) < size:
        raise TruncatedFile(path, expected=size, found=len(data))
    return data


def read_piece(path: Path, position: int, size: int) -> bytes:
    """Up to ``size`` bytes of a regular file from a position on, fewer where it ends; raises StoreError if unreadable.

    For a few bytes of a file that nobody keeps open; it is not mapped.
    """
    descriptor = open_read_only(path, position, position + size)
    try:
        return os.pread(descriptor, size, position)
    except OSError as error:
        raise StoreError(path, what=f"cannot be read: {os.strerror(error.errno or errno.EIO)}") from error
    finally:
        os.close(descriptor)


def lacks_means(error: BaseException) -> bool:
    """Whether an error says that there is no descriptor or memory left to open or map a file.

    Then nothing is wrong with the file.
    """
    cause = error.__cause__ if isinstance(error, StoreError) else error
    return isinstance(cause, OSError) and cause.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class MappedFile(FileView):
    """A read-only map of one whole file; ``region`` is what kernels read."""

    def __init__(self, path: Path, descriptor: int, content: HollowContent | None = None) -> None:
        """Map an open file; the descriptor is owned from here on. `content` is that of a hollow file."""
        self.path = path
        weakref.finalize(self, os.close, descriptor)
        self.identity = FileIdentity.of(os.fstat(descriptor))
        self.size = self.identity.size
        view = memoryview(b"")
        if self.size:
            try:
                view = _map(descriptor, self.size, is_hollow=content is not None)
            except (OSError, ValueError) as error:
                raise StoreError(path, what=f"cannot be mapped: {error}") from error
        heat = _no_heat((self.size >> PROBE_SHIFT) + 1)
        super().__init__(view, heat, descriptor if _can_be_probed(descriptor, self.size) else -1, content)
        self._descriptor = descriptor

    @classmethod
    def open(cls, path: Path, name: Path | None = None) -> "MappedFile":
        """Open and map a file, which is called `name` from then on; raises StoreError where that is not possible."""
        return cls(name or path, _open(path), hollow_content(path))

    @classmethod
    def of(cls, path: Path, known: "MappedFile | None", name: Path | None = None) -> "MappedFile":
        """A map that there is already, if the path still leads to the same file of the same size; else a new one."""
        return known if known is not None and known.is_at(path) else cls.open(path, name)

    def fileno(self) -> int:
        """The descriptor of the file, for as long as the map is there."""
        return self._descriptor

    def read(self, position: int, length: int) -> memoryview:
        """Bytes ``[position, position + length)`` as a slice of the map, nothing copied.

        Raises TruncatedFile outside the file.
        """
        if position < 0 or length < 0 or position + length > self.size:
            raise TruncatedFile(
                self.path, expected=f"{length} bytes at position {position}", found=f"a file of {self.size} bytes"
            )
        return self.slice(position, position + length)

    def read_lookup(self, position: int, length: int) -> Lookup[memoryview]:
        """`read` as a look-up, which waits until these bytes are in memory."""
        data = self.read(position, length)
        if (wait := self.wait_for(position, length)) is not None:
            yield wait
        return data

    def wait_for(self, position: int, length: int) -> Wait | None:
        """What a look-up waits for that is about to read some bytes; None where they are in memory."""
        if not length or self.is_hot(position, length, current_tick()):
            return None
        return self.cold(position, length)

    def cold(self, position: int, length: int) -> Wait:
        """What a look-up waits for that has found some bytes not to be in memory."""
        return Wait(f"{self.path.name} is cold at {position}", partial(self.warm, position, length))

    def warm(self, position: int, length: int) -> None:
        """Read the 64 KiB units around some bytes into the page cache; waits for the disk."""
        start = position >> PROBE_SHIFT << PROBE_SHIFT
        stop = min(self.size, -(-(position + length) >> PROBE_SHIFT) << PROBE_SHIFT)
        buffer = bytearray(PROBE_BYTES)
        for at in range(start, max(stop, start + 1), PROBE_BYTES):
            os.preadv(self._descriptor, [buffer], at)

    def peek(self, position: int, length: int) -> bytes:
        """Up to `length` bytes as they are now, read and not mapped: fewer, no signal, where the file was truncated."""
        self.show(position, position + length)
        try:
            return os.pread(self._descriptor, length, position)
        except OSError:
            return b""

    def current_size(self) -> int:
        """The size that the file has now; smaller than ``size`` once somebody truncated it."""
        return os.fstat(self._descriptor).st_size

    def is_cut(self) -> bool:
        """Whether somebody truncated it: what lies behind its end now must not be looked at through the map."""
        return self.current_size() < self.size

    def is_lost(self) -> bool:
        """Whether somebody truncated it, or removed it."""
        status = os.fstat(self._descriptor)
        return status.st_size < self.size or status.st_nlink == 0

    def is_at(self, path: Path) -> bool:
        """Whether a path leads to this file, and it has the size it had when it was mapped."""
        try:
            status = os.stat(path)
        except OSError:
            return False
        return (status.st_dev, status.st_ino, status.st_size) == self.identity[:3]

    def first_data(self, position: int) -> int:
        """Position of the first byte at or after ``position`` that is no hole, or ``size`` (SEEK_DATA).

        Holes of what is elsewhere are not known.
        """
        if self.is_hollow:
            return min(position, self.size)
        try:
            return os.lseek(self._descriptor, position, os.SEEK_DATA)
        except OSError:
            return self.size if position >= self.size else self._no_holes_known(position)

    def first_hole(self, position: int) -> int:
        """Position of the first hole at or after ``position``, or ``size`` (SEEK_HOLE)."""
        if self.is_hollow:
            return self.size
        try:
            return os.lseek(self._descriptor, position, os.SEEK_HOLE)
        except OSError:
            return self.size

    def _no_holes_known(self, position: int) -> int:
        """What SEEK_DATA's failure means: nothing but hole to the end, or a file system that cannot say."""
        try:
            os.lseek(self._descriptor, position, os.SEEK_HOLE)
        except OSError:
            return position
        return self.size


def _no_heat(units: int) -> memoryview:
    """A zero of 32 bits for each unit of a file; many of them take no memory before they are written to."""
    size = 4 * units
    is_small = size < mmap.PAGESIZE
    return memoryview(bytearray(size) if is_small else mmap.mmap(-1, size, mmap.MAP_PRIVATE)).cast("i")


def _can_be_probed(descriptor: int, size: int) -> bool:
    """Whether the file system answers reads with RWF_NOWAIT; tmpfs does not, and there everything is hot."""
    if not size or not hasattr(os, "RWF_NOWAIT"):
        return False
    try:
        os.preadv(descriptor, [bytearray(1)], 0, os.RWF_NOWAIT)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return True


def list_directory(directory: Path) -> list["os.DirEntry[str]"]:
    """The entries of a directory, none where there is no such directory.

    Only a directory that is missing holds nothing: raises StoreError, naming directory and reason, for one that cannot
    be listed, and where a file is in its place.
    """
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(directory, what=f"cannot be listed: {os.strerror(error.errno or errno.EIO)}") from error


def is_file(entry: "os.DirEntry[str]") -> bool:
    """Whether an entry is a file, or a link to one; raises StoreError where the system refuses to say."""
    return _is_kind(entry, entry.is_file)


def is_directory(entry: "os.DirEntry[str]") -> bool:
    """Whether an entry is a directory, or a link to one; raises StoreError where the system refuses to say."""
    return _is_kind(entry, entry.is_dir)


def _is_kind(entry: "os.DirEntry[str]", test: Callable[[], bool]) -> bool:
    """Apply a test to an entry; a link that leads in circles is nothing, one into a forbidden directory an error."""
    try:
        return test()
    except OSError as error:
        if error.errno == errno.ELOOP:
            return False
        raise cannot_be_seen(entry.path, error) from error


def cannot_be_seen(path: "str | os.PathLike[str]", error: OSError) -> StoreError:
    """The error for a path that may exist or not, since the system refuses to say."""
    return StoreError(path, what=f"cannot be looked at: {os.strerror(error.errno or errno.EIO)}")


def list_segment_files(directory: Path) -> tuple[list[tuple[int, Path]], list[Path]]:
    """Files of a logical stream in a directory, as (byte offset, path) in numerical order, and what else lies there.

    Names are read by :func:`segment_offset`. A missing directory has no files.
    """
    files: list[tuple[int, Path]] = []
    foreign: list[Path] = []
    for entry in sorted(list_directory(directory), key=lambda entry: entry.name):
        offset = segment_offset(entry.name)
        if offset is not None and is_file(entry):
            files.append((offset, Path(entry.path)))
        else:
            foreign.append(Path(entry.path))
    files.sort()
    return files, foreign


def written_length(content: "ReadableBuffer") -> int:
    """How many bytes there are up to the last one that is not zero; of a copy, since a broker may write meanwhile."""
    copy = bytes(content)
    # Compared first, since stripping goes byte by byte.
    return 0 if copy == bytes(len(copy)) else len(copy.rstrip(b"\0"))


def segment_offset(name: str) -> int | None:
    """The byte offset that the name of a file of a logical stream says; None for another name.

    Digits of any script count by their value (a broker under some locales writes such); a value beyond i64 is no
    offset. In a tier the digits follow the first eight of the offset's MD5, and no others (other-formats §4).
    """
    digits = name[-SEGMENT_NAME_DIGITS:]
    if len(digits) < SEGMENT_NAME_DIGITS or not digits.isdecimal() or int(digits) > LARGEST_OFFSET:
        return None
    offset = int(digits)
    return offset if len(name) == SEGMENT_NAME_DIGITS or name == tier_file_name(offset) else None


def segment_name(offset: int, neighbour: str) -> str:
    """The name of the file that begins at a byte offset, formed as that of another file of the stream is."""
    in_tier = len(neighbour) > SEGMENT_NAME_DIGITS
    return tier_file_name(offset) if in_tier else f"{offset:0{SEGMENT_NAME_DIGITS}d}"


def tier_file_name(offset: int) -> str:
    """The name of the file of a tier that begins at a byte offset."""
    hashed = hashlib.md5(str(offset).encode(), usedforsecurity=False).hexdigest()
    return f"{hashed[:TIER_PREFIX_DIGITS]}{offset:0{SEGMENT_NAME_DIGITS}d}"
