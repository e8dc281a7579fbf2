"""Read a segment as a window that moves over it.

A file of this machine is mapped and read through windows of the map (:mod:`storage.log._held_bytes`); what is no
such file, and any file where the kernel cannot do that, is copied by blocks into one buffer, which grows only for a
record that is longer than it.
"""

import os
from typing import Final, Self

from storage.kernels.records import (
    BAD_BODY_CRC,
    BAD_PROPERTY_CRC,
    ENTRY_HEAD,
    ENTRY_OF_RECORD,
    ENTRY_SIZE,
    LAST_ENTRY_KIND,
    MINIMUM_SIZE,
    SUM_PATIENCE,
    KeptChecksums,
    check_intact,
    closes_segment,
    find_candidate,
    record_start,
    store_timestamp,
)
from storage.kernels.region import Region
from storage.kernels.texts import bytes_at
from storage.log._held_bytes import READ_BYTES, ByteSource, LocalFile, hold
from storage.log.record_scan import LONGEST_RECORD
from storage.log.segment_end import BLANK_BYTES

__all__ = ["CANDIDATE_BYTES", "LONGEST_RECORD", "READ_BYTES", "ByteSource", "LocalFile", "LogWindow"]

PIECE: Final = 2 * LONGEST_RECORD
"""Bytes of which sums are kept once much was summed up for nothing: headers of long records may lie in one another."""

CANDIDATE_BYTES: Final = 36
"""Bytes of a record up to and with its own offset: enough to know a candidate by."""


class LogWindow:
    """A segment's bytes [`start`, `start + filled`) by position: the first of a `region`, which lies at `address`."""

    def __init__(self, source: ByteSource, base_offset: int, read_bytes: int = READ_BYTES) -> None:
        """Look at a segment, which is closed with the window; `read_bytes` are held at once."""
        self.base_offset = base_offset
        self.path: str | os.PathLike[str] = source.path
        self.size = source.size
        self._read_bytes = read_bytes
        self._source, self._held = source, hold(source, base_offset, read_bytes)
        self._summed_for_nothing = 0
        self._piece, self._piece_start, self._sums = Region(b""), 0, KeptChecksums()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close; raises StoreError if the file was cut while it was read and that was not reported before."""
        try:
            if kind is None or issubclass(kind, Exception):
                self.require_whole()
        finally:
            self._held.close()

    @property
    def start(self) -> int:
        """Position of the first byte."""
        return self._held.start

    @property
    def filled(self) -> int:
        """How many bytes there are."""
        return self._held.filled

    @property
    def region(self) -> Region:
        """What kernels read; another one after each move."""
        return self._held.region

    @property
    def bytes_read(self) -> int:
        """How many bytes of the segment were read so far, or mapped."""
        return self._held.bytes_read

    @property
    def is_at_end(self) -> bool:
        """Whether there is nothing behind the window."""
        return self.start + self.filled >= self.size

    def move(self, position: int) -> None:
        """Let the window start at a position of the segment; what it holds from there on stays in it."""
        self._held.move(position, self._read_bytes)

    def fill(self, wanted: int) -> None:
        """Hold `wanted` bytes from the window's start on, as far as the segment goes."""
        self._held.fill(wanted)

    def require_whole(self) -> None:
        """Raise StoreError if the file was cut while it was read: then nothing that was made of it counts."""
        self._held.require_whole()

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

    def record_start(self, position: int) -> int:
        """Position behind the heads of DLedger entries at a position, which are held then; itself where none is."""
        while self.show(position, ENTRY_HEAD):
            at = position - self.start
            behind = record_start(self.region, at, self.filled, self.base_offset + position) - at
            if not behind or self.start + self.filled >= self.size or at + behind + ENTRY_HEAD <= self.filled:
                return position + behind
            position += behind
        return position

    def intact_size(self, position: int) -> int:
        """Size of the intact record at a position, which is held then; 0 without one."""
        if self._summed_for_nothing > SUM_PATIENCE:
            return self._size_by_sums(position)
        if not self.show_record(position):
            return 0
        at, size = position - self.start, self.i32(position)
        code = check_intact(self.region, at, at + size, self.base_offset + position)
        if code in (BAD_BODY_CRC, BAD_PROPERTY_CRC):
            self._summed_for_nothing += size
        return size if code == size else 0

    def _size_by_sums(self, position: int) -> int:
        """As `intact_size`, with checksums kept for a piece of the segment, so that no byte is summed up twice."""
        if not self.show(position, MINIMUM_SIZE):
            return 0
        size = self.i32(position)
        if not MINIMUM_SIZE <= size <= min(LONGEST_RECORD, self.size - position):
            return 0
        if not self._piece_start <= position <= self._piece_start + self._piece.size - size:
            self._piece_start = position
            self._piece = self._held.piece(position, min(position + PIECE, self.size))
            self._sums = KeptChecksums(patience=-1)
        at = position - self._piece_start
        code = check_intact(self._piece, at, at + size, self.base_offset + position, self._sums)
        return size if code == size and self.show_record(position) else 0

    def is_closed_at(self, position: int, boundary: int) -> bool:
        """Whether the BLANK of a segment is at a position, behind which the log goes on at `boundary`."""
        left = boundary - self.base_offset - position
        return self.show(position, BLANK_BYTES) and closes_segment(self.region, position - self.start, left)

    def store_timestamp(self, position: int) -> int:
        """When the record at a position that is held was stored, in ms."""
        return store_timestamp(self.region, position - self.start)

    def i32(self, position: int) -> int:
        """The number at a position inside the window."""
        at = position - self.start
        return int.from_bytes(bytes_at(self.region, at, 4), "big", signed=True)

    def announced_size(self, position: int) -> int:
        """Bytes that a record at a position of the window says that it has, or that are to be seen of a DLedger entry.

        Eight bytes must be there. Of an entry with a record that is its head. What is neither of both has any size.
        """
        first = self.i32(position)
        if not ENTRY_OF_RECORD <= first <= LAST_ENTRY_KIND:
            return max(first, BLANK_BYTES)
        return ENTRY_HEAD if first == ENTRY_OF_RECORD else max(self.i32(position + ENTRY_SIZE), ENTRY_HEAD)

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
