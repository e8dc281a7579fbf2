"""One IndexFile: header, slots, entries; and how its slot and entry counts are found out.

A header, then S slots of i32, each the number of its newest entry, then N entries, of which number 0 is never used
(store-format §3.4). Big-endian:

HEADER
offset  size  type  field                  meaning
0       8     i64   begin_timestamp        store time of the first entry's message, ms
8       8     i64   end_timestamp          store time of the last entry's message, ms
16      8     i64   begin_physical_offset  of the first entry
24      8     i64   end_physical_offset    of the last entry
32      4     i32   slot_count             slots that are not empty
36      4     i32   index_count            entries + 1

ENTRY
offset  size  type  field            meaning
0       4     i32   key_hash         ≥ 0
4       8     i64   physical_offset  of the record
12      4     i32   time_difference  whole seconds since begin_timestamp
16      4     i32   previous         entry of the same slot before this one, 0 = none

S and N are not in the file. Candidates for S come from the last byte that is not zero, which is in the last entry. A
candidate stays if recomputing slots and pointers from the hashes reproduces the file; the length 40 + 4S + 20N breaks
ties. A length alone proves nothing: after a change of configuration it can be consistent and wrong.

Entries lie in the order of the log, or, in a compacted file, slot by slot (:mod:`storage.index.index_mark`); what a
broker put into that one later is in the order of the log again, behind the others.

A broker that runs puts further entries at any moment, so what a shape counts are the first entries, and chains may
start behind them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from struct import Struct

from storage.files.mapped_file import MappedFile, written_length
from storage.index._index_shape import IndexShape, measure_shape
from storage.index.index_header import HEADER, IndexHeader, read_header
from storage.kernels.indexes import ENTRY_BYTES, INDEX_HEADER, SLOT_BYTES, check_growing_structure, check_structure
from storage.kernels.store_view import Shortcuts

__all__ = ["ENTRY", "ENTRY_DTYPE", "HEADER", "SLOT", "IndexEntry", "IndexFile", "IndexHeader", "read_header"]

ENTRY = Struct(">iqii")
SLOT = Struct(">i")
ENTRY_DTYPE = [("key_hash", ">i4"), ("physical_offset", ">i8"), ("time_difference", ">i4"), ("previous", ">i4")]

DEFAULT_SLOTS = 5_000_000
DEFAULT_ENTRIES = 20_000_000
MOST_SLOTS = 2**31 - 1
"""A Java int counts them; a sparse file may look as if it had more."""
MOST_PUT_MEANWHILE = 4096
"""Entries that may be put while the end of a file is looked for, for its counts to be found without a hint."""
SEARCH_CHUNK = 1024 * 1024


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One entry; ``previous`` is the number of the one before it in the same slot."""

    key_hash: int
    physical_offset: int
    time_difference: int
    previous: int


class IndexFile:
    """A mapped index file whose shape is known. ``shape.entries`` may be 0."""

    def __init__(self, file: MappedFile, shape: IndexShape, shortcuts: Shortcuts | None = None) -> None:
        """Combine a map with its shape; nothing is read. ``shortcuts`` start empty unless given."""
        self.file = file
        self.shape = shape
        self.shortcuts = Shortcuts() if shortcuts is None else shortcuts
        self.name = file.path.name

    def grown(self, shape: IndexShape) -> IndexFile:
        """Return this file with the entries that were put since; its shortcuts stay valid."""
        return IndexFile(self.file, shape, self.shortcuts)

    @property
    def header(self) -> IndexHeader:
        """The header as it is in the file now."""
        return read_header(self.file)

    @property
    def capacity(self) -> int:
        """The number of the last entry that fits the file."""
        return (self.file.size - INDEX_HEADER - SLOT_BYTES * self.shape.slots) // ENTRY_BYTES - 1

    def entry(self, number: int) -> IndexEntry:
        """The entry of a number from 1 to ``capacity``."""
        return IndexEntry(*ENTRY.unpack_from(self.rows(number, number)))

    def rows(self, first: int, last: int) -> memoryview:
        """The bytes of the entries ``first`` to ``last``."""
        position = INDEX_HEADER + SLOT_BYTES * self.shape.slots + ENTRY_BYTES * first
        return self.file.slice(position, position + ENTRY_BYTES * (last - first + 1))

    def slot(self, key_hash: int) -> int:
        """Number of the newest entry in the slot of a hash, 0 for none."""
        position = INDEX_HEADER + SLOT_BYTES * (key_hash % self.shape.slots)
        newest: int = SLOT.unpack(self.file.slice(position, position + SLOT_BYTES))[0]
        return newest

    def chain(self, key_hash: int) -> Iterator[tuple[int, IndexEntry]]:
        """Entries of a hash's slot, newest first, as (number, entry); ends at any pointer that does not go down.

        Entries that were put since the shape was found out are among them.
        """
        number = self.slot(key_hash) if self.capacity > 0 else 0
        while 0 < number <= self.capacity:
            entry = self.entry(number)
            yield number, entry
            if entry.previous >= number:
                return
            number = entry.previous


def last_data_position(file: MappedFile) -> int:
    """Position of the last byte that is not zero, −1 for none. Holes are skipped (SEEK_DATA), not read."""
    extents: list[tuple[int, int]] = []
    position = 0
    while position < file.size and len(extents) < 65536:
        start = file.first_data(position)
        if start >= file.size:
            break
        position = max(file.first_hole(start), start + 1)
        extents.append((start, min(position, file.size)))
    if position < file.size and len(extents) >= 65536:
        extents.append((position, file.size))
    for start, stop in reversed(extents):
        while stop > start:
            chunk = max(start, stop - SEARCH_CHUNK)
            written = written_length(file.slice(chunk, stop))
            if written:
                return chunk + written - 1
            stop = chunk
    return -1


def candidate_slot_counts(last_data: int, index_count: int, hints: Iterable[int]) -> Iterator[int]:
    """Slot counts under which the last non-zero byte lies in a last entry: hints first, then by the header."""
    seen = set()
    for slots in hints:
        fits = INDEX_HEADER + SLOT_BYTES * slots + ENTRY_BYTES <= last_data
        if 0 < slots <= MOST_SLOTS and fits and slots not in seen:
            seen.add(slots)
            yield slots
    for inside in range(ENTRY_BYTES):
        rest = last_data - inside - INDEX_HEADER - ENTRY_BYTES * (index_count - 1)
        slots, beyond = divmod(rest, SLOT_BYTES)
        if index_count > 1 and 0 < slots <= MOST_SLOTS and not beyond and slots not in seen:
            yield slots


def _candidates(last_data: int, index_counts: Iterable[int], hints: Sequence[int]) -> Iterator[int]:
    """Candidates for the slot count of a file whose header may have counted as much when its end was looked for."""
    seen: set[int] = set()
    for index_count in index_counts:
        for slots in candidate_slot_counts(last_data, index_count, hints):
            if slots not in seen:
                seen.add(slots)
                yield slots


def determine_shape(
    file: MappedFile, hints: Iterable[int] = (), vouched: tuple[int, int] | None = None
) -> IndexShape | None:
    """Find slot and entry counts of a file; None where none, or more than one, explains its bytes.

    ``hints`` are slot counts to try first: those of neighbouring files, the default. ``vouched`` are the counts (S, N)
    that the user knows; they decide wherever they explain the bytes. A file without entries takes the first slot count.
    """
    hints = [*((vouched[0],) if vouched else ()), *hints]
    if file.size < INDEX_HEADER:
        return None
    before = read_header(file).index_count
    last_data = last_data_position(file)
    after = read_header(file).index_count
    if last_data < INDEX_HEADER and after <= 1:
        return IndexShape(hints[0] if hints else DEFAULT_SLOTS, 0, 0, 0, True, ())
    after = min(max(before, after), before + MOST_PUT_MEANWHILE)
    # An entry that is being put, and not counted yet, may be the last one: looked for only where nothing else explains.
    for index_counts in (range(before, after + 1), (after + 1,)):
        survivors = [
            (slots, entries)
            for slots in _candidates(last_data, index_counts, hints)
            if (entries := _reproduces(file, slots, last_data)) > 0
        ]
        if survivors:
            break
    if vouched and any(slots == vouched[0] and entries < vouched[1] for slots, entries in survivors):
        survivors = [(slots, entries) for slots, entries in survivors if slots == vouched[0]]
    if len(survivors) > 1:
        survivors = [(slots, entries) for slots, entries in survivors if _length_agrees(file.size, slots, entries)]
    if len(survivors) > 1:  # one that leaves no byte unexplained counts more than one whose file is being written
        whole = [each for each in survivors if each[1] == _entries_up_to(last_data, each[0])]
        survivors = whole or survivors
    if len(survivors) != 1:
        return None
    return measure_shape(file, *survivors[0])


def end_of_entries(shape: IndexShape) -> int:
    """Position behind the last entry, or behind the header of a file without entries."""
    if not shape.entries:
        return INDEX_HEADER
    return INDEX_HEADER + SLOT_BYTES * shape.slots + ENTRY_BYTES * (shape.entries + 1)


def _reproduces(file: MappedFile, slots: int, last_data: int) -> int:
    """Number of entries under a slot count if slots and pointers can be recomputed from the hashes, else 0.

    Where the last entry was not complete when its slot was read, or slots have changed since, the header says how many
    entries there are: a broker counts an entry there last of all.
    """
    entries = _entries_up_to(last_data, slots)
    capacity = (file.size - INDEX_HEADER - SLOT_BYTES * slots) // ENTRY_BYTES - 1
    if not 1 <= entries <= capacity:
        return 0
    counted = min(read_header(file).index_count - 1, entries)
    bad = check_structure(file.region, slots, entries)
    if bad == 0:
        return entries
    if not 1 <= counted < bad:
        return 0
    return counted if check_growing_structure(file.region, slots, counted, capacity) == 0 else 0


def _entries_up_to(last_data: int, slots: int) -> int:
    """Number of entries if the last byte that is not zero lies in the last one."""
    return (last_data - INDEX_HEADER - SLOT_BYTES * slots) // ENTRY_BYTES


def _length_agrees(size: int, slots: int, entries: int) -> bool:
    room = size - INDEX_HEADER - SLOT_BYTES * slots
    return room % ENTRY_BYTES == 0 and room // ENTRY_BYTES > entries
