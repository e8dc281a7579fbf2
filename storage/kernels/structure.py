"""Does an index file hold together? Its slots and pointers follow from its hashes and its slot count.

Neither count stands in the file, so a candidate is tried by recomputing: going over the entries in order, each must
point at the entry that its slot held before, and in the end the slots must hold what the file says. The broker's own
files satisfy this, and compacted ones too; a wrong candidate fails within a few entries.

A broker may put further entries meanwhile: first the entry, then its slot, then the header's count (store-format §3.4).
So slots may point at entries behind those that are looked at, from which pointers lead down to them.
"""

import numpy as np
from numba import njit

from storage.kernels.lookup import ENTRY_BYTES, INDEX_HEADER, SLOT_BYTES
from storage.kernels.memory import load_i32, load_i64

STATS_MINIMUM = 0
STATS_MAXIMUM = 1
STATS_ASCENDING = 2
STATS_GAPS = 3
GAP_BYTES = 8 * 1024 * 1024
"""A distance between neighbouring entries above which the index may have been switched off in between."""
STRETCH_BYTES = GAP_BYTES // 2
"""Of so many bytes of log the lowest and the highest entry tell every gap: one stretch at least lies inside it."""
NO_ENTRY = -1


@njit("int64(int64, int64, int64, int32[::1])", cache=True, nogil=True)
def check_structure(address: int, slots: int, entries: int, heads: np.ndarray) -> int:
    """0 if slots and pointers of the file are what its hashes make of them, else the number of the first bad entry.

    ``heads`` is zeroed scratch of ``slots`` int32; a bad slot counts as entry ``entries + 1 + slot``.
    """
    first = address + INDEX_HEADER + SLOT_BYTES * slots
    for number in range(1, entries + 1):
        entry = first + ENTRY_BYTES * number
        key_hash = load_i32(entry)
        if key_hash < 0:
            return number
        slot = key_hash % slots
        if load_i32(entry + 16) != heads[slot]:
            return number
        heads[slot] = number
    for slot in range(slots):
        if load_i32(address + INDEX_HEADER + SLOT_BYTES * slot) != heads[slot]:
            return entries + 1 + slot
    return 0


@njit(cache=True, nogil=True)
def newest_among(address: int, slots: int, slot: int, entries: int, capacity: int) -> int:
    """The newest of the first ``entries`` in a slot, whatever was put into it later; −1 where the way there is broken.

    Up to ``capacity`` entries fit the file. Entries that came later are of this slot, and physical offsets do not fall.
    """
    first = address + INDEX_HEADER + SLOT_BYTES * slots
    number = load_i32(address + INDEX_HEADER + SLOT_BYTES * slot)
    while number > entries:
        if number > capacity:
            return -1
        entry = first + ENTRY_BYTES * number
        key_hash, previous = load_i32(entry), load_i32(entry + 16)
        if key_hash < 0 or key_hash % slots != slot or previous >= number:
            return -1
        if load_i64(entry + 4) < load_i64(first + ENTRY_BYTES * entries + 4):
            return -1
        number = previous
    return max(number, -1)


@njit("int64(int64, int64, int64, int64, int32[::1])", cache=True, nogil=True)
def check_growing_structure(address: int, slots: int, entries: int, capacity: int, heads: np.ndarray) -> int:
    """As :func:`check_structure` for the first ``entries`` of a file that further ones are put into."""
    first = address + INDEX_HEADER + SLOT_BYTES * slots
    for number in range(1, entries + 1):
        entry = first + ENTRY_BYTES * number
        key_hash = load_i32(entry)
        if key_hash < 0:
            return number
        slot = key_hash % slots
        if load_i32(entry + 16) != heads[slot]:
            return number
        heads[slot] = number
    for slot in range(slots):
        if newest_among(address, slots, slot, entries, capacity) != heads[slot]:
            return entries + 1 + slot
    return 0


@njit("int64(int64, int64, int64, int64, int64, int8[::1])", cache=True, nogil=True)
def check_growth(address: int, slots: int, known: int, entries: int, capacity: int, reached: np.ndarray) -> int:
    """0 if entries ``known`` + 1 to ``entries`` hold together with those before, else the number of a bad one.

    Physical offsets must not fall. Each entry must be the newest of its slot or be pointed at by a later one, and the
    last pointer of each chain lead to a known entry of its slot, or nowhere. ``reached`` is zeroed scratch of
    ``entries − known`` int8.
    """
    first = address + INDEX_HEADER + SLOT_BYTES * slots
    for number in range(entries, known, -1):
        entry = first + ENTRY_BYTES * number
        key_hash, previous = load_i32(entry), load_i32(entry + 16)
        if key_hash < 0 or previous < 0 or previous >= number:
            return number
        if number > 1 and load_i64(entry + 4) < load_i64(entry - ENTRY_BYTES + 4):
            return number
        slot = key_hash % slots
        if not reached[number - known - 1] and newest_among(address, slots, slot, entries, capacity) != number:
            return number
        if previous > 0:
            if load_i32(first + ENTRY_BYTES * previous) % slots != slot:
                return number
            if previous > known:
                reached[previous - known - 1] = 1
    return 0


@njit("int64(int64, int64, int64, int64[::1], int64[:, ::1])", cache=True, nogil=True)
def measure_entries(address: int, slots: int, entries: int, stats: np.ndarray, gaps: np.ndarray) -> int:
    """Smallest and largest physical offset, whether they never fall, and gaps above GAP_BYTES as (from, to) rows.

    Returns the number of gaps found, which may exceed the rows there are.
    """
    first = address + INDEX_HEADER + SLOT_BYTES * slots
    stats[STATS_ASCENDING] = 1
    stats[STATS_GAPS] = 0
    previous = -1
    for number in range(1, entries + 1):
        offset = load_i64(first + ENTRY_BYTES * number + 4)
        if number == 1:
            stats[STATS_MINIMUM], stats[STATS_MAXIMUM] = offset, offset
        elif offset < previous:
            stats[STATS_ASCENDING] = 0
        elif offset - previous > GAP_BYTES:
            if stats[STATS_GAPS] < gaps.shape[0]:
                gaps[stats[STATS_GAPS], 0], gaps[stats[STATS_GAPS], 1] = previous, offset
            stats[STATS_GAPS] += 1
        stats[STATS_MINIMUM] = min(stats[STATS_MINIMUM], offset)
        stats[STATS_MAXIMUM] = max(stats[STATS_MAXIMUM], offset)
        previous = offset
    return int(stats[STATS_GAPS])


@njit("int64(int64, int64, int64, int64, int64[:, ::1], int64[::1])", cache=True, nogil=True)
def measure_compacted(
    address: int, slots: int, entries: int, start: int, stretches: np.ndarray, stats: np.ndarray
) -> int:
    """Measure entries that should lie slot by slot; 0 if they do, else the number of the first that does not.

    They do if each points to none, or to the one right before it. Row i of ``stretches`` gets the lowest and the
    highest physical offset from ``start`` + i · STRETCH_BYTES on, NO_ENTRY without any; entries before and behind all
    rows have none. ``stats`` gets the smallest and the largest of all, and whether they never fall along a chain.
    """
    first = address + INDEX_HEADER + SLOT_BYTES * slots
    stats[STATS_ASCENDING] = 1
    stretches[:, :] = NO_ENTRY
    before = 0
    for number in range(1, entries + 1):
        entry = first + ENTRY_BYTES * number
        offset, previous = load_i64(entry + 4), load_i32(entry + 16)
        if previous != 0 and previous != number - 1:
            return number
        if number == 1:
            stats[STATS_MINIMUM], stats[STATS_MAXIMUM] = offset, offset
        elif previous != 0 and offset < before:
            stats[STATS_ASCENDING] = 0
        stats[STATS_MINIMUM] = min(stats[STATS_MINIMUM], offset)
        stats[STATS_MAXIMUM] = max(stats[STATS_MAXIMUM], offset)
        before = offset
        if offset >= start:
            row = (offset - start) // STRETCH_BYTES
            if row < len(stretches):
                lowest = stretches[row, 0]
                stretches[row, 0] = offset if lowest == NO_ENTRY else min(lowest, offset)
                stretches[row, 1] = max(stretches[row, 1], offset)
    return 0
