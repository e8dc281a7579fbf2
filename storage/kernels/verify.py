"""Hold an index file against its log: which entries belong to records.

Everything here bears with damage. A file is compared entry by entry with the entries that its log leads to, whatever
some of them say.
"""

import numpy as np
from numba import njit

from storage.kernels.indexes import ENTRY_BYTES
from storage.kernels.memory import load_i32, load_i64

NO_RECORD = -1
NO_KEY = -2
REPEATED = -3
"""In place of a rank: no keyed record starts there, it has no such key, or (this less the rank) has it once only."""

STATE_MATCHES = 0
STATE_TIMES = 1
STATE_LATE = 2
STATE_FIRST = 3
STATE_LAST = 4
STATE_SMALLEST = 5
STATE_LARGEST = 6
STATE_DESCENTS = 7
STATE_LOWEST = 8
STATE_HIGHEST = 9
STATE = 10
"""Entries matched; those whose record's store time is known; those whose time difference is wrong; the store times of
the records of the first and the last entry (−1: not known), the time that a compacted file begins with, and the largest
of all; how often a rank lies
below the one before it, and the lowest and the highest of all."""

NO_TIME = -1
LARGEST_DIFFERENCE = 2**31 - 1


@njit(cache=True, nogil=True)
def number_at(order: np.ndarray, i: int) -> int:
    """Number of the i-th entry by physical offset; without an order entries lie in theirs."""
    return int(np.int64(order[i])) if order.shape[0] > 0 else i + 1


@njit("int64(int64, int32[::1], int64, int64, int64)", cache=True, nogil=True)
def skip_below(entries: int, order: np.ndarray, i: int, count: int, bound: int) -> int:
    """The first of the entries i, i + 1 … of ``count`` whose physical offset is ``bound`` or above.

    ``entries`` is the address of entry 0.
    """
    while i < count and load_i64(entries + ENTRY_BYTES * number_at(order, i) + 4) < bound:
        i += 1
    return i


@njit(cache=True, nogil=True)
def expected_difference(timestamp: int, begin: int) -> int:
    """The time difference that a broker writes, in whole seconds (store-format §3.5)."""
    if begin <= 0 or timestamp < begin:
        return 0
    return min((timestamp - begin) // 1000, LARGEST_DIFFERENCE)


@njit(cache=True, nogil=True)
def find_expected(hashes: np.ndarray, first: int, count: int, start: int, key_hash: int, seen: np.ndarray) -> int:
    """Place of a hash among those of a record that no entry has taken yet; −1 if all are taken, −2 without any.

    The search goes round from ``start``: entries come in the order in which they are expected.
    """
    taken = -2
    for step in range(count):
        at = first + (start - first + step) % count
        if hashes[at] == key_hash:
            if seen[at] == 0:
                return at
            taken = -1 if taken == -2 else taken
    return taken


@njit(cache=True, nogil=True)
def stand_together(entries: int, count: int, hashes: np.ndarray, first: int) -> bool:
    """Whether the first ``count`` entries of a file have these hashes, one behind the other."""
    for i in range(count):  # noqa: SIM110 — compiled: a generator would not be
        if load_i32(entries + ENTRY_BYTES * (i + 1)) != hashes[first + i]:
            return False
    return True


@njit(cache=True, nogil=True)
def first_place(entries: int, count: int, hashes: np.ndarray, first: int, record_count: int) -> int:
    """Where among its record's hashes a file's first entry is looked for.

    A record may straddle files, and name a key twice: the first entries of a file are the last ones of their record,
    with the tag's or, by older brokers, without it; of a file that has no other record they may be any.
    """
    same = 1
    offset = load_i64(entries + ENTRY_BYTES + 4)
    while same < count and load_i64(entries + ENTRY_BYTES * (same + 1) + 4) == offset:
        same += 1
    lowest = 0 if same == count else max(record_count - same - 1, 0)
    for place in range(record_count - same, lowest - 1, -1):
        if stand_together(entries, same, hashes, first + place):
            return first + place
    return first


@njit("int64(int64, int64)", cache=True, nogil=True)
def earlier_begin(left: int, right: int) -> int:
    """Of two store times the one with which a compacted file begins: the earlier, but rather one above 0."""
    if (left > 0) != (right > 0):
        return max(left, right)
    return min(left, right) if left > 0 else max(left, right)


@njit(cache=True, nogil=True)
def note_time(
    number: int, count: int, timestamp: int, entry: int, begin: int, late: np.ndarray, state: np.ndarray
) -> None:
    """Keep the times that a header is made of, and an entry's time difference if it is wrong."""
    state[STATE_TIMES] += 1
    is_first = state[STATE_TIMES] == 1
    state[STATE_SMALLEST] = timestamp if is_first else earlier_begin(state[STATE_SMALLEST], timestamp)
    state[STATE_LARGEST] = timestamp if is_first else max(state[STATE_LARGEST], timestamp)
    if number == count:
        state[STATE_LAST] = timestamp
    if number == 1:
        state[STATE_FIRST] = timestamp
        return
    difference = expected_difference(timestamp, begin)
    if load_i32(entry + 12) != difference:
        if state[STATE_LATE] < late.shape[0]:
            late[state[STATE_LATE], 0], late[state[STATE_LATE], 1] = number, difference
        state[STATE_LATE] += 1


@njit(cache=True, nogil=True)
def note_rank(rank: int, before: int, state: np.ndarray) -> None:
    """Keep what is known of all ranks; ``before`` is that of the entry matched last."""
    state[STATE_MATCHES] += 1
    is_first = state[STATE_MATCHES] == 1
    state[STATE_LOWEST] = rank if is_first else min(state[STATE_LOWEST], rank)
    state[STATE_HIGHEST] = rank if is_first else max(state[STATE_HIGHEST], rank)
    if rank < before:
        state[STATE_DESCENTS] += 1


@njit(
    "int64(int64, int32[::1], int64, int64, int64, uint32[::1], int64[::1], uint16[::1], int32[::1], int64, int64,"
    " int64[::1], uint8[::1], int64[:, ::1], int64[::1])",
    cache=True,
    nogil=True,
)
def match_entries(
    entries: int,
    order: np.ndarray,
    i: int,
    count: int,
    first_offset: int,
    offsets: np.ndarray,
    timestamps: np.ndarray,
    counts: np.ndarray,
    hashes: np.ndarray,
    rank: int,
    begin: int,
    ranks: np.ndarray,
    seen: np.ndarray,
    late: np.ndarray,
    state: np.ndarray,
) -> int:
    """Find the entries of a file among those that one block of its log leads to; the first entry behind the block.

    ``entries`` is the address of entry 0 of ``count``, the columns are those of a block of which ``rank`` entries lie
    before. ``ranks[number]`` becomes the rank of the entry's match, or one of the codes above; ``seen`` marks what of
    the block was found. Times are held against ``begin``, the file's begin timestamp; the first entry's is not.
    """
    record = first = start = 0
    before = -1
    while i < count:
        number = number_at(order, i)
        entry = entries + ENTRY_BYTES * number
        distance = load_i64(entry + 4) - first_offset
        while record < offsets.shape[0] and np.int64(offsets[record]) < distance:
            first += int(np.int64(counts[record]))
            start = first
            record += 1
        if record == offsets.shape[0]:
            return i
        if np.int64(offsets[record]) == distance:
            size = int(np.int64(counts[record]))
            if number == 1:
                start = first_place(entries, count, hashes, first, size)
            at = find_expected(hashes, first, size, start, load_i32(entry), seen)
            if at >= 0:
                seen[at] = 1
                ranks[number] = rank + at
                start = at + 1
                note_rank(rank + at, before, state)
                before = rank + at
            else:
                ranks[number] = NO_KEY if at == -2 else REPEATED - (rank + first)
            if at != -2:
                note_time(number, count, timestamps[record], entry, begin, late, state)
        i += 1
    return i
