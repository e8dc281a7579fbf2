"""The bytes of a segment that a window shows: pages of a map of its file, or a copy of what was read.

Mapped is what a file of this machine is where the kernel can populate maps: nothing is copied, and while one piece is
looked at a thread lets the next be read, and entered into the map; pages behind the window are dropped. A file that is
cut meanwhile leaves zeros in the map (:mod:`storage.kernels.file_map`), which is asked for at every step.

Anything else is copied by blocks into one buffer, small enough to stay in the processor's cache.
"""

import mmap
import os
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final, Protocol

import numpy as np

from protocol.errors import StoreError, TruncatedFile
from storage.files.direct_writer import aligned_memory
from storage.files.hollow_files import hollow_content
from storage.kernels.file_map import FileMap
from storage.kernels.region import Region

READ_BYTES: Final = 1024 * 1024
"""Read at once, and looked at where nobody knows yet whether what follows is wanted."""


class ByteSource(Protocol):
    """Where a segment's bytes come from; `path` is for messages, `size` as it was when it was opened."""

    @property
    def path(self) -> str | os.PathLike[str]:
        """The path or URL of the bytes."""
        ...

    @property
    def size(self) -> int:
        """How many there are."""
        ...

    def read_into(self, view: memoryview, position: int) -> int:
        """Read up to as many bytes as the view has, from a position on; how many. Raises OSError."""
        ...

    def first_data(self, position: int) -> int:
        """Position of the first byte from one on that is in no hole, as far as that is known."""
        ...

    def close(self) -> None:
        """Release the held bytes of the file."""
        ...


class LocalFile:
    """A file of this machine."""

    def __init__(self, path: Path) -> None:
        """Open it; raises StoreError if that is impossible."""
        self.path = path
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY)
        except OSError as error:
            raise StoreError(path, what=f"cannot be opened: {error.strerror}") from error
        self.size = self.current_size()
        if (content := hollow_content(path)) is not None:
            content.show(0, self.size)

    def map(self) -> FileMap:
        """Map all of it; raises OSError if that is impossible."""
        return FileMap(self._descriptor, self.size)

    def current_size(self) -> int:
        """How many bytes it has now; fewer than `size` where somebody cut it."""
        return os.fstat(self._descriptor).st_size

    def read_into(self, view: memoryview, position: int) -> int:
        """As :class:`ByteSource` says."""
        return os.preadv(self._descriptor, [view], position)

    def first_data(self, position: int) -> int:
        """As :class:`ByteSource` says."""
        try:
            return os.lseek(self._descriptor, position, os.SEEK_DATA)
        except OSError:  # nothing but a hole up to the end, or a file system that cannot say
            try:
                return self.size if os.lseek(self._descriptor, position, os.SEEK_HOLE) <= position else position
            except OSError:
                return position

    def close(self) -> None:
        """As :class:`ByteSource` says."""
        os.close(self._descriptor)


class HeldBytes(Protocol):
    """Bytes [`start`, `start + filled`) of a segment: the first of a `region`."""

    start: int
    filled: int
    bytes_read: int
    region: Region

    def move(self, position: int, wanted: int) -> None:
        """Start at a position, and hold about `wanted` bytes from there on, as far as the segment goes.

        What is held from there on stays. Raises StoreError for bytes that cannot be read, as all of these do.
        """
        ...

    def fill(self, wanted: int) -> None:
        """Hold `wanted` bytes from the start on, as far as the segment goes."""
        ...

    def piece(self, start: int, stop: int) -> Region:
        """Bytes [start, stop) of the segment apart: they stay, wherever this moves."""
        ...

    def require_whole(self) -> None:
        """Raise StoreError where what was held was not what the segment had, since somebody cut it meanwhile."""
        ...

    def close(self) -> None:
        """Release the bytes and their source."""
        ...


def hold(source: ByteSource, base_offset: int, read_bytes: int) -> HeldBytes:
    """No bytes yet, of a source that is closed with them; copied, so many are read at once."""
    if isinstance(source, LocalFile):
        try:
            return MappedBytes(source, source.map(), base_offset, read_bytes)
        except OSError:  # the kernel is too old, the file system has no maps, the file is empty
            pass
    return CopiedBytes(source, base_offset, read_bytes)


class CopiedBytes:
    """Bytes that are read into a buffer."""

    def __init__(self, source: ByteSource, base_offset: int, read_bytes: int) -> None:
        """A buffer of `read_bytes`; nothing is read."""
        self.start = self.filled = self.bytes_read = 0
        self._source, self._base_offset, self._read_bytes = source, base_offset, read_bytes
        self._hold(aligned_memory(read_bytes))

    def move(self, position: int, wanted: int) -> None:
        """As :class:`HeldBytes` says."""
        inside = position - self.start
        if 0 <= inside <= self.filled:
            self._array[: self.filled - inside] = self._array[inside : self.filled].copy()
            self.filled -= inside
        else:
            self.filled = 0
        self.start = position
        self.fill(min(wanted, len(self._array)))

    def fill(self, wanted: int) -> None:
        """As :class:`HeldBytes` says."""
        self._make_room(wanted)
        wanted = min(wanted, self._source.size - self.start)
        while self.filled < wanted:
            self.filled += self._read(memoryview(self._memory)[self.filled : wanted], self.start + self.filled)

    def piece(self, start: int, stop: int) -> Region:
        """As :class:`HeldBytes` says."""
        view = memoryview(aligned_memory(stop - start))[: stop - start]
        at = start
        while at < stop:
            at += self._read(view[at - start :], at)
        return Region(view)

    def _read(self, view: memoryview, at: int) -> int:
        """Read some bytes, one at least; how many."""
        try:
            count = self._source.read_into(view, at)
        except OSError as error:
            raise _cannot_be_read(self._source, self._base_offset + at, error) from error
        if not count:
            raise TruncatedFile(self._source.path, expected=self._source.size, found=at)
        self.bytes_read += count
        return count

    def require_whole(self) -> None:
        """A copy stays as it is."""

    def close(self) -> None:
        """As :class:`HeldBytes` says."""
        self._source.close()

    def _make_room(self, size: int) -> None:
        if size > len(self._array):
            held = self._array[: self.filled]
            self._hold(aligned_memory(size))
            self._array[: self.filled] = held

    def _hold(self, memory: mmap.mmap) -> None:
        self._memory = memory
        self._array = np.frombuffer(memory, dtype=np.uint8)
        self.region = Region(memory)


class MappedBytes:
    """Pages of a map. After a jump few are populated; who goes on gets more, and the next ones ahead.

    Of the map [`_kept`, `_populated`) has been populated and not dropped; `_ahead` is what populates
    [`_populated`, `_ordered`).
    """

    def __init__(self, source: LocalFile, file_map: FileMap, base_offset: int, read_bytes: int) -> None:
        """All of the file is mapped; nothing is read."""
        self.start = self.filled = self.bytes_read = 0
        self._source, self._map, self._base_offset, self._read_bytes = source, file_map, base_offset, read_bytes
        self._view = memoryview(file_map)
        self._kept = self._populated = self._ordered = 0
        self._goes_on = self._is_reported = False
        self._ahead: Future[None] | None = None
        self._helper: ThreadPoolExecutor | None = None
        self._show()

    def move(self, position: int, wanted: int) -> None:
        """As :class:`HeldBytes` says."""
        if self.start <= position <= self.start + self.filled:
            self._goes_on |= position > self.start
            self.filled -= position - self.start
            self._drop(position)
        else:
            self._jump(position)
        self.start = position
        self._fill(wanted if self._goes_on else min(wanted, READ_BYTES))
        if self._goes_on:
            self._order()

    def fill(self, wanted: int) -> None:
        """As :class:`HeldBytes` says."""
        if wanted > self.filled:
            self._fill(wanted)

    def piece(self, start: int, stop: int) -> Region:
        """As :class:`HeldBytes` says."""
        return Region(self._view[start:stop])

    def require_whole(self) -> None:
        """As :class:`HeldBytes` says."""
        found = self._source.current_size()
        is_lost = found < self.start + self.filled or self._map.is_cut
        if is_lost and not self._is_reported:
            self._is_reported = True
            if found < self._source.size:
                raise TruncatedFile(self._source.path, expected=self._source.size, found=found)
            raise StoreError(self._source.path, what="cannot be read: it was cut meanwhile, or its disk failed")

    def close(self) -> None:
        """As :class:`HeldBytes` says."""
        if self._helper is not None:
            self._helper.shutdown()
        self._source.close()

    def _fill(self, wanted: int) -> None:
        self.require_whole()
        stop = min(self.start + max(wanted, self.filled), self._map.size)
        if self._ahead is not None and self._populated < stop:
            self._settle()
        if self._populated < stop:
            try:
                self._map.populate(self._populated, stop)
            except OSError as error:
                self._filled_up_to(self._populated)
                raise self._failure(error) from error
            self.bytes_read += stop - self._populated
            self._populated = stop
        self._filled_up_to(stop)
        self.require_whole()

    def _filled_up_to(self, stop: int) -> None:
        self.filled = max(stop - self.start, 0)
        self._show()

    def _show(self) -> None:
        self.region = Region(self._view[self.start : self.start + self.filled])

    def _jump(self, position: int) -> None:
        self._settle()
        self._map.drop(self._kept, self._populated)
        self._populated = min(position, self._map.size)
        self._kept = self._populated // mmap.PAGESIZE * mmap.PAGESIZE
        self.filled, self._goes_on = 0, False

    def _drop(self, position: int) -> None:
        """Let what lies before a position go, in whole pages."""
        stop = position // mmap.PAGESIZE * mmap.PAGESIZE
        if stop > self._kept:
            self._map.drop(self._kept, stop)
            self._kept = stop

    def _order(self) -> None:
        """Let the next piece be populated meanwhile, unless there is a hole."""
        start = self._populated
        stop = min(start + self._read_bytes, self._map.size)
        if self._ahead is None and start < stop and self._source.first_data(start) == start:
            if self._helper is None:
                self._helper = ThreadPoolExecutor(1, "populating a map")
            self._ordered = stop
            self._ahead = self._helper.submit(self._map.populate, start, stop)

    def _settle(self) -> None:
        """Wait for what was ordered; where that failed it has not been populated."""
        if self._ahead is None:
            return
        if self._ahead.exception() is None:
            self.bytes_read += self._ordered - self._populated
            self._populated = self._ordered
        self._ahead = None

    def _failure(self, error: OSError) -> StoreError:
        """Why pages cannot be populated: the file ends before them now, or what the system says."""
        found = self._source.current_size()
        if found < self._source.size:
            return TruncatedFile(self._source.path, expected=self._source.size, found=found)
        return _cannot_be_read(self._source, self._base_offset + self._populated, error)


def _cannot_be_read(source: ByteSource, physical_offset: int, error: OSError) -> StoreError:
    return StoreError(source.path, physical_offset, what=f"cannot be read: {error.strerror or error}")
