"""Which records of a segment may be what a content search looks for: headers and raw bytes, nothing is decoded.

A record that is passed over cannot match. One that is noted still has to be decoded and checked: its body may be
compressed, or its bytes may stand at a place that does not count.

``query``, native i64:

| index | field | meaning |
|---|---|---|
| 0 | topic | address of its bytes |
| 1 | topic_length | −1 for any topic |
| 2 | begin | store time, ms, inclusive |
| 3 | end | store time, ms, inclusive |
| 4 | minimum | bytes of the body, inclusive |
| 5 | maximum | bytes of the body, inclusive |
| 6 | tag | address of its bytes |
| 7 | tag_length | −1 for any tag |
| 8 | key | address of the bytes of a key, or of its start |
| 9 | key_length | −1 for any key |
| 10 | key_is_start | whether a key that starts so is enough |
| 11 | host_bytes | 4 or 16 for a born host of that many bytes, 0 for any |
| 12 | network_high | first eight bytes of a network, of IPv4 its four in the upper half |
| 13 | network_low | last eight bytes of it |
| 14 | mask_high | which bits of the first eight count |
| 15 | mask_low | which bits of the last eight count |
| 16 | port | of the born host, −1 for any |
| 17 | place | where bytes are looked for: IN_BODY, IN_PROPERTIES, or both; 0: nowhere |
| 18 | choice | address of an expression's choice (:mod:`storage.filter.choice`), 0 for none |
| 19 … | needles | two rows of four, see below |

One of two sequences of bytes must be there, the second of which may be empty. Their rows have where the bytes start in
``needles``, how many they are, and the positions of the two rarest of them.

Bytes are looked for 64 at a time, by two of a needle's bytes that are seldom: that the compiler turns into vector
instructions, and most blocks hold no such pair.
"""

import numpy as np
from numba import njit, types

from storage.kernels.expression import ASK, TRUE, VALUES, decide
from storage.kernels.memory import equal_bytes, load_i8, load_i16, load_i32, load_i64
from storage.kernels.record import (
    BORN_HOST,
    KEYS_NAME,
    SPACE,
    SYS_FLAG,
    TAGS_NAME,
    UNIQUE_KEY_NAME,
    body_length_position,
    check_blank,
    check_shape,
    find_property,
    has_piece,
    store_timestamp,
    topic_length,
    topic_position,
)
from storage.kernels.records import AT_BLANK, AT_DAMAGE, AT_LIMIT, OUTPUT_FULL

TOPIC, TOPIC_LENGTH, BEGIN, END, MINIMUM, MAXIMUM, TAG, TAG_LENGTH, KEY, KEY_LENGTH, KEY_IS_START = range(11)
HOST_BYTES, NETWORK_HIGH, NETWORK_LOW, MASK_HIGH, MASK_LOW, PORT, PLACE, CHOICE, NEEDLES = range(11, 20)
NEEDLE_ROW = 4
START, LENGTH, FIRST, SECOND = range(NEEDLE_ROW)
QUERY_LENGTH = NEEDLES + 2 * NEEDLE_ROW

IN_BODY = 1
IN_PROPERTIES = 2
COMPRESSED = 0x1
BORN_HOST_V6 = 0x10
IS_BATCH = 0xC0
BLOCK = 64

READ_ONLY = types.Array(types.uint8, 1, "C", readonly=True)
_TABLE = types.int64[::1]


@njit(cache=True, nogil=True)
def find_needle(data: np.ndarray, start: int, stop: int, needles: np.ndarray, query: np.ndarray, row: int) -> bool:
    """Whether a needle lies wholly in ``data[start:stop]``; ``row`` is where ``query`` describes it."""
    length, at = query[row + LENGTH], query[row + START]
    first, second = query[row + FIRST], query[row + SECOND]
    one, other = needles[at + first], needles[at + second]
    last = stop - length
    whole = data.shape[0] - BLOCK - length
    position = start
    while position <= last:
        if position <= whole:
            hit = np.uint8(0)
            left, right = np.uint64(position + first), np.uint64(position + second)
            for step in range(np.uint64(BLOCK)):
                hit |= np.uint8((data[left + step] == one) & (data[right + step] == other))
            if hit == 0:
                position += BLOCK
                continue
        end = min(position + BLOCK - 1, last)
        while position <= end:
            if data[position + first] == one and data[position + second] == other:
                matching = 0
                while matching < length and data[position + matching] == needles[at + matching]:
                    matching += 1
                if matching == length:
                    return True
            position += 1
    return False


@njit(cache=True, nogil=True)
def find_either(data: np.ndarray, start: int, stop: int, needles: np.ndarray, query: np.ndarray) -> bool:
    """Whether one of the two needles, or the one there is, lies in ``data[start:stop]``."""
    if find_needle(data, start, stop, needles, query, NEEDLES):
        return True
    other = NEEDLES + NEEDLE_ROW
    return query[other + LENGTH] > 0 and find_needle(data, start, stop, needles, query, other)


@njit(cache=True, nogil=True)
def starts_piece(keys: int, keys_length: int, start: int, length: int) -> bool:
    """Whether one of the space-separated pieces of KEYS begins with some bytes."""
    is_start = True
    for piece in range(keys_length - length + 1):
        if is_start and equal_bytes(keys + piece, start, length):
            return True
        is_start = load_i8(keys + piece) == SPACE
    return False


@njit(cache=True, nogil=True)
def is_from(record: int, flags: int, query: np.ndarray) -> bool:
    """Whether a record's born host lies in the wanted network and has the wanted port."""
    length = 16 if flags & BORN_HOST_V6 else 4
    if query[HOST_BYTES] != length:
        return False
    at = record + BORN_HOST
    if query[PORT] >= 0 and load_i32(at + length) != query[PORT]:
        return False
    high = load_i64(at) if length == 16 else load_i32(at) << 32
    low = load_i64(at + 8) if length == 16 else 0
    unlike = (high ^ query[NETWORK_HIGH]) & query[MASK_HIGH] | (low ^ query[NETWORK_LOW]) & query[MASK_LOW]
    return bool(unlike == 0)


@njit(cache=True, nogil=True)
def has_properties(block: int, length: int, query: np.ndarray, values: np.ndarray) -> bool:
    """Whether a property block may have the wanted tag and key, and fulfil the expression."""
    if query[TAG_LENGTH] >= 0:
        found = find_property(block, length, 4, TAGS_NAME)
        if found < 0 or found & 0xFFFF != query[TAG_LENGTH]:
            return False
        if not equal_bytes(block + (found >> 16), query[TAG], query[TAG_LENGTH]):
            return False
    if query[KEY_LENGTH] >= 0 and not has_key(block, length, query):
        return False
    if query[CHOICE] == 0:
        return True
    outcome = decide(query[CHOICE], block, length, values)
    return bool(outcome in (TRUE, ASK))


@njit(cache=True, nogil=True)
def has_key(block: int, length: int, query: np.ndarray) -> bool:
    """Whether one of the business keys, or the unique key, is the wanted one, or starts like it."""
    found = find_property(block, length, 8, UNIQUE_KEY_NAME)
    if found >= 0:
        size = found & 0xFFFF
        is_long_enough = size >= query[KEY_LENGTH] if query[KEY_IS_START] else size == query[KEY_LENGTH]
        if is_long_enough and equal_bytes(block + (found >> 16), query[KEY], query[KEY_LENGTH]):
            return True
    found = find_property(block, length, 4, KEYS_NAME)
    if found < 0:
        return False
    if query[KEY_IS_START]:
        return starts_piece(block + (found >> 16), found & 0xFFFF, query[KEY], query[KEY_LENGTH])
    return has_piece(block + (found >> 16), found & 0xFFFF, query[KEY], query[KEY_LENGTH])


@njit(cache=True, nogil=True)
def may_match(
    record: int, size: int, data: np.ndarray, position: int, query: np.ndarray, needles: np.ndarray, values: np.ndarray
) -> bool:
    """Whether a record of sound shape may be wanted; ``data[position]`` is its first byte."""
    if not query[BEGIN] <= store_timestamp(record) <= query[END]:
        return False
    topic = topic_position(record)
    length = topic_length(record)
    wanted = query[TOPIC_LENGTH]
    if wanted >= 0 and (length != wanted or not equal_bytes(record + topic, query[TOPIC], length)):
        return False
    flags = load_i32(record + SYS_FLAG)
    if query[HOST_BYTES] and not is_from(record, flags, query):
        return False
    at = body_length_position(record)
    body_bytes = max(load_i32(record + at), 0)
    is_compressed = flags & COMPRESSED != 0 and body_bytes > 0
    is_batch = flags & IS_BATCH == IS_BATCH  # of which each message has properties and a size of its own, in the body
    block = topic + length + 2
    if not is_batch:
        if not is_compressed and not query[MINIMUM] <= body_bytes <= query[MAXIMUM]:
            return False
        if not has_properties(record + block, max(load_i16(record + block - 2), 0), query, values):
            return False
    if query[PLACE] == 0:
        return True
    if query[PLACE] & IN_BODY or is_batch:
        body = position + at + 4
        if is_compressed or find_either(data, body, body + body_bytes, needles, query):
            return True
    return query[PLACE] & IN_PROPERTIES != 0 and find_either(data, position + block, position + size, needles, query)


@njit(
    types.int64(READ_ONLY, types.int64, types.int64, types.int64, types.int64, types.int64, types.int64, _TABLE,
                READ_ONLY, _TABLE, _TABLE),
    cache=True,
    nogil=True,
)  # fmt: skip
def select_records(
    data: np.ndarray,
    address: int,
    position: int,
    stop: int,
    readable: int,
    base: int,
    boundary: int,
    query: np.ndarray,
    needles: np.ndarray,
    found: np.ndarray,
    result: np.ndarray,
) -> int:
    """Note in ``found`` the positions of the records that start in [position, stop) and may be wanted.

    ``data`` is the segment, ``address`` its first byte, ``readable`` bounds reading, ``base`` is its physical offset,
    ``boundary`` that at which the next segment starts. Returns where the walk ended; ``result`` gets the ``AT_`` code,
    how many were noted, how many records were stepped over, and at damage the code of the check.
    """
    result[0], result[1], result[2], result[3] = AT_LIMIT, 0, 0, 0
    values = np.empty(VALUES, np.int64)
    while position < stop and position + 8 <= readable:
        record = address + position
        size = check_shape(record, readable - position, base + position)
        if size < 0:
            size = check_blank(record, size, boundary - base - position)
            result[0], result[3] = AT_BLANK if size == 0 else AT_DAMAGE, size
            return position
        if result[1] == found.shape[0]:
            result[0] = OUTPUT_FULL
            return position
        if may_match(record, size, data, position, query, needles, values):
            found[result[1]] = position
            result[1] += 1
        result[2] += 1
        position += size
    return position
