"""Does an index file hold every key of the records it spans? The log and the entries, read side by side.

An index may be sound in itself and yet lack records: those written anew after a crash had cut the log under it (a
broker indexes nothing below the last entry), those dispatched while the index was off, those behind a damaged record.
Entries never fall in physical offset, so one pass over both finds every record with a missing entry.
"""

import numpy as np
from numba import njit

from storage.kernels.lookup import ENTRY_BYTES
from storage.kernels.memory import load_i32, load_i64
from storage.kernels.record import ROLLBACK, SYS_FLAG, TRANSACTION_MASK, check_blank, check_shape
from storage.kernels.scan import emit_record, tag_entry_hash

AT_LIMIT = 0
AT_BLANK = 1
AT_DAMAGE = 2
AT_RECORD = 3


@njit("boolean(int64, int64, int64, int64, int64, boolean, int32[::1], int64[::1])", cache=True, nogil=True)
def has_all_entries(
    record: int,
    physical_offset: int,
    entries: int,
    first: int,
    stop: int,
    has_tags: bool,
    hashes: np.ndarray,
    offsets: np.ndarray,
) -> bool:
    """Whether entries [first, stop) of the array at ``entries`` hold every hash that a record is found under."""
    if load_i32(record + SYS_FLAG) & TRANSACTION_MASK == ROLLBACK:
        return True
    count = emit_record(record, physical_offset, 0, hashes, offsets)
    tag = np.int64(-1) if has_tags else tag_entry_hash(record)
    for i in range(count):
        number = first
        while number < stop and load_i32(entries + ENTRY_BYTES * number) != hashes[i]:
            number += 1
        if number == stop and hashes[i] != tag:
            return False
    return True


@njit(
    "int64(int64, int64, int64, int64, int64, int64, int64, int64, boolean, boolean, int32[::1], int64[::1], "
    "int64[::1])",
    cache=True,
    nogil=True,
)
def find_record_by_entries(
    address: int,
    position: int,
    stop: int,
    readable: int,
    base: int,
    boundary: int,
    entries: int,
    count: int,
    has_tags: bool,
    complete: bool,
    hashes: np.ndarray,
    offsets: np.ndarray,
    result: np.ndarray,
) -> int:
    """First record that starts in [position, stop) of a segment and is ``complete``: has all its entries, or lacks one.

    ``entries`` is the address of entry 0, ``count`` the number of the last one; ``readable`` bounds reading,
    ``boundary`` is where the next segment starts. Without ``has_tags`` an entry for the tag is not asked for.
    ``result[0]`` gets the ``AT_`` code; ``result[1]`` holds the number of an entry below which no offset reaches
    ``position``, before the call and after it.
    """
    result[0] = AT_LIMIT
    number = result[1]
    while position < stop and position + 8 <= readable:
        size = check_shape(address + position, readable - position, base + position)
        if size < 0:
            size = check_blank(address + position, size, boundary - base - position)
            result[0] = AT_BLANK if size == 0 else AT_DAMAGE
            break
        while number <= count and load_i64(entries + ENTRY_BYTES * number + 4) < base + position:
            number += 1
        after = number
        while after <= count and load_i64(entries + ENTRY_BYTES * after + 4) == base + position:
            after += 1
        has_all = has_all_entries(
            address + position, base + position, entries, number, after, has_tags, hashes, offsets
        )
        if has_all == complete:
            result[0] = AT_RECORD
            break
        number = after
        position += size
    result[1] = number
    return position
