"""The queues of a scan by number, their units as they come, and those units sorted by queue (store-format §5.1, §5.8).

Queues are told apart by a topic's bytes, a queue id, and whether a message is in them as in a light queue (§2.10).
``queues`` has a row for each, ``names`` their topics; ``table`` finds their numbers by open addressing: number + 1, or
0 where there is none. ``units`` has a row for each unit, in the order of the log. Rows that are sorted become units
as they stand in a queue's file:

PLAIN  physical offset i64, size i32, tags code i64
BATCH  the same, then store timestamp i64, base offset i64, batch size i16, −1 as i32, 0 as i32
"""

import numpy as np
from numba import njit

from storage.kernels.dispatch_memory import (
    NAME_BYTES,
    NUMBER_BYTES,
    QUEUES,
    UNITS,
    DispatchMemory,
    get,
    increase,
    put,
)
from storage.kernels.memory import (
    copy_bytes,
    equal_bytes,
    load_native_i32,
    load_native_i64,
    store_i16,
    store_i32,
    store_i64,
    store_native_i32,
)

PLAIN = 0
BATCH = 1
LIGHT = 2
"""Kinds of queues; a light one has plain units, which never lead to an extension."""

PLAIN_BYTES = 20
BATCH_BYTES = 46
NOT_COMPACTED = -1
TABLE_BYTES = 4

NAME_HASH = 0
NAME = 1
NAME_LENGTH = 2
QUEUE_ID = 3
KIND = 4
KEY_PREFIX = 5
TRAITS = 6
COUNT = 7
RUNS = 8
LAST = 9
QUEUE_ROW = 10

IS_SCHEDULE = 1
MAY_HAVE_LIGHT = 2
"""Traits of a topic: its tags codes are times; its messages may be in light queues, too."""

UNIT_QUEUE = 0
UNIT_OFFSET = 1
UNIT_SIZE = 2
UNIT_TAGS_CODE = 3
UNIT_QUEUE_OFFSET = 4
UNIT_TIMESTAMP = 5
UNIT_BATCH_SIZE = 6
STARTS_RUN = 7
UNIT_ROW = 8

RUN_QUEUE = 0
RUN_KIND = 1
RUN_FIRST = 2
RUN_UNITS = 3
RUN_POSITION = 4
RUN_ROW = 5

AT_BYTE = 0
AT_UNIT = 1
AT_RUN = 2
SHOWN = 3
CURSOR_ROW = 4
"""Where a queue's next unit goes, and the number under which its runs show it."""

_POSITIVE = 0x7FFFFFFFFFFFFFFF
_MULTIPLIER = 0x1E3779B97F4A7C15


@njit(cache=True, nogil=True, inline="always")
def _mix(mixed: int, word: int) -> int:
    mixed = ((mixed ^ word) * _MULTIPLIER) & _POSITIVE
    return mixed ^ (mixed >> 32)


@njit(cache=True, nogil=True)
def hash_name(name: int, length: int, queue_id: int) -> int:
    """A hash ≥ 0 for the table alone. Eight bytes before the end of the name must be readable."""
    mixed = _mix(length, queue_id)
    position = 0
    while position + 8 <= length:
        mixed = _mix(mixed, load_native_i64(name + position))
        position += 8
    if position < length:
        mixed = _mix(mixed, load_native_i64(name + length - 8) >> ((position + 8 - length) << 3))
    return mixed


@njit(cache=True, nogil=True)
def queue_row(number: int, memory: DispatchMemory) -> int:
    """Address of the row of a queue."""
    return memory.queues + NUMBER_BYTES * QUEUE_ROW * number


@njit(cache=True, nogil=True)
def is_queue(
    row: int, name: int, length: int, queue_id: int, is_light: bool, name_hash: int, memory: DispatchMemory
) -> bool:
    """Whether a row is that of a queue."""
    return (
        get(row, NAME_HASH) == name_hash
        and get(row, QUEUE_ID) == queue_id
        and get(row, NAME_LENGTH) == length
        and (get(row, KIND) == LIGHT) == is_light
        and equal_bytes(memory.names + get(row, NAME), name, length)
    )


@njit(cache=True, nogil=True)
def number_queue(name: int, length: int, queue_id: int, is_light: bool, memory: DispatchMemory) -> int:
    """Number of a queue, which is made known if it is new: then its number is the count of queues before."""
    name_hash = hash_name(name, length, queue_id)
    at = name_hash & memory.table_mask
    number = load_native_i32(memory.table + TABLE_BYTES * at) - 1
    while number >= 0:
        if is_queue(queue_row(number, memory), name, length, queue_id, is_light, name_hash, memory):
            return number
        at = (at + 1) & memory.table_mask
        number = load_native_i32(memory.table + TABLE_BYTES * at) - 1
    number = get(memory.state, QUEUES)
    put(memory.state, QUEUES, number + 1)
    store_native_i32(memory.table + TABLE_BYTES * at, number + 1)
    position = get(memory.state, NAME_BYTES)
    put(memory.state, NAME_BYTES, position + length)
    copy_bytes(memory.names + position, name, length)
    row = queue_row(number, memory)
    for column in range(QUEUE_ROW):
        put(row, column, 0)
    put(row, NAME_HASH, name_hash)
    put(row, NAME, position)
    put(row, NAME_LENGTH, length)
    put(row, QUEUE_ID, queue_id)
    put(row, KIND, LIGHT if is_light else PLAIN)
    return number


@njit(cache=True, nogil=True)
def add_unit(
    queue: int,
    queue_offset: int,
    physical_offset: int,
    size: int,
    tags_code: int,
    timestamp: int,
    batch_size: int,
    memory: DispatchMemory,
) -> None:
    """Note a unit. Where a queue's offsets do not follow each other a run ends, but for batches."""
    row = queue_row(queue, memory)
    starts = 0
    if get(row, COUNT) == 0 or (get(row, KIND) != BATCH and get(row, LAST) + 1 != queue_offset):
        starts = 1
    increase(row, RUNS, starts)
    increase(row, COUNT, 1)
    put(row, LAST, queue_offset)
    unit = memory.units + NUMBER_BYTES * UNIT_ROW * get(memory.state, UNITS)
    increase(memory.state, UNITS, 1)
    put(unit, UNIT_QUEUE, queue)
    put(unit, UNIT_OFFSET, physical_offset)
    put(unit, UNIT_SIZE, size)
    put(unit, UNIT_TAGS_CODE, tags_code)
    put(unit, UNIT_QUEUE_OFFSET, queue_offset)
    put(unit, UNIT_TIMESTAMP, timestamp)
    put(unit, UNIT_BATCH_SIZE, batch_size)
    put(unit, STARTS_RUN, starts)


@njit("int64(int64[:, ::1], int64, int64[:, ::1])", cache=True, nogil=True)
def share_space(queues: np.ndarray, queue_count: int, cursors: np.ndarray) -> int:
    """Set the cursors of the queues, one behind the other; how many have units."""
    byte = unit = run = shown = 0
    for number in range(queue_count):
        cursors[number, AT_BYTE], cursors[number, AT_UNIT] = byte, unit
        cursors[number, AT_RUN], cursors[number, SHOWN] = run - 1, shown
        count = queues[number, COUNT]
        byte += count * (BATCH_BYTES if queues[number, KIND] == BATCH else PLAIN_BYTES)
        unit += count
        run += queues[number, RUNS]
        shown += 1 if count > 0 else 0
    return shown


@njit(cache=True, nogil=True)
def write_unit(target: int, unit: int, kind: int) -> int:
    """Write a unit as it stands in its queue's file; its bytes."""
    store_i64(target, get(unit, UNIT_OFFSET))
    store_i32(target + 8, get(unit, UNIT_SIZE))
    store_i64(target + 12, get(unit, UNIT_TAGS_CODE))
    if kind != BATCH:
        return PLAIN_BYTES
    store_i64(target + 20, get(unit, UNIT_TIMESTAMP))
    store_i64(target + 28, get(unit, UNIT_QUEUE_OFFSET))
    store_i16(target + 36, get(unit, UNIT_BATCH_SIZE))
    store_i32(target + 38, NOT_COMPACTED)
    store_i32(target + 42, 0)
    return BATCH_BYTES


@njit("void(int64, int64, int64, int64, int64, int64, int64)", cache=True, nogil=True)
def sort_units(units: int, unit_count: int, queues: int, cursors: int, runs: int, target: int, timestamps: int) -> None:
    """Write the units queue by queue from the address ``target`` on, and their runs; all the others are tables.

    The cursors are as :func:`share_space` left them. ``timestamps``, if not 0, get the store time of each unit, in the
    order of the units.
    """
    for i in range(unit_count):
        unit = units + NUMBER_BYTES * UNIT_ROW * i
        queue = queues + NUMBER_BYTES * QUEUE_ROW * get(unit, UNIT_QUEUE)
        cursor = cursors + NUMBER_BYTES * CURSOR_ROW * get(unit, UNIT_QUEUE)
        position = get(cursor, AT_BYTE)
        if get(unit, STARTS_RUN):
            increase(cursor, AT_RUN, 1)
        run = runs + NUMBER_BYTES * RUN_ROW * get(cursor, AT_RUN)
        if get(unit, STARTS_RUN):
            put(run, RUN_QUEUE, get(cursor, SHOWN))
            put(run, RUN_KIND, get(queue, KIND))
            put(run, RUN_FIRST, get(unit, UNIT_QUEUE_OFFSET))
            put(run, RUN_UNITS, 0)
            put(run, RUN_POSITION, position)
        increase(run, RUN_UNITS, 1)
        if timestamps:
            put(timestamps, get(cursor, AT_UNIT), get(unit, UNIT_TIMESTAMP))
        increase(cursor, AT_UNIT, 1)
        increase(cursor, AT_BYTE, write_unit(target + position, unit, get(queue, KIND)))
