"""One pull over the units of a plain queue (store-format §5.4), as long as nothing odd is met.

Each unit takes the way of :func:`storage.get_message.get_message`: the limits, the tag's hash, the record. A record
that is not there, not intact or not the queue's, a filler, a lost or present extension: all that is for the caller to
look at in Python.
"""

import numpy as np
from numba import njit

from storage.kernels.catalog import ADDRESS, HEADER, SEGMENT_ROW, check_record
from storage.kernels.memory import equal_bytes, load_i32, load_i64
from storage.kernels.record import COLD, topic_length, topic_position

UNIT_BYTES = 20
UNIT_SIZE = 8
UNIT_TAGS_CODE = 12
LARGEST_ADDRESS = -(1 << 31) - 1
QUEUE_ID = 12

MAXIMUM_FOUND = 32
"""What a broker returns of one pull at most; room in ``results``."""
FOUND_AT = 0
COLD_AT = 1
FIRST_PAIR = 2
RESULTS = FIRST_PAIR + 2 * MAXIMUM_FOUND
"""``results``: how many were found; where it was cold; of each one its physical offset and check_record's word."""

ODD = -1
STOPPED_COLD = -2


@njit(cache=True, nogil=True)
def is_wanted(codes: np.ndarray, code_count: int, tags_code: int) -> bool:
    """Whether the low 32 bits of a tags code are among the first ``code_count`` codes; −1 of them: all are."""
    low = tags_code & 0xFFFFFFFF
    for number in range(code_count):
        if codes[number] == low:
            return True
    return code_count < 0


@njit(cache=True, nogil=True)
def is_of_queue(record: int, queue_id: int, topic: int, length: int) -> bool:
    """Whether an intact record says this queue id and topic."""
    if load_i32(record + QUEUE_ID) != queue_id or topic_length(record) != length:
        return False
    return equal_bytes(record + topic_position(record), topic, length)


@njit(
    "int64(int64[::1], int64, int64, int64[::1], int64, int64, int64, int64, int64, int64, int64[::1], int64)",
    cache=True,
    nogil=True,
)
def pull(
    catalog: np.ndarray,
    units: int,
    unit_count: int,
    codes: np.ndarray,
    code_count: int,
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
    for number in range(unit_count):
        unit = units + number * UNIT_BYTES
        size = load_i32(unit + UNIT_SIZE)
        if found and (found >= maximum or found >= MAXIMUM_FOUND or total + size > maximum_bytes):
            results[FOUND_AT] = found
            return number
        tags_code = load_i64(unit + UNIT_TAGS_CODE)
        if code_count >= 0:
            if tags_code <= LARGEST_ADDRESS:
                return ODD
            if not is_wanted(codes, code_count, tags_code):
                continue
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
