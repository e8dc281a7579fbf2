"""Records that a running broker appends: which of them are whole, and of which queues they are.

A record is being copied while it is looked at, by plain stores and without a mark that it is done. Appends are
serialised, so whatever has something behind it is whole; of the last one only its bytes tell (store-format §6.7).
"""

import numpy as np
from numba import njit

from storage.kernels.java_string import hash_utf8
from storage.kernels.memory import equal_bytes, load_i8, load_i16, load_i32, load_i64
from storage.kernels.record import (
    MAGIC,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MINIMUM_SIZE,
    check_blank,
    check_checksums,
    check_shape,
    topic_length,
    topic_position,
)

AT_LIMIT = 0
"""Why a walk ended: as many bytes as wanted were walked over, or no more records fit."""
AT_BLANK = 1
"""At the record that closes a segment."""
AT_NOTHING = 2
"""Where nothing was written yet, or nothing but the beginning of the first eight bytes."""
AT_DAMAGE = 3
"""Where the bytes are no intact record (yet)."""
QUEUES_FULL = 4
"""Too many queues for one walk."""

REASON = 0
RECORDS = 1
LAST = 2
CODE = 3
QUEUES = 4
BEFORE_LAST = 5
RESULTS = 6

HEAD = 8
"""Bytes of the size and the magic number, by which everything begins."""
QUEUE_ID = 12
TABLE_SIZE = 4096
MAXIMUM_QUEUES = TABLE_SIZE // 2
SEEN = TABLE_SIZE + MAXIMUM_QUEUES


@njit(cache=True, nogil=True)
def is_same_queue(left: int, right: int) -> bool:
    """Whether two records of sound shape say the same topic and queue id."""
    length = topic_length(left)
    if load_i32(left + QUEUE_ID) != load_i32(right + QUEUE_ID) or topic_length(right) != length:
        return False
    return equal_bytes(left + topic_position(left), right + topic_position(right), length)


@njit(cache=True, nogil=True)
def note_queue(address: int, position: int, seen: np.ndarray, count: int) -> int:
    """Note the queue of the record at a position unless one of it was noted; how many are noted now.

    ``seen`` holds positions + 1 in a hash table, then those that are noted in their order.
    """
    record = address + position
    place = (hash_utf8(load_i32(record + QUEUE_ID) & 0xFFFF, record + topic_position(record), topic_length(record))) % (
        TABLE_SIZE
    )
    while seen[place]:
        if is_same_queue(record, address + seen[place] - 1):
            return count
        place = (place + 1) % TABLE_SIZE
    seen[place] = position + 1
    seen[TABLE_SIZE + count] = position + 1
    return count + 1


@njit(cache=True, nogil=True)
def is_beginning(magic: int, whole: int) -> bool:
    """Whether the first bytes of a magic number are there, one to all four of them, and zeros for the others."""
    for missing in range(4):  # noqa: SIM110 — compiled: a generator would not be
        if magic & 0xFFFFFFFF == whole & (0xFFFFFFFF << 8 * missing) & 0xFFFFFFFF:
            return True
    return False


@njit("boolean(int64, int64, int64)", cache=True, nogil=True)
def is_begun(record: int, available: int, left: int) -> bool:
    """Whether size and magic number at an address are just being written: some of them are there, and zeros behind.

    ``available`` bytes may be read, ``left`` are those up to the next segment. A BLANK is one whose size may be any: it
    becomes right, or something else is written there.
    """
    for position in range(HEAD, min(available, MINIMUM_SIZE)):
        if load_i8(record + position) != 0:
            return False
    size, magic = load_i32(record), load_i32(record + MAGIC)
    if magic == MAGIC_BLANK:
        return True
    if magic == 0 or is_beginning(magic, MAGIC_BLANK):
        return 0 <= size <= left
    return MINIMUM_SIZE <= size <= left and (is_beginning(magic, MAGIC_V1) or is_beginning(magic, MAGIC_V2))


@njit("int64(int64, int64, int64, int64, int64, int64, int64[::1], int64[::1])", cache=True, nogil=True)
def walk_appended(
    address: int, position: int, limit: int, size: int, base: int, boundary: int, seen: np.ndarray, result: np.ndarray
) -> int:
    """Step over the intact records that start between ``position`` and ``limit``; where the walk ended.

    ``address`` maps the segment's ``size`` bytes, ``base`` is its physical offset, ``boundary`` that at
    which the next segment starts, or will start. ``seen``, SEEN zeros, gets the positions + 1 of a record of each queue
    from TABLE_SIZE on. ``result`` gets why the walk ended, how many records it
    stepped over, the positions of the last two (−1 for none), why the one behind them is not intact, and how many
    queues were noted.
    """
    result[REASON], result[RECORDS], result[LAST], result[CODE] = AT_LIMIT, 0, -1, 0
    result[QUEUES], result[BEFORE_LAST] = 0, -1
    while position < limit and position + 8 <= size:
        if load_i64(address + position) == 0:
            result[REASON] = AT_NOTHING
            return position
        record = check_shape(address + position, size - position, base + position)
        if record < 0:
            record = check_blank(address + position, record, boundary - base - position)
            if record == 0:
                result[REASON] = AT_BLANK
                return position
        if result[QUEUES] == MAXIMUM_QUEUES:
            result[REASON] = QUEUES_FULL
            return position
        if record > 0:
            record = check_checksums(address + position, record)
        if record < 0:
            has_begun = is_begun(address + position, size - position, boundary - base - position)
            result[REASON], result[CODE] = AT_NOTHING if has_begun else AT_DAMAGE, record
            return position
        result[QUEUES] = note_queue(address, position, seen, result[QUEUES])
        result[RECORDS] += 1
        result[BEFORE_LAST] = result[LAST]
        result[LAST] = position
        position += record
    return position


@njit("boolean(int64)", cache=True, nogil=True)
def has_sane_texts(record: int) -> bool:
    """Whether topic and properties of a record of sound shape hold no zero byte: no checksum covers them."""
    start = record + topic_position(record)
    length = topic_length(record)
    properties = load_i16(record + topic_position(record) + length)
    for position in range(length + 2 + max(properties, 0)):
        if load_i8(start + position) == 0 and not length <= position < length + 2:
            return False
    return True
