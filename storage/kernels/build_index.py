"""Fill index files in memory, entry by entry as a broker puts them, or slot by slot (store-format §3.4, §3.5).

A header is six i64 here while it is built, in its own order.
"""

import numpy as np
from numba import njit

from storage.kernels.lookup import ENTRY_BYTES, INDEX_HEADER, SLOT_BYTES
from storage.kernels.memory import load_i32, load_native_i32, prefetch, store_i32, store_i64, store_native_i32

BEGIN_TIMESTAMP = 0
END_TIMESTAMP = 1
BEGIN_OFFSET = 2
END_OFFSET = 3
SLOT_COUNT = 4
INDEX_COUNT = 5
HEADER_STATE = 6

ENTRY_OFFSET = 4
ENTRY_SECONDS = 12
ENTRY_PREVIOUS = 16
MOST_SECONDS = 0x7FFFFFFF
AHEAD = 24
"""Slots are asked for so many entries before they are needed: they lie anywhere in 20 MB."""


@njit(cache=True, nogil=True)
def seconds_between(begin: int, timestamp: int) -> int:
    """Whole seconds as an entry holds them: never below 0, and 0 where there is no begin."""
    if begin <= 0 or timestamp < begin:
        return 0
    return min((timestamp - begin) // 1000, MOST_SECONDS)


@njit(cache=True, nogil=True)
def slot_of(key_hash: int, slots: int, inverse: float) -> int:
    """Remainder of a hash by the number of slots, of which ``inverse`` is 1 / slots: two divisions cost more."""
    slot = key_hash - int(key_hash * inverse) * slots
    return slot + slots if slot < 0 else slot - slots if slot >= slots else slot


@njit(
    "void(int64, int64, int64[::1], int64[::1], int64[::1], int64[::1], int32[::1], int64, int64, int64)",
    cache=True,
    nogil=True,
)
def put_entries(
    file: int,
    slots: int,
    header: np.ndarray,
    offsets: np.ndarray,
    timestamps: np.ndarray,
    stops: np.ndarray,
    hashes: np.ndarray,
    record: int,
    entry: int,
    stop: int,
) -> None:
    """Put the entries [entry, stop) of some records into the file at an address, as a broker does one after the other.

    The entries of each record, of which ``record`` is the first, end before its number in ``stops``. The file has room
    for them.
    """
    number, used, inverse = header[INDEX_COUNT], header[SLOT_COUNT], 1 / slots
    first_slot = file + INDEX_HEADER
    target = first_slot + SLOT_BYTES * slots + ENTRY_BYTES * number
    last = stop - 1
    while entry < stop:
        physical_offset, timestamp, stop_of_record = offsets[record], timestamps[record], min(stops[record], stop)
        seconds = seconds_between(header[BEGIN_TIMESTAMP], timestamp)
        for i in range(entry, stop_of_record):
            prefetch(first_slot + SLOT_BYTES * slot_of(int(hashes[min(i + AHEAD, last)]), slots, inverse))
            slot = first_slot + SLOT_BYTES * slot_of(int(hashes[i]), slots, inverse)
            previous = load_i32(slot)
            store_i32(slot, number)
            store_i32(target, hashes[i])
            store_i64(target + ENTRY_OFFSET, physical_offset)
            store_i32(target + ENTRY_SECONDS, seconds)
            store_i32(target + ENTRY_PREVIOUS, previous)
            if number == 1:
                # Only now: the first entry's time counts from the seed, and readers have to live with it (§3.5).
                header[BEGIN_TIMESTAMP], header[BEGIN_OFFSET] = timestamp, physical_offset
                seconds = 0
            used += 1 if previous == 0 else 0
            number += 1
            target += ENTRY_BYTES
        header[END_TIMESTAMP], header[END_OFFSET] = timestamp, physical_offset
        entry = stop_of_record
        record += 1
    header[INDEX_COUNT], header[SLOT_COUNT] = number, used


@njit(cache=True, nogil=True)
def finish_slots(first_slot: int, first_entry: int) -> int:
    """Let each slot point to its last entry, and its first entry to none; how many slots have entries."""
    used = 0
    first = 1
    for slot in range(first_slot, first_entry, SLOT_BYTES):
        behind = load_native_i32(slot)
        if behind > first:
            store_i32(first_entry + ENTRY_BYTES * first + ENTRY_PREVIOUS, 0)
            store_i32(slot, behind - 1)
            used += 1
        else:
            store_i32(slot, 0)
        first = behind
    return used


@njit("int64(int64, int64, int32[::1], int64[::1], int64[::1], int64, int64)", cache=True, nogil=True)
def place_entries(
    file: int,
    slots: int,
    hashes: np.ndarray,
    offsets: np.ndarray,
    timestamps: np.ndarray,
    count: int,
    begin_timestamp: int,
) -> int:
    """Write the first ``count`` entries slot by slot into the file at an address; how many slots are in use.

    Their seconds count from ``begin_timestamp`` as a broker counts them: those of entries stored before it are 0.
    Within a slot they keep their order, and each but the first points to the one right before it. Until the end a slot
    holds where its next entry goes, in the machine's byte order.
    """
    first_slot = file + INDEX_HEADER
    first_entry = first_slot + SLOT_BYTES * slots
    last, inverse = count - 1, 1 / slots
    for i in range(count):
        prefetch(first_slot + SLOT_BYTES * slot_of(int(hashes[min(i + AHEAD, last)]), slots, inverse))
        slot = first_slot + SLOT_BYTES * slot_of(int(hashes[i]), slots, inverse)
        store_native_i32(slot, load_native_i32(slot) + 1)
    number = 1
    for slot in range(first_slot, first_entry, SLOT_BYTES):
        in_slot = load_native_i32(slot)
        store_native_i32(slot, number)
        number += in_slot
    for i in range(count):
        prefetch(first_slot + SLOT_BYTES * slot_of(int(hashes[min(i + 2 * AHEAD, last)]), slots, inverse))
        ahead = load_native_i32(first_slot + SLOT_BYTES * slot_of(int(hashes[min(i + AHEAD, last)]), slots, inverse))
        prefetch(first_entry + ENTRY_BYTES * ahead)
        slot = first_slot + SLOT_BYTES * slot_of(int(hashes[i]), slots, inverse)
        number = load_native_i32(slot)
        store_native_i32(slot, number + 1)
        target = first_entry + ENTRY_BYTES * number
        store_i32(target, hashes[i])
        store_i64(target + ENTRY_OFFSET, offsets[i])
        store_i32(target + ENTRY_SECONDS, seconds_between(begin_timestamp, timestamps[i]))
        store_i32(target + ENTRY_PREVIOUS, number - 1)
    return finish_slots(first_slot, first_entry)
