"""What a compacted index file says of itself, in the one place that no broker reads or writes: entry 0.

Entries are numbered from 1, and a pointer to entry 0 means that there is none, so its twenty bytes are zeros in every
file of a broker (store-format §3.4). In a compacted file they hold what cannot be seen from the entries: that the first
of them lie slot by slot rather than in the order of the log, and whether any were left out. They stay when a broker
goes on filling the file, and when it is copied, packed or renamed. Big-endian:

MARK
offset  size  type  field     meaning
0       4     i32   magic     MAGIC; negative, so it is no entry's hash
4       4     i32   entries   entries 1 to this one lie slot by slot; what a broker put later, behind them
8       4     i32   flags     see below
12      4     i32   reserved  0
16      4     u32   checksum  CRC-32 of the sixteen bytes before, then of these entries

Without COMPLETE nobody may take a key that is not in the file for one that is not in the log.
"""

import mmap
from dataclasses import dataclass
from struct import Struct
from typing import Final

from protocol.checksum import crc32
from storage.files.mapped_file import MappedFile
from storage.kernels.indexes import ENTRY_BYTES, INDEX_HEADER, SLOT_BYTES

MARK = Struct(">iiiiI")
MAGIC: Final = int.from_bytes(b"\xd2LC1", "big", signed=True)
CHECKED: Final = 16
"""Bytes of the mark in front of its checksum."""

COMPLETE: Final = 1
"""Flag: the file has every key of the records between its lowest and its highest one, but for those of tags."""
TAGS: Final = 2
"""Flag: that includes an entry for each record's tag."""


@dataclass(frozen=True, slots=True)
class IndexMark:
    """The mark of a file; its fields are in the table above."""

    entries: int
    is_complete: bool
    has_tags: bool


def read_mark(view: memoryview, slots: int) -> IndexMark | None:
    """The mark of a file of so many slots, of which all is given, unchecked; None where there is none."""
    position = INDEX_HEADER + SLOT_BYTES * slots
    return _mark(view[position : position + MARK.size], len(view) - position)


def mark_of(file: MappedFile, slots: int) -> IndexMark | None:
    """As :func:`read_mark`, of a mapped file."""
    position = INDEX_HEADER + SLOT_BYTES * slots
    return _mark(file.slice(position, position + MARK.size), file.size - position)


def _mark(mark: memoryview, left: int) -> IndexMark | None:
    """The mark in some bytes; `left` are there from its begin to the file's end."""
    if len(mark) < MARK.size:
        return None
    magic, entries, flags, reserved, _ = MARK.unpack(mark)
    if magic != MAGIC or reserved or not 0 < entries <= left // ENTRY_BYTES - 1:
        return None
    return IndexMark(entries, bool(flags & COMPLETE), bool(flags & TAGS))


def is_true(view: memoryview, slots: int) -> bool:
    """Whether the entries are those that the file's mark, which must be there, was made for. Reads all of them."""
    position = INDEX_HEADER + SLOT_BYTES * slots
    _, entries, _, _, checksum = MARK.unpack_from(view, position)
    return _checksum(view, position, entries) == int(checksum)


def write_mark(memory: mmap.mmap | bytearray, slots: int, entries: int, *, complete: bool, tags: bool) -> None:
    """Mark a file whose entries, one at least, are all in place."""
    position = INDEX_HEADER + SLOT_BYTES * slots
    flags = (COMPLETE if complete else 0) | (TAGS if tags else 0)
    MARK.pack_into(memory, position, MAGIC, entries, flags, 0, 0)
    checksum = _checksum(memoryview(memory), position, entries)
    MARK.pack_into(memory, position, MAGIC, entries, flags, 0, checksum)


def _checksum(view: memoryview, position: int, entries: int) -> int:
    first = position + ENTRY_BYTES
    return crc32(view[first : first + ENTRY_BYTES * entries], crc32(view[position : position + CHECKED]))
