"""Read a segment by blocks into one buffer, as a window that moves over it.

Not through a map: a file that shrinks under a map kills the process, block reads are what a disk likes, and an object
store has no maps. The buffer grows only for a record that is longer than it.
"""

import mmap
import os
from pathlib import Path
from typing import Final, Protocol, Self

import numpy as np

from protocol.errors import StoreError, TruncatedFile
from storage.direct_writer import aligned_memory
from storage.kernels.records import MINIMUM_SIZE, check_intact, find_candidate, store_timestamp
from storage.kernels.region import Region

READ_BYTES: Final = 1024 * 1024
LONGEST_RECORD: Final = 128 * 1024 * 1024
"""Bytes of the longest record that is believed: what is held in memory of a segment is bounded by it."""

CANDIDATE_BYTES: Final = 36
"""Bytes of a record up to and with its own offset: enough to know a candidate by."""


class ByteSource(Protocol):
    """Where a segment's bytes come from; `path` is for messages, `size` as it was when it was opened."""

    @property
    def path(self) -> str | os.PathLike[str]:
        """What the bytes are known by."""
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
        """Let it go."""
        ...


class LocalFile:
    """A file of this machine."""

    def __init__(self, path: Path) -> None:
        """Open it; raises StoreError where that cannot be done."""
        self.path = path
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY)
        except OSError as error:
            raise StoreError(path, what=f"cannot be opened: {error.strerror}") from error
        self.size = os.fstat(self._descriptor).st_size

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


class LogWindow:
    """A segment's bytes [`start`, `start + filled`) by position: the first of a `region`, which lies at `address`."""

    def __init__(self, source: ByteSource, base_offset: int, read_bytes: int = READ_BYTES) -> None:
        """Look at a segment, which is closed with the window; `read_bytes` are read at once."""
        self.base_offset = base_offset
        self.size = source.size
        self.start = self.filled = 0
        self.bytes_read = 0
        self._source, self._read_bytes = source, read_bytes
        self._hold(aligned_memory(read_bytes))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._source.close()

    @property
    def path(self) -> str | os.PathLike[str]:
        """The segment's, for messages."""
        return self._source.path

    @property
    def is_at_end(self) -> bool:
        """Whether there is nothing behind the window."""
        return self.start + self.filled >= self.size

    def move(self, position: int) -> None:
        """Let the window start at a position of the segment; what it holds from there on stays in it."""
        inside = position - self.start
        if 0 <= inside <= self.filled:
            self._array[: self.filled - inside] = self._array[inside : self.filled].copy()
            self.filled -= inside
        else:
            self.filled = 0
        self.start = position
        self.fill(min(self._read_bytes, len(self._array)))

    def show(self, position: int, size: int) -> bool:
        """Hold `size` bytes from a position on; False where the segment has not so many."""
        if position < 0 or position + size > self.size:
            return False
        if position < self.start or position + size > self.start + self.filled:
            self.move(position)
            self.fill(size)
        return True

    def show_record(self, position: int) -> bool:
        """Hold the bytes that a record at a position announces; False where there are not so many, or too many."""
        if not self.show(position, MINIMUM_SIZE):
            return False
        size = self.i32(position)
        return MINIMUM_SIZE <= size <= LONGEST_RECORD and self.show(position, size)

    def intact_size(self, position: int) -> int:
        """Size of the intact record at a position, which is held then; 0 where there is none."""
        if not self.show_record(position):
            return 0
        at, size = position - self.start, self.i32(position)
        return size if check_intact(self.region, at, at + size, self.base_offset + position) == size else 0

    def store_timestamp(self, position: int) -> int:
        """When the record at a position that is held was stored, in ms."""
        return store_timestamp(self.region, position - self.start)

    def fill(self, wanted: int) -> None:
        """Hold `wanted` bytes from the window's start on, as far as the segment goes."""
        self._make_room(wanted)
        wanted = min(wanted, self.size - self.start)
        while self.filled < wanted:
            view = memoryview(self._memory)[self.filled : wanted]
            try:
                count = self._source.read_into(view, self.start + self.filled)
            except OSError as error:
                place = self.base_offset + self.start + self.filled
                raise StoreError(self.path, place, what=f"cannot be read: {error.strerror or error}") from error
            if not count:
                raise TruncatedFile(self.path, expected=self.size, found=self.start + self.filled)
            self.filled += count
            self.bytes_read += count

    def i32(self, position: int) -> int:
        """The number at a position inside the window."""
        at = position - self.start
        return int.from_bytes(self._memory[at : at + 4], "big", signed=True)

    def find_candidate(self, position: int) -> int:
        """Next position from `position` on where a record may start: magic and own offset are right. −1 for none.

        Holes of the file are stepped over, not read.
        """
        while position + CANDIDATE_BYTES <= self.size:
            if not self.start <= position <= self.start + self.filled - CANDIDATE_BYTES:
                position = self._source.first_data(position)
                self.move(position)
            base = self.base_offset + self.start
            found = find_candidate(self.region, position - self.start, self.filled, base)
            if found >= 0:
                return self.start + found
            if self.is_at_end:
                break
            position = self.start + self.filled - CANDIDATE_BYTES + 1
        return -1

    def _make_room(self, size: int) -> None:
        if size > len(self._array):
            held = self._array[: self.filled]
            self._hold(aligned_memory(size))
            self._array[: self.filled] = held

    def _hold(self, memory: mmap.mmap) -> None:
        self._memory = memory
        self._array = np.frombuffer(memory, dtype=np.uint8)
        self.region = Region(memory)
        self.address = self.region.address
