"""Read a segment from record to record: where its data end, what its records are found under.

These loops read headers, topics and properties, never bodies, so a segment is scanned at memory speed; whoever needs
the body's checksum asks for it record by record.
"""

import numpy as np
from numba import njit

from storage.kernels.java_string import fold_hash, hash_utf8
from storage.kernels.memory import load_i8, load_i16, load_i32, load_i64
from storage.kernels.record import (
    KEYS_NAME,
    MAGIC,
    MAGIC_V1,
    MAGIC_V2,
    MINIMUM_SIZE,
    PHYSICAL_OFFSET,
    ROLLBACK,
    SPACE,
    SYS_FLAG,
    TAGS_NAME,
    TRANSACTION_MASK,
    UNIQUE_KEY_NAME,
    check_blank,
    check_checksums,
    check_shape,
    find_property,
    store_timestamp,
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
ANY_TIME = -(1 << 63)
"""No record was stored before it."""

RECENT_PIECES = 64
"""How far back a repeated key of one record is looked for: a double costs bytes, a full search a square."""

MAXIMUM_PIECES = 32768
"""More keys than one property block of 32,767 bytes can hold."""


@njit("int64(int64, int64, int64, int64, int64, boolean, int64[::1])", cache=True, nogil=True)
def walk_records(
    address: int, position: int, stop: int, base: int, boundary: int, checksums: bool, result: np.ndarray
) -> int:
    """Step over the records of a segment from ``position``; where the walk ended.

    ``address`` maps the segment's first byte, ``stop`` bounds reading, ``base`` is its physical offset, ``boundary``
    that at which the next segment starts. ``result`` gets: why it ended (``AT_`` codes), records stepped over, position
    of the last one (−1 for none), store-independent code of the check.
    """
    result[0], result[1], result[2], result[3] = AT_LIMIT, 0, -1, 0
    while position + 8 <= stop:
        size = check_shape(address + position, stop - position, base + position)
        if size > 0 and checksums:
            size = check_checksums(address + position, size)
        if size < 0:
            size = check_blank(address + position, size, boundary - base - position)
            if size == 0:
                result[0] = AT_BLANK
                return position
            result[0], result[3] = AT_DAMAGE, size
            return position
        result[1] += 1
        result[2] = position
        position += size
    return position


@njit("int64(int64, int64, int64, int64, int64, int64)", cache=True, nogil=True)
def find_recent(address: int, position: int, stop: int, readable: int, base: int, earliest: int) -> int:
    """Position of the first intact record that starts in [position, stop) and was stored at ``earliest`` or later.

    Intact means shape, own offset and checksums; ``earliest`` is in ms, ``readable`` bounds reading. Returns ``stop``
    where there is none. The body of a record that is too old is stepped over, so that no byte is summed up twice.
    """
    while position < stop and position + MINIMUM_SIZE <= readable:
        if load_i8(address + position + MAGIC) == MAGIC_FIRST_BYTE:
            record = address + position
            magic = load_i32(record + MAGIC)
            if magic in (MAGIC_V1, MAGIC_V2) and load_i64(record + PHYSICAL_OFFSET) == base + position:
                size = check_shape(record, readable - position, base + position)
                if size > 0 and check_checksums(record, size) > 0:
                    if store_timestamp(record) >= earliest:
                        return position
                    position += topic_position(record) - 3
        position += 1
    return stop


@njit("int64(int64, int64, int64, int64)", cache=True, nogil=True)
def find_record(address: int, position: int, stop: int, base: int) -> int:
    """Position of the first intact record (shape, own offset, checksums) at or after ``position``, or ``stop``."""
    return find_recent(address, position, stop, stop, base, ANY_TIME)


@njit("int64(int64, int64, int64)", cache=True, nogil=True)
def find_record_backwards(address: int, position: int, base: int) -> int:
    """Position of the last record of sound shape that starts before ``position``, not below 0; −1 for none.

    ``address + position`` itself is not read beyond the record's own size; the caller bounds how far back to look by
    ``address``.
    """
    at = position - 1
    while at >= 0:
        magic = load_i32(address + at + MAGIC)
        if magic in (MAGIC_V1, MAGIC_V2) and load_i64(address + at + PHYSICAL_OFFSET) == base + at:
            return at
        at -= 1
    return -1


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


@njit("int64(int64, int64, int64, int32[::1], int64[::1])", cache=True, nogil=True)
def emit_record(record: int, physical_offset: int, count: int, hashes: np.ndarray, offsets: np.ndarray) -> int:
    """Append what one record is found under: its unique key, each piece of KEYS, its tag; the new count."""
    first = count
    count = emit_keys(record, physical_offset, count, hashes, offsets)
    key_hash = tag_entry_hash(record)
    return emit(key_hash, physical_offset, first, count, hashes, offsets) if key_hash >= 0 else count


@njit("int64(int64, int64, int64, int64, int64, int64, int32[::1], int64[::1], int64[::1])", cache=True, nogil=True)
def scan_keys(
    address: int,
    position: int,
    stop: int,
    readable: int,
    base: int,
    boundary: int,
    hashes: np.ndarray,
    offsets: np.ndarray,
    result: np.ndarray,
) -> int:
    """Note what the records that start in [position, stop) are found under, until damage or a full output.

    ``readable`` bounds reading, ``boundary`` is where the next segment starts. Returns where the scan ended; ``result``
    gets the ``AT_`` code, entries written and records read. Rolled-back records are in no index.
    """
    result[0], result[1], result[2] = AT_LIMIT, 0, 0
    room = hashes.shape[0] - MAXIMUM_PIECES
    while position < stop and position + 8 <= readable:
        size = check_shape(address + position, readable - position, base + position)
        if size < 0:
            size = check_blank(address + position, size, boundary - base - position)
            if size == 0:
                result[0] = AT_BLANK
                return position
            result[0] = AT_DAMAGE
            return position
        if result[1] > room:
            result[0] = OUTPUT_FULL
            return position
        if load_i32(address + position + SYS_FLAG) & TRANSACTION_MASK != ROLLBACK:
            result[1] = emit_record(address + position, base + position, result[1], hashes, offsets)
        result[2] += 1
        position += size
    return position
