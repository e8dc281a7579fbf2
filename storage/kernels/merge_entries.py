"""Index entries on their way into a compacted index: checked and dealt out by where their records lie, then merged.

``deal_entries`` is the first half: entries of one index file, a stretch at a time, go into the cells of the log that
their offsets lie in. The second half goes over the records of a cell in the order of the log, through a window on the
segment, and tells which of them are there, when they were stored, and what of them is to be left out.
"""

import numpy as np
from numba import njit

from storage.kernels.lookup import ENTRY_BYTES, SLOT_BYTES
from storage.kernels.memory import equal_bytes, load_i32, load_i64
from storage.kernels.record import (
    MAGIC,
    MAGIC_V1,
    MAGIC_V2,
    MINIMUM_SIZE,
    PHYSICAL_OFFSET,
    TOTAL_SIZE,
    check_shape,
    store_timestamp,
    topic_length,
    topic_position,
)
from storage.kernels.scan import emit_keys, tag_entry_hash

BELOW = 0
BEYOND = 1
NOWHERE = 2
ELSEWHERE = 3
"""Counts of entries below the log, behind its end, in none of its segments; behind these, of each cell."""

KEEP = 0
NO_RECORD = 1
LEFT_OUT = 2
"""What becomes of the entries of a record."""


@njit("int64(int64, int64, int64, int64, int32[::1])", cache=True, nogil=True)
def check_entries(address: int, number: int, count: int, slots: int, heads: np.ndarray) -> int:
    """0 if each of ``count`` entries, the first being ``number``, points at the one its slot held, else its number.

    ``heads`` are the newest entries of the slots so far, all 0 before entry 1.
    """
    for i in range(count):
        entry = address + ENTRY_BYTES * i
        key_hash = load_i32(entry)
        if key_hash < 0 or load_i32(entry + 16) != heads[key_hash % slots]:
            return number + i
        heads[key_hash % slots] = number + i
    return 0


@njit("int64(int64, int64, int32[::1], int64)", cache=True, nogil=True)
def check_slots(address: int, slots: int, heads: np.ndarray, newest: int) -> int:
    """−1 if the slots at an address hold ``heads``, else the number of the first that does not.

    With ``newest`` ≥ 0 a slot may hold a higher number than that: the file is being written to.
    """
    for slot in range(slots):
        held = load_i32(address + SLOT_BYTES * slot)
        if held != heads[slot] and (newest < 0 or held <= newest):
            return slot
    return -1


@njit(cache=True, nogil=True)
def find_cell(physical_offset: int, starts: np.ndarray, ends: np.ndarray) -> int:
    """Where an entry belongs: BELOW, BEYOND, NOWHERE, or ELSEWHERE plus the number of its cell."""
    if physical_offset < starts[0]:
        return BELOW
    if physical_offset >= ends[-1]:
        return BEYOND
    low, high = 0, len(starts)
    while high - low > 1:
        middle = (low + high) >> 1
        if starts[middle] <= physical_offset:
            low = middle
        else:
            high = middle
    return ELSEWHERE + low if physical_offset < ends[low] else NOWHERE


@njit(
    "void(int64, int64, int64[::1], int64[::1], int32[::1], int64[::1], int32[::1], uint32[::1])",
    cache=True,
    nogil=True,
)
def deal_entries(
    address: int,
    count: int,
    starts: np.ndarray,
    ends: np.ndarray,
    places: np.ndarray,
    counts: np.ndarray,
    hashes: np.ndarray,
    positions: np.ndarray,
) -> None:
    """Group ``count`` entries by the cells [starts, ends) of the log, in their order within each.

    ``places`` is scratch of ``count``; ``counts`` has ELSEWHERE more than there are cells. ``hashes`` and
    ``positions``, counted from the start of the cell, get the entries cell by cell; those of no cell are only counted.
    """
    counts[:] = 0
    place = ELSEWHERE
    for i in range(count):
        physical_offset = load_i64(address + ENTRY_BYTES * i + 4)
        cell = place - ELSEWHERE
        if cell < 0 or physical_offset < starts[cell] or physical_offset >= ends[cell]:
            place = find_cell(physical_offset, starts, ends)
        places[i] = place
        counts[place] += 1
    free = np.zeros(len(starts), dtype=np.int64)
    for cell in range(1, len(starts)):
        free[cell] = free[cell - 1] + counts[ELSEWHERE + cell - 1]
    for i in range(count):
        cell = places[i] - ELSEWHERE
        if cell >= 0:
            entry = address + ENTRY_BYTES * i
            hashes[free[cell]] = load_i32(entry)
            positions[free[cell]] = load_i64(entry + 4) - starts[cell]
            free[cell] += 1


@njit(cache=True, nogil=True)
def announced_size(record: int, physical_offset: int, room: int) -> int:
    """Size of the record that the first bytes at an address announce, 0 where they are none's of that offset."""
    magic, size = load_i32(record + MAGIC), load_i32(record + TOTAL_SIZE)
    is_record = magic in (MAGIC_V1, MAGIC_V2) and load_i64(record + PHYSICAL_OFFSET) == physical_offset
    return size if is_record and MINIMUM_SIZE <= size <= room else 0


@njit(
    "int64(int64, int64, int64, int64, int64, int64[::1], int64, uint8[::1], int64[::1])",
    cache=True,
    nogil=True,
)
def read_heads(
    address: int,
    start: int,
    filled: int,
    limit: int,
    base: int,
    positions: np.ndarray,
    number: int,
    fates: np.ndarray,
    timestamps: np.ndarray,
) -> int:
    """Store times of the records at ``positions``, from ``number`` on, as far as the window shows their heads.

    The window holds bytes [start, start + filled) of a segment that starts at ``base`` and whose records end at
    ``limit``. What is no record has the fate NO_RECORD. Returns the number of the first position not looked at.
    """
    while number < len(positions):
        position = positions[number]
        fates[number] = NO_RECORD
        if position + MINIMUM_SIZE <= limit:
            if position < start or position + MINIMUM_SIZE > start + filled:
                return number
            record = address + position - start
            if announced_size(record, base + position, limit - position) > 0:
                fates[number] = KEEP
                timestamps[number] = store_timestamp(record)
        number += 1
    return number


@njit(cache=True, nogil=True)
def has_topic(record: int, topics: int, ends: np.ndarray) -> bool:
    """Whether a record's topic is one of those that lie one behind the other at ``topics``, up to ``ends``."""
    at, length = topic_position(record), topic_length(record)
    first = 0
    for end in ends:
        if end - first == length and equal_bytes(record + at, topics + first, length):
            return True
        first = end
    return False


@njit(cache=True, nogil=True)
def separate_tag(record: int, hashes: np.ndarray, offsets: np.ndarray) -> int:
    """Hash of a record's tag entry, or −1 where it has none or a key of the record has the same hash."""
    tag = tag_entry_hash(record)
    if tag < 0:
        return -1
    for i in range(emit_keys(record, 0, 0, hashes, offsets)):
        if hashes[i] == tag:
            return -1
    return tag


@njit(
    "int64(int64, int64, int64, int64, int64, int64[::1], int64, int64, int64[::1], boolean, uint8[::1], int64[::1],"
    " int64[::1], int32[::1], int64[::1])",
    cache=True,
    nogil=True,
)
def read_records(
    address: int,
    start: int,
    filled: int,
    limit: int,
    base: int,
    positions: np.ndarray,
    number: int,
    topics: int,
    topic_ends: np.ndarray,
    wants_tags: bool,
    fates: np.ndarray,
    timestamps: np.ndarray,
    tags: np.ndarray,
    hashes: np.ndarray,
    offsets: np.ndarray,
) -> int:
    """As :func:`read_heads`, with whole records in the window: those of a topic at ``topics`` are LEFT_OUT.

    With ``wants_tags`` the hash of each one's tag entry goes to ``tags``, −1 for none. ``hashes`` and ``offsets`` are
    scratch of MAXIMUM_PIECES.
    """
    while number < len(positions):
        position = positions[number]
        fates[number] = NO_RECORD
        if position + MINIMUM_SIZE <= limit:
            shown = start + filled - position
            if position < start or shown < MINIMUM_SIZE:
                return number
            record = address + position - start
            size = announced_size(record, base + position, limit - position)
            if size > shown:
                return number
            if size > 0 and check_shape(record, size, base + position) == size:
                fates[number] = LEFT_OUT if has_topic(record, topics, topic_ends) else KEEP
                timestamps[number] = store_timestamp(record)
                tags[number] = separate_tag(record, hashes, offsets) if wants_tags else -1
        number += 1
    return number
