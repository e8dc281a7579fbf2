"""An index file read into memory, and its counts, found even if some of its bytes are wrong.

:mod:`storage.index.index_file` trusts a file whose slots and pointers all follow from its hashes. A file of which a
page was lost, or a bit flipped, is none of those; to say what is wrong with it its counts are needed all the same. So
they are settled by majorities: the slot count by what most pointers agree with, the number of entries by what two of
three say, the header, the last byte that is not zero, and the newest entry that a slot points to.
"""

import mmap
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from protocol.errors import StoreError, TruncatedFile
from storage.files.direct_writer import aligned_memory
from storage.files.mapped_file import open_read_only
from storage.index.index_file import DEFAULT_SLOTS, ENTRY_DTYPE, HEADER, IndexHeader, candidate_slot_counts
from storage.index.index_mark import IndexMark, is_true, read_mark
from storage.kernels.indexes import (
    ENTRY_BYTES,
    INDEX_HEADER,
    SLOT_BYTES,
    check_structure,
    next_slot_count,
    share_explained,
)
from storage.kernels.region import Region

SLOT_DTYPE: Final = np.dtype(">i4")
LARGEST_FILE: Final = (1 << 31) - 1
"""A broker maps the whole file, and a Java map is no larger."""

FEWEST_GUESSED: Final = 8
"""Entries that a file must have for its slot count to be found by trying all."""

MOST_GUESSES: Final = 1000

_READ: Final = 1 << 24
_PIECE: Final = 1 << 16

Entries = npt.NDArray[np.void]


class IndexCounts(NamedTuple):
    """S, N and the number of entries in use; the latter two as far as the file has room."""

    slots: int
    capacity: int
    entries: int


class IndexCopy:
    """The bytes of one index file at one moment, holes left out; a header is read before what it counts."""

    def __init__(self, path: Path) -> None:
        """Read the file; raises StoreError where that is not possible or no index file is that long."""
        self.path = path
        descriptor = open_read_only(path)
        try:
            self.size = os.fstat(descriptor).st_size
            if self.size > LARGEST_FILE:
                raise StoreError(path, expected=f"at most {LARGEST_FILE}", found=self.size, what="bytes")
            # An entry within which the file ends is looked at, too: zeros are there behind it.
            self._memory = aligned_memory(self.size + ENTRY_BYTES)
            self._extents = list(data_extents(descriptor, self.size))
            for start, stop in self._extents:
                self._read(descriptor, start, stop)
        finally:
            os.close(descriptor)
        self.region = Region(self._memory)
        self.last_data = self._last_data()

    def _read(self, descriptor: int, start: int, stop: int) -> None:
        view = memoryview(self._memory)
        while start < stop:
            try:
                count = os.preadv(descriptor, [view[start : min(stop, start + _READ)]], start)
            except OSError as error:
                raise StoreError(self.path, what=f"cannot be read: {error.strerror}") from error
            if not count:
                raise TruncatedFile(self.path, expected=self.size, found=start)
            start += count

    def _last_data(self) -> int:
        """Position of the last byte that is not zero, −1 for none."""
        for start, stop in reversed(self._extents):
            while stop > start:
                piece = max(start, stop - _PIECE)
                found = np.flatnonzero(np.frombuffer(self._memory, np.uint8, stop - piece, piece))
                if found.size:
                    return piece + int(found[-1])
                stop = piece
        return -1

    @property
    def header(self) -> IndexHeader:
        """The first 40 bytes; the file must have them."""
        return IndexHeader(*HEADER.unpack_from(self._memory, 0))

    def slots(self, slots: int) -> npt.NDArray[np.int32]:
        """The slots, as they are in the file."""
        return np.frombuffer(self._memory, SLOT_DTYPE, slots, INDEX_HEADER)

    def entries(self, slots: int, count: int) -> Entries:
        """Entries 0 to ``count``, as they are in the file."""
        return np.frombuffer(self._memory, ENTRY_DTYPE, count + 1, INDEX_HEADER + SLOT_BYTES * slots)

    def holds(self, memory: mmap.mmap, start: int, stop: int) -> bool:
        """Whether the bytes [start, stop) are those of another memory."""
        own, other = (np.frombuffer(data, np.uint8, stop - start, start) for data in (self._memory, memory))
        return bool(np.array_equal(own, other))

    def mark(self, slots: int) -> IndexMark | None:
        """The mark of a compacted file; None for any other."""
        return read_mark(memoryview(self._memory)[: self.size], slots)

    def is_marked_truly(self, slots: int) -> bool:
        """Whether the entries are those for which the mark, which must be there, was made."""
        return is_true(memoryview(self._memory)[: self.size], slots)

    def first_data(self, start: int, stop: int) -> int:
        """Position of the first byte of [start, stop) that is not zero, −1 for none."""
        stop = min(stop, self.last_data + 1)
        while start < stop:
            count = min(_PIECE, stop - start)
            found = np.flatnonzero(np.frombuffer(self._memory, np.uint8, count, start))
            if found.size:
                return start + int(found[0])
            start += count
        return -1


def data_extents(descriptor: int, size: int) -> Iterator[tuple[int, int]]:
    """Ranges of a file that are no holes; all of it where the file system does not report holes."""
    position = 0
    while position < size:
        try:
            start = os.lseek(descriptor, position, os.SEEK_DATA)
            stop = os.lseek(descriptor, start, os.SEEK_HOLE)
        except OSError:
            if not position and not _is_hole(descriptor):
                yield 0, size
            return
        yield start, min(max(stop, start + 1), size)
        position = max(stop, start + 1)


def _is_hole(descriptor: int) -> bool:
    """Whether a file is one hole, rather than on a file system that knows of none."""
    try:
        return os.lseek(descriptor, 0, os.SEEK_HOLE) == 0
    except OSError:
        return False


def count_slots(copy: IndexCopy, others: Iterable[int] = ()) -> int:
    """The slot count that explains a file best, 0 where none explains half of it; ``others``: what other files have."""
    others = [slots for slots in others if slots > 0]
    if copy.size < INDEX_HEADER + ENTRY_BYTES:
        return 0
    hints = [*others, DEFAULT_SLOTS]
    if copy.last_data < INDEX_HEADER and copy.header.index_count <= 1:
        # Without entries any count explains the file: one of its length.
        hints += range(1, ENTRY_BYTES // SLOT_BYTES + 1)
        return next((slots for slots in hints if _fits(copy.size, slots)), 1)
    candidates = list(candidate_slot_counts(copy.last_data, copy.header.index_count, hints))
    for slots in candidates:
        if slots in hints and _fits(copy.size, slots) and _reproduces(copy, slots):
            return slots
    exact = [slots for slots in candidates if _reproduces(copy, slots)]
    if len(exact) > 1:
        exact = [slots for slots in exact if slots in others] or [slots for slots in exact if _fits(copy.size, slots)]
    if exact:
        return exact[0]
    if copy.header.index_count <= 1 and any(_fits(copy.size, slots) for slots in others):
        return next(slots for slots in others if _fits(copy.size, slots))  # without entries there is no other evidence
    return _best(copy, candidates) or _best(copy, _guesses(copy))


def _reproduces(copy: IndexCopy, slots: int) -> bool:
    entries = _entries_by_data(copy, slots)
    return check_structure(copy.region, slots, entries) == 0


def _fits(size: int, slots: int) -> bool:
    room = size - INDEX_HEADER - SLOT_BYTES * slots
    return room > ENTRY_BYTES and room % ENTRY_BYTES == 0


def _best(copy: IndexCopy, candidates: Iterable[int]) -> int:
    """The candidate that explains most pointers and slots, if it explains half of them."""
    best, most = 0, 0.5
    for slots in candidates:
        share = share_explained(copy.region, slots, _entries_by_data(copy, slots))
        if share > most or (share == most and not best):
            best, most = slots, share
    return best


def _guesses(copy: IndexCopy) -> Iterator[int]:
    """Slot counts that explain the first entries."""
    slots = 1
    for _ in range(MOST_GUESSES):
        slots = next_slot_count(copy.region, slots, copy.last_data)
        if not slots or _entries_by_data(copy, slots) < FEWEST_GUESSED:
            return
        yield slots
        slots += 1


def _entries_by_data(copy: IndexCopy, slots: int) -> int:
    return (copy.last_data - INDEX_HEADER - SLOT_BYTES * slots) // ENTRY_BYTES


def counts_by_header(copy: IndexCopy, slots: int) -> IndexCounts | None:
    """Derive counts from length and header of a file of `slots` slots; None without entries, or if they differ."""
    if slots < 1 or not _fits(copy.size, slots):
        return None
    capacity, entries = (copy.size - INDEX_HEADER - SLOT_BYTES * slots) // ENTRY_BYTES, copy.header.index_count - 1
    return IndexCounts(slots, capacity, entries) if 0 < entries < capacity else None


def count_entries(copy: IndexCopy, slots: int, *, grows: bool = False) -> IndexCounts:
    """How many entries a file has; one that a broker writes to (``grows``) as many as its header said at first."""
    capacity = max((copy.size - INDEX_HEADER - SLOT_BYTES * slots) // ENTRY_BYTES, 1)
    by_header = max(copy.header.index_count - 1, 0)
    by_data = max(_entries_by_data(copy, slots), 0)
    by_slots = max(int(copy.slots(slots).max(initial=0)), 0)
    if grows and by_header <= min(by_data, capacity - 1):
        return IndexCounts(slots, capacity, by_header)
    agreed = by_header if by_header in (by_data, by_slots) else by_data
    return IndexCounts(slots, capacity, min(agreed, capacity - 1))
