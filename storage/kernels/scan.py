"""What a record is found under, for the kernels of numba: :mod:`storage.kernels.records` has all else of it."""

import numpy as np
from numba import njit

from storage.kernels.java_string import fold_hash, hash_utf8
from storage.kernels.memory import load_i8, load_i16
from storage.kernels.record import (
    KEYS_NAME,
    MAGIC_V1,
    SPACE,
    TAGS_NAME,
    UNIQUE_KEY_NAME,
    find_property,
    topic_length,
    topic_position,
)

AT_LIMIT = 0
AT_BLANK = 1
AT_DAMAGE = 2
OUTPUT_FULL = 3

MAGIC_FIRST_BYTE = MAGIC_V1 >> 24
HASH = ord("#")
TAG_INFIX = ord("T")
RECENT_PIECES = 64
"""How far back a repeated key of one record is looked for: a double costs bytes, a full search a square."""

MAXIMUM_PIECES = 32768
"""More keys than one property block of 32,767 bytes can hold."""


@njit(cache=True, nogil=True)
def emit(hash_: int, physical_offset: int, first: int, count: int, hashes: np.ndarray, offsets: np.ndarray) -> int:
    """Append one (hash, physical offset) unless the record has it already among its last few; the new count."""
    for i in range(max(first, count - RECENT_PIECES), count):
        if hashes[i] == hash_:
            return count
    hashes[count] = hash_
    offsets[count] = physical_offset
    return count + 1


@njit("int64(int64)", cache=True, nogil=True)
def tag_entry_hash(record: int) -> int:
    """Hash of ``topic#T#tag``, under which the tag of a record is indexed since 5.4, or −1 for a record without tag."""
    at = topic_position(record)
    length = topic_length(record)
    properties = record + at + length + 2
    found = find_property(properties, load_i16(record + at + length), 4, TAGS_NAME)
    if found < 0:
        return -1
    prefix = hash_utf8(0, record + at, length)
    for unit in (HASH, TAG_INFIX, HASH):
        prefix = (prefix * 31 + unit) & 0xFFFFFFFF
    return fold_hash(hash_utf8(prefix, properties + (found >> 16), found & 0xFFFF))


@njit(cache=True, nogil=True)
def emit_keys(record: int, physical_offset: int, count: int, hashes: np.ndarray, offsets: np.ndarray) -> int:
    """Append the unique key of a record and each piece of its KEYS; the new count."""
    at = topic_position(record)
    length = topic_length(record)
    prefix = (hash_utf8(0, record + at, length) * 31 + HASH) & 0xFFFFFFFF
    properties = record + at + length + 2
    length = load_i16(record + at + length)
    first = count
    found = find_property(properties, length, 8, UNIQUE_KEY_NAME)
    if found >= 0:
        key_hash = fold_hash(hash_utf8(prefix, properties + (found >> 16), found & 0xFFFF))
        count = emit(key_hash, physical_offset, first, count, hashes, offsets)
    found = find_property(properties, length, 4, KEYS_NAME)
    if found >= 0:
        start, left = properties + (found >> 16), found & 0xFFFF
        piece = 0
        for position in range(left + 1):
            if position == left or load_i8(start + position) == SPACE:
                if position > piece:
                    key_hash = fold_hash(hash_utf8(prefix, start + piece, position - piece))
                    count = emit(key_hash, physical_offset, first, count, hashes, offsets)
                piece = position + 1
    return count
