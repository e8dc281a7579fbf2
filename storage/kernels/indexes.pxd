"""Where things lie in an index file (store-format §3.4): header, slots, and entries, of which number 0 is never used.

The number of slots is not in the file; the caller gives it.
"""

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t

from protocol.kernels.memory cimport __builtin_prefetch, load_i32, load_i64
from storage.kernels.region cimport Region


cpdef enum:
    INDEX_HEADER = 40
    SLOT_BYTES = 4
    ENTRY_BYTES = 20
    # A distance between neighbouring entries above which the index may have been switched off in between.
    GAP_BYTES = 8388608
    # The lowest and the highest entry of each stretch of so many bytes show every gap: it contains a whole stretch.
    STRETCH_BYTES = 4194304
    NO_ENTRY = -1
    # How many first entries show whether a slot count may be that of a file, and how many of them may be wrong.
    QUICK_ENTRIES = 48
    QUICK_FAILURES = 12
    # What is wrong: the pointer of an entry, or a slot.
    BAD_POINTER = 0
    BAD_SLOT = 1


cdef enum:
    # Positions in an entry, behind its hash.
    ENTRY_OFFSET = 4
    ENTRY_SECONDS = 12
    ENTRY_PREVIOUS = 16
    # Slots are asked for so many entries before they are needed: they lie anywhere in 20 MB. Of the store of
    # `benchmarks`, 4,000,000 entries are checked in 0.045 s so, in 0.12 with 1 and 0.06 with 8; 5,000,000 are placed in
    # 0.26 s, with 1 in 0.49. Above 24 nothing is gained.
    AHEAD = 24


cdef struct Entry:
    int32_t key_hash
    int64_t physical_offset
    int32_t seconds  # since the begin timestamp of the file
    int32_t previous  # entry of the same slot, 0 for none

cdef struct IndexView:  # An index file whose counts were checked against its size.
    const uint8_t *first_slot
    const uint8_t *first_entry  # Entry 0.
    int64_t slots
    double inverse  # 1 / slots.
    int64_t entries


cdef inline int view_index(IndexView *view, Region region, int64_t slots, int64_t entries) except -1:
    """See a region as a file of so many slots and entries; raises ValueError where they do not lie in it."""
    cdef int64_t needed
    if slots < 1 or slots > INT32_MAX or entries < 0 or entries > INT32_MAX:
        raise ValueError(f"no index file has {slots} slots and {entries} entries")
    needed = INDEX_HEADER + SLOT_BYTES * slots
    if entries > 0:
        needed += ENTRY_BYTES * (entries + 1)
    if needed > region.size:
        raise ValueError(f"{slots} slots and {entries} entries do not lie in a region of {region.size} bytes")
    view.first_slot = region.data + INDEX_HEADER
    view.first_entry = view.first_slot + SLOT_BYTES * slots
    view.slots, view.inverse, view.entries = slots, 1.0 / slots, entries
    return 0


cdef inline Entry read_entry(const uint8_t *at) noexcept nogil:
    cdef Entry entry
    entry.key_hash = load_i32(at)
    entry.physical_offset = load_i64(at + ENTRY_OFFSET)
    entry.seconds = load_i32(at + ENTRY_SECONDS)
    entry.previous = load_i32(at + ENTRY_PREVIOUS)
    return entry


cdef inline Entry entry_at(const IndexView *view, int64_t number) noexcept nogil:
    return read_entry(view.first_entry + ENTRY_BYTES * number)


cdef inline int32_t newest_in(const IndexView *view, int64_t slot) noexcept nogil:
    """What a slot holds: the number of its newest entry, 0 for none."""
    return load_i32(view.first_slot + SLOT_BYTES * slot)


cdef inline int64_t slot_of(int32_t key_hash, int64_t slots, double inverse) noexcept nogil:
    """Remainder of a hash by the number of slots, of which ``inverse`` is 1 / slots: two divisions cost more."""
    cdef int64_t slot = key_hash - <int64_t>(key_hash * inverse) * slots
    if slot < 0:
        return slot + slots
    return slot - slots if slot >= slots else slot


cdef inline int64_t first_bad_entry(
    const uint8_t *first, int64_t number, int64_t count, int64_t slots, int32_t *heads
) noexcept nogil:
    """0 if each of ``count`` entries points at the one its slot held, else the number of the first that does not.

    ``first`` is where the first of them lies, entry ``number`` of its file; ``heads`` are the newest entries of the
    slots so far, all 0 before entry 1.
    """
    cdef double inverse = 1.0 / slots
    cdef const uint8_t *last = first + ENTRY_BYTES * (count - 1)
    cdef const uint8_t *at = first
    cdef const uint8_t *ahead
    cdef Entry entry
    cdef int64_t slot
    while at <= last:
        ahead = at + ENTRY_BYTES * AHEAD if last - at > ENTRY_BYTES * AHEAD else last
        __builtin_prefetch(heads + slot_of(load_i32(ahead), slots, inverse))
        entry = read_entry(at)
        if entry.key_hash < 0:
            return number
        slot = slot_of(entry.key_hash, slots, inverse)
        if entry.previous != heads[slot]:
            return number
        heads[slot] = <int32_t>number
        number += 1
        at += ENTRY_BYTES
    return 0


cdef inline int64_t whole_seconds(int64_t begin, int64_t timestamp) noexcept nogil:
    """Whole seconds as an entry holds them (store-format §3.5): never below 0, and 0 where there is no begin."""
    cdef int64_t seconds
    if begin <= 0 or timestamp < begin:
        return 0
    seconds = (timestamp - begin) / 1000
    return seconds if seconds < INT32_MAX else INT32_MAX
