"""Choose records of a stretch of the log, and note where their parts lie: the rows that columns are gathered from.

A choice is made by what can be told from a record where it lies: topic, queue, queue offset, store time, tag. Bodies
are read only to hold those of the chosen records against their checksums.
"""

import numpy as np
from numba import njit

from storage.kernels.expression import decide
from storage.kernels.memory import equal_bytes, load_i16, load_i32, load_i64, load_native_i64
from storage.kernels.properties import KEYS, PROPERTIES, TAGS, UNIQUE_KEY, find_properties
from storage.kernels.record import (
    BAD_BLANK,
    BAD_MAGIC,
    BAD_SIZE,
    BORN_HOST,
    BORN_HOST_V6,
    IPV4_HOST,
    IPV6_EXTRA,
    MAGIC,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MINIMUM_SIZE,
    SYS_FLAG,
    body_length_position,
    check_checksums,
    check_shape,
    closes_segment,
    store_timestamp,
    topic_length,
    topic_position,
)

NEED_MORE = 0
LIMIT = 1
BLANK = 2
ZERO = 3
DAMAGE = 4
FULL = 5
"""Why a run ended."""

ENDED = -100
"""A result of :func:`next_record` at or below this says why the run ends; one above it is a size or a `BAD_` code."""

QUEUE_ID_POSITION = 12
QUEUE_OFFSET_POSITION = 20

POSITION = 0
SIZE = 1
BODY = 2
BODY_LENGTH = 3
TOPIC = 4
TOPIC_LENGTH = 5
BLOCK = 6
BLOCK_LENGTH = 7
KEYS_PLACE = 8
TAGS_PLACE = 9
UNIQUE_KEY_PLACE = 10
BORN = 11
STORE = 12
FIELDS = 13
"""Rows of the table, of which each record has a column. Positions count from the start of the buffer; BLOCK is that of
the properties; a place is a position in the block times 65536 plus a length, −1 for none; BORN and STORE are where the
hosts lie."""

TIME_FROM = 0
TIME_TO = 1
OFFSET_FROM = 2
OFFSET_TO = 3
WANTS_PLACES = 4
WANTS_CHECKSUMS = 5
ANY_TOPIC = 6
ANY_QUEUE = 7
ANY_TAG = 8
WANTED = 9
"""Numbers of a choice: store times and queue offsets [from, to], both ends included, then flags."""

REASON = 0
COUNT = 1
CODE = 2
SEEN = 3
LAST = 4
RESULT = 5


@njit(cache=True, nogil=True)
def next_record(record: int, left: int, physical_offset: int, boundary: int, checksums: bool) -> int:
    """Size of the record at an address of which ``left`` bytes are there, a ``BAD_`` code, or why the run ends.

    ``boundary`` is the physical offset at which the next segment starts, or will start.
    """
    if left < 8:
        return ENDED - NEED_MORE
    magic = load_i32(record + MAGIC)
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        if magic == MAGIC_BLANK:
            return ENDED - BLANK if closes_segment(record, boundary - physical_offset) else BAD_BLANK
        return ENDED - ZERO if load_native_i64(record) == 0 else BAD_MAGIC
    size = load_i32(record)
    if size < MINIMUM_SIZE:
        return BAD_SIZE
    if size > left:
        return ENDED - NEED_MORE
    size = check_shape(record, left, physical_offset)
    return check_checksums(record, size) if checksums and size > 0 else size


@njit(cache=True, nogil=True)
def is_one_of(texts: np.ndarray, text: int, length: int) -> bool:
    """Whether some bytes are one of several texts, which are given as address and length."""
    for place in range(0, texts.shape[0], 2):
        if texts[place + 1] == length and equal_bytes(texts[place], text, length):
            return True
    return False


@njit(cache=True, nogil=True)
def is_number_of(numbers: np.ndarray, number: int) -> bool:
    """Whether a number is one of several."""
    for other in numbers:  # noqa: SIM110 — compiled: a generator would not be
        if other == number:
            return True
    return False


@njit(cache=True, nogil=True)
def is_in_range(record: int, wanted: np.ndarray, queues: np.ndarray) -> bool:
    """Whether a record's store time, queue and queue offset are wanted."""
    stored = store_timestamp(record)
    if stored < wanted[TIME_FROM] or stored > wanted[TIME_TO]:
        return False
    queue_offset = load_i64(record + QUEUE_OFFSET_POSITION)
    if queue_offset < wanted[OFFSET_FROM] or queue_offset > wanted[OFFSET_TO]:
        return False
    return wanted[ANY_QUEUE] != 0 or is_number_of(queues, load_i32(record + QUEUE_ID_POSITION))


@njit(cache=True, nogil=True)
def note_parts(record: int, start: int, number: int, table: np.ndarray) -> None:
    """Fill a record's column, but for the places in its properties; ``start`` is its position."""
    body = body_length_position(record)
    topic = topic_position(record)
    length = topic_length(record)
    flags = load_i32(record + SYS_FLAG)
    table[POSITION, number] = start
    table[BODY, number] = start + body + 4
    table[BODY_LENGTH, number] = max(load_i32(record + body), 0)
    table[TOPIC, number] = start + topic
    table[TOPIC_LENGTH, number] = length
    table[BLOCK, number] = start + topic + length + 2
    table[BLOCK_LENGTH, number] = max(load_i16(record + topic + length), 0)
    table[BORN, number] = start + BORN_HOST
    after_born = BORN_HOST + IPV4_HOST + (IPV6_EXTRA if flags & BORN_HOST_V6 else 0)
    table[STORE, number] = start + after_born + 8


@njit(cache=True, nogil=True)
def note_places(record: int, number: int, table: np.ndarray, found: np.ndarray) -> None:
    """Note where keys, tag and unique key lie."""
    block = record - table[POSITION, number] + table[BLOCK, number]
    find_properties(block, table[BLOCK_LENGTH, number], found.ctypes.data)
    table[KEYS_PLACE, number] = found[KEYS]
    table[TAGS_PLACE, number] = found[TAGS]
    table[UNIQUE_KEY_PLACE, number] = found[UNIQUE_KEY]


@njit(cache=True, nogil=True)
def has_tag(record: int, number: int, table: np.ndarray, tags: np.ndarray) -> bool:
    """Whether the tag of a record whose column is filled is one of several."""
    place = table[TAGS_PLACE, number]
    if place < 0:
        return False
    block = record - table[POSITION, number] + table[BLOCK, number]
    return is_one_of(tags, block + (place >> 16), place & 0xFFFF)


@njit(cache=True, nogil=True)
def is_chosen(
    record: int,
    start: int,
    number: int,
    wanted: np.ndarray,
    topics: np.ndarray,
    queues: np.ndarray,
    tags: np.ndarray,
    table: np.ndarray,
    found: np.ndarray,
) -> bool:
    """Whether a record of sound shape is wanted; its column is filled then."""
    if not is_in_range(record, wanted, queues):
        return False
    if wanted[ANY_TOPIC] == 0 and not is_one_of(topics, record + topic_position(record), topic_length(record)):
        return False
    note_parts(record, start, number, table)
    if wanted[WANTS_PLACES] != 0 or wanted[ANY_TAG] == 0:
        note_places(record, number, table, found)
    return wanted[ANY_TAG] != 0 or has_tag(record, number, table, tags)


@njit(
    "int64(int64, int64, int64, int64, int64, int64, int64[::1], int64[::1], int64[::1], int64[::1], "
    "int64[:, ::1], int64[::1])",
    cache=True,
    nogil=True,
)
def choose_records(
    address: int,
    position: int,
    available: int,
    base: int,
    boundary: int,
    limit: int,
    wanted: np.ndarray,
    topics: np.ndarray,
    queues: np.ndarray,
    tags: np.ndarray,
    table: np.ndarray,
    result: np.ndarray,
) -> int:
    """Fill ``table`` with the wanted ones of the records that start in [position, limit); where that ended.

    The byte at ``address`` has the physical offset ``base``; ``available`` bytes are there; the next segment starts
    at ``boundary``. ``result`` gets why it ended, how many records are in the table, the ``BAD_`` code of damage, how
    many records were passed, and the position of the last of these (−1 without one).
    """
    found = np.empty(PROPERTIES, np.int64)
    count, seen, reason, code, last = 0, 0, LIMIT, 0, -1
    while position < limit:
        if count == table.shape[1]:
            reason = FULL
            break
        record = address + position
        size = next_record(record, available - position, base + position, boundary, False)
        if size > 0 and is_chosen(record, position, count, wanted, topics, queues, tags, table, found):
            if wanted[WANTS_CHECKSUMS] != 0:
                size = check_checksums(record, size)
            table[SIZE, count] = size
            count += 1 if size > 0 else 0
        if size <= ENDED:
            reason = ENDED - size
            break
        if size < 0:
            reason, code = DAMAGE, size
            break
        seen += 1
        last = position
        position += size
    result[REASON], result[COUNT], result[CODE], result[SEEN], result[LAST] = reason, count, code, seen, last
    return position


@njit("void(int64, int64[::1], int64, int64, int64[::1])", cache=True, nogil=True)
def load_numbers(address: int, positions: np.ndarray, field: int, bits: int, numbers: np.ndarray) -> None:
    """Load one number of 32 or 64 bits that stands ``field`` bytes behind each of some positions of a buffer."""
    for row in range(positions.shape[0]):
        at = address + positions[row] + field
        numbers[row] = load_i32(at) if bits == 32 else load_i64(at)


@njit("void(int64, int64[::1], int64[::1], int64[::1], int64[::1])", cache=True, nogil=True)
def decide_records(
    choice: int, blocks: np.ndarray, lengths: np.ndarray, values: np.ndarray, outcomes: np.ndarray
) -> None:
    """The outcome of an expression for each of some property blocks, as :func:`storage.kernels.expression.decide`."""
    for row in range(blocks.shape[0]):
        outcomes[row] = decide(choice, blocks[row], lengths[row], values)
