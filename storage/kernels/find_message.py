"""Find messages of queues in the log, where the queues' own units do not lead to them.

``wanted`` has a row of int64 for each run of queue offsets that is looked for:

| index | field | meaning |
|---|---|---|
| 0 | topic | address of the topic's bytes |
| 1 | topic_bytes | how many there are |
| 2 | queue_id | |
| 3 | first | the first queue offset, or ANY_OFFSET for whatever comes first of the queue |
| 4 | count | how many queue offsets |
| 5 | places | address of a native i64 for each: NOT_FOUND, or the physical offset of its message |
| 6 | left | how many of them are still to be found, 0 when nothing more is looked for |
| 7 | beyond | how many messages of the queue with later offsets may still come before nothing more is looked for |

A light queue (``%LMQ%``) is searched by what its messages say of it in their properties (store-format §2.10).
"""

import numpy as np
from numba import njit

from storage.kernels.light_queues import LIGHT_PREFIX, PERCENT, PREFIX_BYTES, count_items, item_end, trim_list
from storage.kernels.memory import equal_bytes, load_i8, load_i16, load_i32, load_i64, load_native_i64, store_native_i64
from storage.kernels.properties import (
    LONG,
    MULTI_DISPATCH,
    MULTI_QUEUE_OFFSET,
    PROPERTIES,
    find_properties,
    get,
    parse_integer,
)
from storage.kernels.record import (
    PHYSICAL_OFFSET,
    SYS_FLAG,
    TRANSACTION_MASK,
    check_blank,
    check_checksums,
    check_shape,
    topic_length,
    topic_position,
)
from storage.kernels.resync import find_candidate

QUEUE_ID_AT = 12
QUEUE_OFFSET = 20
COMMIT = 0x8
ANY_OFFSET = -1
NOT_FOUND = -1

HEAD_BYTES = 8
"""Bytes that are read before anything is known of a record."""

TOPIC = 0
TOPIC_BYTES = 1
QUEUE_ID = 2
FIRST = 3
COUNT = 4
PLACES = 5
LEFT = 6
BEYOND = 7
WANTED_ROW = 8

SCRATCH = PROPERTIES + 1
"""Numbers of memory that a search needs to read properties."""


@njit(cache=True, nogil=True)
def is_of_queue(record: int, queue_id: int, topic: int, length: int) -> bool:
    """Whether an intact record says this queue id and topic."""
    if load_i32(record + QUEUE_ID_AT) != queue_id or topic_length(record) != length:
        return False
    return equal_bytes(record + topic_position(record), topic, length)


@njit(cache=True, nogil=True)
def light_offset(record: int, name: int, length: int, scratch: int) -> int:
    """The offset that a record says it has in a light queue, or NOT_FOUND for a record that is not dispatched to it."""
    at = topic_position(record) + topic_length(record)
    properties = record + at + 2
    find_properties(properties, max(load_i16(record + at), 0), scratch)
    names_at, offsets_at = get(scratch, MULTI_DISPATCH), get(scratch, MULTI_QUEUE_OFFSET)
    if names_at < 0 or offsets_at < 0:
        return NOT_FOUND
    names, offsets = properties + (names_at >> 16), properties + (offsets_at >> 16)
    names_length, offsets_length = trim_list(names, names_at & 0xFFFF), trim_list(offsets, offsets_at & 0xFFFF)
    if names_length == 0 or offsets_length == 0:
        return NOT_FOUND
    if count_items(names, names_length) != count_items(offsets, offsets_length):
        return NOT_FOUND
    position, offset = 0, 0
    while position <= names_length:
        end, offset_end = item_end(names, position, names_length), item_end(offsets, offset, offsets_length)
        if end - position == length and equal_bytes(names + position, name, length):
            parsed = scratch + 8 * PROPERTIES
            if parse_integer(offsets + offset, offset_end - offset, LONG, parsed):
                return max(load_native_i64(parsed), NOT_FOUND)
            return NOT_FOUND
        position, offset = end + 1, offset_end + 1
    return NOT_FOUND


@njit(cache=True, nogil=True)
def offset_in_queue(record: int, row: np.ndarray, scratch: int) -> int:
    """The queue offset of a record of sound shape in the queue of a row, or NOT_FOUND for no message of the queue."""
    topic, length = row[TOPIC], row[TOPIC_BYTES]
    if length > PREFIX_BYTES and load_i32(topic) == LIGHT_PREFIX and load_i8(topic + 4) == PERCENT:
        return light_offset(record, topic, length, scratch)
    return load_i64(record + QUEUE_OFFSET) if is_of_queue(record, row[QUEUE_ID], topic, length) else NOT_FOUND


@njit(cache=True, nogil=True)
def note_message(record: int, size: int, row: np.ndarray, scratch: int) -> None:
    """Note where a record of sound shape lies if it is intact and looked for; the first one of an offset counts."""
    offset = offset_in_queue(record, row, scratch)
    if offset < 0:
        return
    number = 0 if row[FIRST] == ANY_OFFSET else offset - row[FIRST]
    if number < 0 or (number < row[COUNT] and load_native_i64(row[PLACES] + 8 * number) != NOT_FOUND):
        return
    if check_checksums(record, size) < 0:
        return
    if number >= row[COUNT]:
        row[BEYOND] -= 1
        if row[BEYOND] <= 0:
            row[LEFT] = 0
        return
    store_native_i64(row[PLACES] + 8 * number, load_i64(record + PHYSICAL_OFFSET))
    row[LEFT] -= 1


@njit(cache=True, nogil=True)
def next_intact(address: int, position: int, stop: int, readable: int, base: int) -> int:
    """Position in [position, stop) of the first intact record behind damage, or ``stop``."""
    while position < stop:
        position = find_candidate(address, position, min(stop + PHYSICAL_OFFSET + 7, readable), base)
        if position < 0:
            return stop
        size = check_shape(address + position, readable - position, base + position)
        if size > 0 and check_checksums(address + position, size) > 0:
            return position
        position += 1
    return stop


@njit("int64(int64, int64, int64, int64, int64, int64, int64[:, ::1], int64[::1])", cache=True, nogil=True)
def find_messages(
    address: int,
    position: int,
    stop: int,
    readable: int,
    base: int,
    boundary: int,
    wanted: np.ndarray,
    scratch: np.ndarray,
) -> int:
    """Note where the wanted messages of the records that start in [position, stop) lie; where the search goes on.

    ``address`` maps the segment's first byte, ``readable`` bounds reading, ``base`` is its physical offset,
    ``boundary`` that at which the next segment starts. The search ends at ``stop``, behind it with the record that
    starts before it, at the BLANK that closes the segment, which is answered by ``readable``, or before where nothing
    more is looked for.
    """
    memory = scratch.ctypes.data
    left = 0
    for row in range(wanted.shape[0]):
        left += wanted[row, LEFT] > 0
    while left > 0 and position < stop and position + HEAD_BYTES <= readable:
        record = address + position
        size = check_shape(record, readable - position, base + position)
        if size < 0:
            if check_blank(record, size, boundary - base - position) == 0:
                return readable
            position = next_intact(address, position + 1, stop, readable, base)
            continue
        if load_i32(record + SYS_FLAG) & TRANSACTION_MASK in (0, COMMIT):
            for row in range(wanted.shape[0]):
                if wanted[row, LEFT] > 0:
                    note_message(record, size, wanted[row], memory)
                    left -= wanted[row, LEFT] <= 0
        position += size
    return position
