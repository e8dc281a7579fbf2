"""One pull over the units of a plain queue (store-format §5.4), as long as nothing odd is met.

Each unit takes the way of :func:`storage.get_message.get_message`: the limits, the filter, the record. A record that
is not there, not intact or not the queue's, a filler, a lost or present extension: all that is for the caller to look
at in Python. So is a message that an expression cannot decide here; the kernel then goes on behind it.

A filter is handed in as the address of its choice, see :mod:`storage.filter.choice`.
"""

import numpy as np
from numba import njit

from storage.filter import choice as layout
from storage.kernels.catalog import ADDRESS, VALID_LENGTH, find_segment, locate_record, log_bounds, record_address
from storage.kernels.expression import ASK, TRUE, VALUES, decide
from storage.kernels.memory import equal_bytes, load_i16, load_i32, load_i64, load_native_i64, prefetch
from storage.kernels.record import CACHE_LINE, COLD, check_checksums, fetch_record, topic_length, topic_position

UNIT_BYTES = 20
UNIT_SIZE = 8
UNIT_TAGS_CODE = 12
LARGEST_ADDRESS = -(1 << 31) - 1
QUEUE_ID = 12
SIZE_MASK = 0xFFFFFFFF

EVERYTHING, BY_TAG, BY_EXPRESSION = layout.EVERYTHING, layout.BY_TAG, layout.BY_EXPRESSION
CHOICE_COUNT, CHOICE_HAS_BITS, CHOICE_CODES = 8 * layout.COUNT, 8 * layout.HAS_BITS, 8 * layout.FIRST

MAXIMUM_FOUND = 32
"""What a broker returns of one pull at most; room in ``results``."""
FOUND_AT = 0
TOTAL_AT = 1
NEXT_AT = 2
"""How many were found so far, their bytes, and the number of the unit to begin at: 0 each before a pull."""
STOPPED_AT = 3
"""The physical offset of what was cold; of what is asked, also the pair is there, behind those that were found."""
DECIDED_AT = 4
"""Messages that an expression was decided for, 0 before a pull."""
AHEAD_AT = 5
"""1 where another unit stands behind those of a pull, which only says whether the last of them is whole; else 0."""
BEHIND_AT = 6
"""1 where another unit stands before those of a pull, which only says whether the first of them is whole; else 0."""
FIRST_PAIR = 7
FIRST_VALUE = FIRST_PAIR + 2 * (MAXIMUM_FOUND + 1)
RESULTS = FIRST_VALUE + VALUES
"""``results``: of each message found its physical offset and check_record's word; memory for expressions."""

ODD = -1
STOPPED_COLD = -2
ASKS = -3

FETCHED_AHEAD = 2
"""Records that are asked of memory before the one that is checked: they lie anywhere, and each would be waited for."""
FOUND_TOGETHER = 32
"""Units whose records are asked for by their first line together: to find the page of one takes as long as to read it,
and a processor finds several at a time, but only if nothing else stands between."""
TAIL_BYTES = 256
"""Of a record whose properties are wanted and not its body, what is asked for at its end."""


@njit(cache=True, nogil=True)
def is_wanted(choice: int, tags_code: int) -> bool:
    """Whether the low 32 bits of a tags code are among the codes of a choice by tags; others want any."""
    if load_native_i64(choice) != BY_TAG:
        return True
    low = tags_code & 0xFFFFFFFF
    for number in range(load_native_i64(choice + CHOICE_COUNT)):
        if load_native_i64(choice + CHOICE_CODES + 8 * number) == low:
            return True
    return False


@njit(cache=True, nogil=True)
def is_for_python(choice: int, tags_code: int) -> bool:
    """Whether a unit leads to an extension that says something about the choice."""
    if tags_code > LARGEST_ADDRESS:
        return False
    return load_native_i64(choice) == BY_TAG or load_native_i64(choice + CHOICE_HAS_BITS) != 0


@njit(cache=True, nogil=True)
def is_of_queue(record: int, queue_id: int, topic: int, length: int) -> bool:
    """Whether an intact record says this queue id and topic."""
    if load_i32(record + QUEUE_ID) != queue_id or topic_length(record) != length:
        return False
    return equal_bytes(record + topic_position(record), topic, length)


@njit(cache=True, nogil=True)
def fetch_first_lines(catalog: np.ndarray, units: int, number: int, unit_count: int, choice: int) -> int:
    """Ask memory for the first line of the wanted records of some units from ``number`` on; the number behind them."""
    behind = min(number + FOUND_TOGETHER, unit_count)
    begin, end, address = 0, 0, 0
    for unit in range(units + number * UNIT_BYTES, units + behind * UNIT_BYTES, UNIT_BYTES):
        physical_offset = load_i64(unit)
        if not begin <= physical_offset < end:
            row = find_segment(catalog, physical_offset)
            if row < 0:
                continue
            begin, address = catalog[row], catalog[row + ADDRESS]
            end = begin + catalog[row + VALID_LENGTH]
        if is_wanted(choice, load_i64(unit + UNIT_TAGS_CODE)):
            prefetch(address + physical_offset - begin)
    return behind


@njit(cache=True, nogil=True)
def fetch_next(catalog: np.ndarray, units: int, number: int, unit_count: int, choice: int) -> int:
    """Ask memory for the record of the first wanted unit from ``number`` on; the number behind it."""
    while number < unit_count:
        unit = units + number * UNIT_BYTES
        number += 1
        if not is_wanted(choice, load_i64(unit + UNIT_TAGS_CODE)):
            continue
        physical_offset, size = load_i64(unit), load_i32(unit + UNIT_SIZE)
        row = find_segment(catalog, physical_offset)
        if row >= 0:
            record = catalog[row + ADDRESS] + physical_offset - catalog[row]
            prefetch(record)
            if load_native_i64(choice) != BY_EXPRESSION or size <= TAIL_BYTES:
                fetch_record(record, size)
            else:
                prefetch(record + CACHE_LINE)
                for position in range(size - TAIL_BYTES, size, CACHE_LINE):
                    prefetch(record + position)
                prefetch(record + size - 1)
        break
    return number


@njit(cache=True, nogil=True)
def decide_record(choice: int, record: int, values: np.ndarray) -> int:
    """The outcome of the expression of a choice for a record of sound shape."""
    at = topic_position(record) + topic_length(record)
    return decide(choice, record + at + 2, max(load_i16(record + at), 0), values)


@njit(cache=True, nogil=True)
def is_implausible(unit: int, begin: int, end: int) -> bool:
    """Whether a unit points to no place of a log from ``begin`` to ``end``: what it says of the tag decides nothing."""
    return load_i32(unit + UNIT_SIZE) <= 0 or not begin <= load_i64(unit) < end


@njit(
    "int64(int64[::1], int64, int64, int64, int64, int64, int64, int64, int64, int64[::1], int64)",
    cache=True,
    nogil=True,
)
def pull(
    catalog: np.ndarray, units: int, unit_count: int, choice: int, queue_id: int, topic: int, topic_bytes: int,
    maximum: int, maximum_bytes: int, results: np.ndarray, tick: int,
) -> int:  # fmt: skip
    """How many units were gone through, or ODD, STOPPED_COLD or ASKS; what was found is in ``results``."""
    found, total, first = results[FOUND_AT], results[TOTAL_AT], results[NEXT_AT]
    maximum = max(min(maximum, MAXIMUM_FOUND), 1)
    begin, end = log_bounds(catalog)
    kind = load_native_i64(choice)
    readable = unit_count + results[AHEAD_AT]
    before = load_i64(units + (first - 1) * UNIT_BYTES) if first or results[BEHIND_AT] else -1
    unit_count = min(unit_count, maximum) if kind == EVERYTHING else unit_count
    ahead = together = first
    for _ in range(FETCHED_AHEAD):
        ahead = fetch_next(catalog, units, ahead, unit_count, choice)
    for number in range(first, unit_count):
        if number == together:
            together = fetch_first_lines(catalog, units, number, unit_count, choice)
        unit = units + number * UNIT_BYTES
        size = load_i32(unit + UNIT_SIZE)
        # Messages of a queue ascend: one unit that does not leads elsewhere, and its tag decides nothing.
        place, following = load_i64(unit), load_i64(unit + UNIT_BYTES) if number + 1 < readable else end
        if is_implausible(unit, begin, end) or not (before < place and (place < following or following <= 0)):
            return ODD
        before = place
        if found and (found >= maximum or total + size > maximum_bytes):
            return number
        if kind != EVERYTHING:
            tags_code = load_i64(unit + UNIT_TAGS_CODE)
            if is_for_python(choice, tags_code):
                return ODD
            if not is_wanted(choice, tags_code):
                continue
        ahead = fetch_next(catalog, units, ahead, unit_count, choice)
        physical_offset = results[STOPPED_AT] = place
        located = locate_record(catalog, physical_offset, tick, size)
        if located < 0:  # of a filler too: no record is as long as it says
            return STOPPED_COLD if located == COLD else ODD
        record = record_address(catalog, physical_offset, located)
        if not is_of_queue(record, queue_id, topic, topic_bytes):
            return ODD
        results[FIRST_PAIR + 2 * found], results[FIRST_PAIR + 2 * found + 1] = physical_offset, located
        if kind == BY_EXPRESSION:
            outcome, results[NEXT_AT] = decide_record(choice, record, results[FIRST_VALUE:]), number + 1
            if outcome == ASK:
                return ASKS
            results[DECIDED_AT] += 1
            if outcome != TRUE:
                continue
        if check_checksums(record, size) < 0:
            return ODD
        found, total = found + 1, total + size
        results[FOUND_AT], results[TOTAL_AT] = found, total
    # Damage behind these units may have begun within the tag of the last one.
    is_torn = kind == BY_TAG and results[AHEAD_AT] and is_implausible(units + unit_count * UNIT_BYTES, begin, end)
    return ODD if is_torn else unit_count
