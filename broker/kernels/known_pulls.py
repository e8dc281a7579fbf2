"""Answer a pull that is like one which the ordinary way has answered before: the same but for offsets and opaque.

What the ordinary way found out for such a pull (that the group may read the topic, by which filter it chooses, where
the queue's units lie, what the answer's header says) stands in a row, and holds as long as the snapshot and the groups
do: :class:`broker.known_pulls.KnownPulls` owns all memory and forgets all rows when one of them changes. A row is for
a run of :data:`RUN_UNITS` units at most, so that the rows of one queue are told apart by their hash.

The memory is described by native i64 at one address, the ``OF_`` constants; so is a row, by the ``ROW_`` constants.
"""

import numpy as np
from numba import njit

from broker.kernels import plain_request as p
from storage.kernels.catalog import PROBE, record_address
from storage.kernels.memory import (
    copy_bytes,
    equal_bytes,
    is_hot,
    load_native_i32,
    load_native_i64,
    store_i32,
    store_native_i64,
    store_u8,
)
from storage.kernels.pull import AHEAD_AT, BEHIND_AT, FIRST_PAIR, FOUND_AT, SIZE_MASK, TOTAL_AT, UNIT_BYTES, pull

OF_SLOTS = 0
"""Address of the table: native i32, the number of a row plus 1, or 0; as many as OF_MASK plus 1, a power of two."""
OF_MASK = 1
OF_ROWS = 2
OF_COMMITS = 3
"""Address of the commits that are to be handed on: two native i64 each, the number of a row and an offset."""
OF_COMMIT_COUNT = 4
OF_STEPS = 5
"""What the last pull cost, in steps of a key query."""
OF_LENGTH = 6

RUN_SHIFT = 16
RUN_UNITS = 1 << RUN_SHIFT

ROW_HASH = 0
ROW_CODE = 1
ROW_QUEUE_ID = 2
ROW_MAX_MESSAGES = 3
ROW_MAX_BYTES = 4
ROW_SYS_FLAG = 5
ROW_SUB_VERSION = 6
"""What a request must say to the letter, and then the texts: of each its address and its bytes."""
ROW_TOPIC = 7
ROW_GROUP = 9
ROW_SUBSCRIPTION = 11
ROW_TYPE = 13
ROW_FIRST = 15
ROW_BEHIND = 16
"""Queue offsets, from … to, at which a pull may start."""
ROW_END = 17
"""The queue offset behind the last unit that it may go through: where file or queue end."""
ROW_FILE_FIRST = 18
"""The queue offset of the first unit in the file, and how the file is mapped."""
ROW_ADDRESS = 19
ROW_HEAT = 20
ROW_DESCRIPTOR = 21
ROW_FILE_SIZE = 22
ROW_SCAN = 23
"""Units that one pull looks through, then the limits on what it returns."""
ROW_MESSAGES = 24
ROW_BYTES = 25
ROW_CHOICE = 26
ROW_MINIMUM = 27
ROW_MAXIMUM = 28
"""The queue's bounds, as the answer tells them."""
ROW_COST = 29
"""Steps that each unit counts for, in sixteenths."""
ROW_HEADER = 30
"""Five parts of the answer's header, address and length each: before, between and behind the four numbers in it."""
ROW_PULLED = 40
"""Where the last pull of these goes on, and the tick at which it was answered; zeros before the first."""
ROW_LENGTH = 42

NUMBERS = 4
"""Numbers in a header, in this order: next offset, maximum, minimum, opaque."""
LONGEST_NUMBER = 20
PREFIX = 8
COMMIT_OFFSET_FLAG = 1

_MULTIPLIER = 0x1E3779B97F4A7C15
_POSITIVE = 0x7FFFFFFFFFFFFFFF


@njit(cache=True, nogil=True)
def mix(mixed: int, word: int) -> int:
    """A step of a hash ≥ 0 for the table alone."""
    mixed = ((int(mixed) ^ int(word)) * _MULTIPLIER) & _POSITIVE
    return mixed ^ (mixed >> 32)


@njit(cache=True, nogil=True)
def mix_text(mixed: int, text: int, length: int) -> int:
    """The same over a text. Eight bytes before its end must be readable, be it shorter or not."""
    position = 0
    while position + 8 <= length:
        mixed = mix(mixed, load_native_i64(text + position))
        position += 8
    if position < length:
        mixed = mix(mixed, load_native_i64(text + length - 8) >> ((position + 8 - length) << 3))
    return mix(mixed, length)


@njit("int64(int64[::1])", cache=True, nogil=True)
def hash_pull(request: np.ndarray) -> int:
    """The hash of a pull: queue, group, and in which run of units it starts."""
    mixed = mix(request[p.QUEUE_ID], request[p.QUEUE_OFFSET] >> RUN_SHIFT)
    mixed = mix_text(mixed, request[p.TOPIC_AT], request[p.TOPIC_LENGTH])
    return mix_text(mixed, request[p.GROUP_AT], request[p.GROUP_LENGTH])


@njit(cache=True, nogil=True)
def field(row: int, place: int) -> int:
    """One number of a row, or of the memory's description."""
    return load_native_i64(row + 8 * place)


@njit(cache=True, nogil=True)
def is_text(row: int, place: int, request: np.ndarray, text: int) -> bool:
    """Whether a text of a request is that of a row; absent ones are no addresses."""
    length = request[text + 1]
    if field(row, place + 1) != length:
        return False
    return length <= 0 or equal_bytes(field(row, place), request[text], length)


@njit(cache=True, nogil=True)
def is_like(row: int, request: np.ndarray) -> bool:
    """Whether a pull is like the one of a row, and starts within its units."""
    queue_offset = request[p.QUEUE_OFFSET]
    return bool(
        field(row, ROW_FIRST) <= queue_offset < field(row, ROW_BEHIND)
        and field(row, ROW_CODE) == request[p.CODE]
        and field(row, ROW_QUEUE_ID) == request[p.QUEUE_ID]
        and field(row, ROW_MAX_MESSAGES) == request[p.MAX_MESSAGES]
        and field(row, ROW_MAX_BYTES) == request[p.MAX_BYTES]
        and field(row, ROW_SYS_FLAG) == request[p.SYS_FLAG]
        and field(row, ROW_SUB_VERSION) == request[p.SUB_VERSION]
        and is_text(row, ROW_TOPIC, request, p.TOPIC_AT)
        and is_text(row, ROW_GROUP, request, p.GROUP_AT)
        and is_text(row, ROW_SUBSCRIPTION, request, p.SUBSCRIPTION_AT)
        and is_text(row, ROW_TYPE, request, p.TYPE_AT)
    )


@njit("int64(int64, int64[::1], int64)", cache=True, nogil=True)
def find_row(known: int, request: np.ndarray, pull_hash: int) -> int:
    """Number of the row of the pulls that a request is like; if there is none, −1 minus the slot for a new one."""
    slots, mask, rows = field(known, OF_SLOTS), field(known, OF_MASK), field(known, OF_ROWS)
    slot = pull_hash & mask
    number = load_native_i32(slots + 4 * slot)
    while number != 0:
        row = rows + 8 * ROW_LENGTH * (number - 1)
        if field(row, ROW_HASH) == pull_hash and is_like(row, request):
            return number - 1
        slot = (slot + 1) & mask
        number = load_native_i32(slots + 4 * slot)
    return -1 - slot


@njit(cache=True, nogil=True)
def write_number(address: int, number: int) -> int:
    """Write a number ≥ 0 in decimal digits; the address behind them."""
    digits = 1
    left = number // 10
    while left > 0:
        left //= 10
        digits += 1
    for place in range(digits - 1, -1, -1):
        store_u8(address + place, 48 + number % 10)
        number //= 10
    return address + digits


@njit(cache=True, nogil=True)
def write_part(address: int, row: int, part: int) -> int:
    """Write one of the five parts of a header; the address behind it."""
    length = field(row, ROW_HEADER + 2 * part + 1)
    copy_bytes(address, field(row, ROW_HEADER + 2 * part), length)
    return address + length


@njit(cache=True, nogil=True)
def write_header(output: int, row: int, next_offset: int, request: np.ndarray, body_length: int) -> int:
    """Write prefix and header of the answer to a pull; the address behind them."""
    at = write_number(write_part(output + PREFIX, row, 0), next_offset)
    at = write_number(write_part(at, row, 1), field(row, ROW_MAXIMUM))
    at = write_number(write_part(at, row, 2), field(row, ROW_MINIMUM))
    at = write_part(at, row, 3)
    copy_bytes(at, request[p.OPAQUE_AT], request[p.OPAQUE_LENGTH])
    at = write_part(at + request[p.OPAQUE_LENGTH], row, 4)
    length = at - output - PREFIX
    store_i32(output, 4 + length + body_length)
    store_i32(output + 4, length)
    return at


@njit(cache=True, nogil=True)
def find_records(catalog: np.ndarray, row: int, queue_offset: int, results: np.ndarray, tick: int) -> int:
    """Units that a pull goes through from an offset on, its finds in ``results``; negative where it is not for us."""
    left = field(row, ROW_END) - queue_offset
    count = min(field(row, ROW_SCAN), left)
    position = (queue_offset - field(row, ROW_FILE_FIRST)) * UNIT_BYTES
    heat, descriptor, size = field(row, ROW_HEAT), field(row, ROW_DESCRIPTOR), field(row, ROW_FILE_SIZE)
    start = max(position - UNIT_BYTES, 0)
    behind = position + min(left, count + 1) * UNIT_BYTES
    if not is_hot(catalog[PROBE], heat, descriptor, size, start, behind - start, tick):
        return -1
    results[:FIRST_PAIR] = 0
    results[AHEAD_AT] = left > count
    results[BEHIND_AT] = position > 0
    return int(
        pull(
            catalog, field(row, ROW_ADDRESS) + position, count, field(row, ROW_CHOICE), field(row, ROW_QUEUE_ID),
            field(row, ROW_TOPIC), field(row, ROW_TOPIC + 1), field(row, ROW_MESSAGES), field(row, ROW_BYTES),
            results, tick,
        )
    )  # fmt: skip


@njit(cache=True, nogil=True)
def write_records(output: int, catalog: np.ndarray, results: np.ndarray) -> int:
    """Copy what a pull found; the address behind it."""
    for number in range(results[FOUND_AT]):
        physical_offset, checked = results[FIRST_PAIR + 2 * number], results[FIRST_PAIR + 2 * number + 1]
        copy_bytes(output, record_address(catalog, physical_offset, checked), checked & SIZE_MASK)
        output += checked & SIZE_MASK
    return output


@njit(cache=True, nogil=True)
def note_commit(known: int, number: int, request: np.ndarray) -> None:
    """Note the offset that a pull commits on the way, for whoever made the call to hand on."""
    if request[p.SYS_FLAG] & COMMIT_OFFSET_FLAG and request[p.COMMIT_OFFSET] > 0:
        count = field(known, OF_COMMIT_COUNT)
        commit = field(known, OF_COMMITS) + 16 * count
        store_native_i64(commit, number)
        store_native_i64(commit + 8, request[p.COMMIT_OFFSET])
        store_native_i64(known + 8 * OF_COMMIT_COUNT, count + 1)


@njit(cache=True, nogil=True)
def answer_pull(
    catalog: np.ndarray,
    known: int,
    request: np.ndarray,
    results: np.ndarray,
    output: int,
    body_limit: int,
    tick: int,
) -> int:
    """Write the records that a known pull finds as its answer; address behind it, or ``output`` where it is none."""
    number = find_row(known, request, hash_pull(request))
    if number < 0:
        return output
    row = field(known, OF_ROWS) + 8 * ROW_LENGTH * number
    queue_offset = request[p.QUEUE_OFFSET]
    passed = find_records(catalog, row, queue_offset, results, tick)
    if passed < 0:
        return output
    store_native_i64(known + 8 * OF_STEPS, passed * field(row, ROW_COST) >> 4)
    total = results[TOTAL_AT]
    if total == 0 or total > body_limit:
        return output
    output = write_header(output, row, queue_offset + passed, request, total)
    store_native_i64(row + 8 * ROW_PULLED, queue_offset + passed)
    store_native_i64(row + 8 * ROW_PULLED + 8, tick)
    note_commit(known, number, request)
    return write_records(output, catalog, results)
