"""One pull over the units of a plain queue (store-format §5.4), as long as nothing odd is met.

Each unit takes the way of :func:`storage.get_message.get_message`: the limits, the filter, the record. A record that
is not there, not intact or not the queue's, a filler, a lost or present extension: all that is for the caller to look
at in Python.

A filter is handed in as the address of its choice, see :mod:`storage.filter.choice`.
"""

import numpy as np
from numba import njit

from storage.filter import choice as choice_layout
from storage.kernels.catalog import ADDRESS, HEADER, SEGMENT_ROW, check_record, find_segment
from storage.kernels.memory import equal_bytes, load_i32, load_i64, load_native_i64, prefetch
from storage.kernels.record import COLD, fetch_record, topic_length, topic_position

UNIT_BYTES = 20
UNIT_SIZE = 8
UNIT_TAGS_CODE = 12
LARGEST_ADDRESS = -(1 << 31) - 1
QUEUE_ID = 12

CHOICE_COUNT = 8 * choice_layout.COUNT
CHOICE_CODES = 8 * choice_layout.FIRST_CODE
EVERYTHING, BY_TAG = choice_layout.EVERYTHING, choice_layout.BY_TAG

MAXIMUM_FOUND = 32
"""What a broker returns of one pull at most; room in ``results``."""
FOUND_AT = 0
COLD_AT = 1
FIRST_PAIR = 2
RESULTS = FIRST_PAIR + 2 * MAXIMUM_FOUND
"""``results``: how many were found; where it was cold; of each one its physical offset and check_record's word."""

ODD = -1
STOPPED_COLD = -2

FETCHED_AHEAD = 2
"""Records that are asked of memory before the one that is checked: they lie anywhere, and each would be waited for."""


@njit(cache=True, nogil=True)
def is_wanted(choice: int, tags_code: int) -> bool:
    """Whether the low 32 bits of a tags code are among the codes of a choice."""
    low = tags_code & 0xFFFFFFFF
    for number in range(load_native_i64(choice + CHOICE_COUNT)):
        if load_native_i64(choice + CHOICE_CODES + 8 * number) == low:
            return True
    return load_native_i64(choice) == EVERYTHING


@njit(cache=True, nogil=True)
def is_of_queue(record: int, queue_id: int, topic: int, length: int) -> bool:
    """Whether an intact record says this queue id and topic."""
    if load_i32(record + QUEUE_ID) != queue_id or topic_length(record) != length:
        return False
    return equal_bytes(record + topic_position(record), topic, length)


@njit(cache=True, nogil=True)
def fetch_next(catalog: np.ndarray, units: int, number: int, unit_count: int, choice: int) -> int:
    """Ask memory for the record of the first wanted unit from ``number`` on; the number behind it."""
    while number < unit_count:
        unit = units + number * UNIT_BYTES
        number += 1
        if is_wanted(choice, load_i64(unit + UNIT_TAGS_CODE)):
            physical_offset = load_i64(unit)
            row = find_segment(catalog, physical_offset)
            if row >= 0:
                record = catalog[row + ADDRESS] + physical_offset - catalog[row]
                prefetch(record)
                fetch_record(record, load_i32(unit + UNIT_SIZE))
            break
    return number


@njit(
    "int64(int64[::1], int64, int64, int64, int64, int64, int64, int64, int64, int64[::1], int64)",
    cache=True,
    nogil=True,
)
def pull(
    catalog: np.ndarray,
    units: int,
    unit_count: int,
    choice: int,
    queue_id: int,
    topic: int,
    topic_bytes: int,
    maximum: int,
    maximum_bytes: int,
    results: np.ndarray,
    tick: int,
) -> int:
    """How many units were gone through, or ODD or STOPPED_COLD; what was found is in ``results``."""
    found, total = 0, 0
    maximum = max(min(maximum, MAXIMUM_FOUND), 1)
    by_tag = load_native_i64(choice) == BY_TAG
    if not by_tag:
        unit_count = min(unit_count, maximum)
    ahead = 0
    for _ in range(FETCHED_AHEAD):
        ahead = fetch_next(catalog, units, ahead, unit_count, choice)
    results[FOUND_AT] = 0
    for number in range(unit_count):
        unit = units + number * UNIT_BYTES
        size = load_i32(unit + UNIT_SIZE)
        if found and (found >= maximum or total + size > maximum_bytes):
            return number
        tags_code = load_i64(unit + UNIT_TAGS_CODE)
        if by_tag:
            if tags_code <= LARGEST_ADDRESS:
                return ODD
            if not is_wanted(choice, tags_code):
                continue
        ahead = fetch_next(catalog, units, ahead, unit_count, choice)
        physical_offset = load_i64(unit)
        checked = check_record(catalog, physical_offset, tick)
        if checked == COLD:
            results[COLD_AT] = physical_offset
            return STOPPED_COLD
        # Also a filler ends here: no record is as long as it says.
        if checked < 0 or checked & 0xFFFFFFFF != size:
            return ODD
        row = HEADER + (checked >> 32) * SEGMENT_ROW
        record = catalog[row + ADDRESS] + physical_offset - catalog[row]
        if not is_of_queue(record, queue_id, topic, topic_bytes):
            return ODD
        results[FIRST_PAIR + 2 * found] = physical_offset
        results[FIRST_PAIR + 2 * found + 1] = checked
        found, total = found + 1, total + size
        results[FOUND_AT] = found
    return unit_count
