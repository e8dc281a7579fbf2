"""The entries of an index file beside those that its log leads to: which belong together, and at which times.

Everything here bears with damage. A file is compared entry by entry, whatever some of them say.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t
from libc.stdlib cimport free, malloc, qsort

from storage.kernels.indexes cimport Entry, IndexView, entry_at, view_index, whole_seconds
from storage.kernels.region cimport Column, Region, Room

NO_KEY = -2
REPEATED = -3
NO_TIME = -1


cdef enum:
    HAS_NO_KEY = -2
    HAS_KEY_ONCE = -3
    UNKNOWN_TIME = -1
    # Instead of a place among the hashes of a record.
    NOT_THERE = -2
    ALL_TAKEN = -1
    # Hashes of a record that are looked through one by one; of more a sorted list is made.
    FEW = 8
    MOST = 65536  # Of a record.


cdef struct Late:
    int64_t number
    int64_t expected

cdef struct Block:  # What the log leads to, of which `rank` entries lie before.
    int64_t first_offset
    const uint32_t *offsets
    const int64_t *timestamps
    const uint16_t *counts
    int64_t records
    const int32_t *hashes
    uint8_t *seen
    int64_t rank

cdef struct Sorted:  # The hashes of one record, each with its place among them in the lower half.
    int64_t record  # Its number, −1 before the first one.
    int64_t count
    int64_t *keys
    int32_t *free  # Of each key the next one that no entry has taken, by way of others.


@cython.final
cdef class LateEntry:
    cdef readonly int64_t number
    cdef readonly int64_t expected


cdef inline int64_t earlier_of(int64_t left, int64_t right) noexcept nogil:
    if (left > 0) != (right > 0):
        return max(left, right)
    return min(left, right) if left > 0 else max(left, right)


def earlier_begin(int64_t left, int64_t right):
    return earlier_of(left, right)


@cython.final
cdef class Matching:
    cdef Region region
    cdef IndexView view
    cdef Column order_column
    cdef Room rank_room
    cdef Room late_room
    cdef const int32_t *order  # NULL where entries lie in the order of their physical offsets.
    cdef int64_t *ranks
    cdef Late *late_entries
    cdef int64_t most_late
    cdef int64_t begin
    cdef int64_t at  # How many entries, by physical offset, have been passed.
    cdef readonly int64_t matches
    cdef readonly int64_t timed
    cdef readonly int64_t lates
    cdef readonly int64_t descents
    cdef readonly int64_t lowest
    cdef readonly int64_t highest
    cdef readonly int64_t first_time
    cdef readonly int64_t last_time
    cdef readonly int64_t smallest_time
    cdef readonly int64_t largest_time
    cdef readonly int64_t compared

    def __cinit__(
        self, Region region not None, int64_t slots, int64_t entries, order, int64_t begin, ranks, int64_t most_late
    ):
        cdef int64_t i
        view_index(&self.view, region, slots, entries)
        self.region, self.begin = region, begin
        self.order_column, self.rank_room = Column(order, sizeof(int32_t)), Room(ranks, sizeof(int64_t))
        self.late_room = Room(bytearray(most_late * sizeof(Late)), 1)
        self.ranks, self.most_late = <int64_t *>self.rank_room.items, most_late
        self.late_entries = <Late *>self.late_room.items
        if self.order_column.count:
            self.order = <const int32_t *>self.order_column.items
        if self.rank_room.count != entries + 1 or self.order_column.count not in (0, entries):
            raise ValueError(
                f"{self.rank_room.count} ranks and {self.order_column.count} places in an order of {entries} entries"
            )
        for i in range(self.order_column.count):
            if not 1 <= self.order[i] <= entries:
                raise ValueError(f"there is no entry {self.order[i]} of {entries}")
        self.lowest = self.highest = -1
        self.first_time = self.last_time = self.smallest_time = self.largest_time = UNKNOWN_TIME

    @property
    def late(self):
        cdef LateEntry entry
        cdef int64_t i
        found = []
        for i in range(min(self.lates, self.most_late)):
            entry = LateEntry()
            entry.number, entry.expected = self.late_entries[i].number, self.late_entries[i].expected
            found.append(entry)
        return found

    def next_offset(self, int64_t bound):
        with nogil:
            while self.at < self.view.entries and entry_at(&self.view, number_of(self, self.at)).physical_offset < bound:
                self.at += 1
        if self.at == self.view.entries:
            return None
        return entry_at(&self.view, number_of(self, self.at)).physical_offset

    def match(self, int64_t first_offset, offsets, timestamps, counts, hashes, int64_t rank, seen):
        cdef Column offset_column = Column(offsets, sizeof(uint32_t))
        cdef Column timestamp_column = Column(timestamps, sizeof(int64_t))
        cdef Column count_column = Column(counts, sizeof(uint16_t)), hash_column = Column(hashes, sizeof(int32_t))
        cdef Room seen_room = Room(seen, sizeof(uint8_t))
        cdef int64_t i, total = 0
        cdef Block block
        cdef Sorted sorted
        block.first_offset, block.rank, block.records = first_offset, rank, offset_column.count
        block.offsets, block.timestamps = <const uint32_t *>offset_column.items, <const int64_t *>timestamp_column.items
        block.counts, block.hashes = <const uint16_t *>count_column.items, <const int32_t *>hash_column.items
        block.seen = <uint8_t *>seen_room.items
        if timestamp_column.count != block.records or count_column.count != block.records:
            raise ValueError(f"{timestamp_column.count} times and {count_column.count} counts of {block.records} records")
        for i in range(block.records):
            total += block.counts[i]
        if total > hash_column.count or total > seen_room.count:
            raise ValueError(f"{hash_column.count} hashes and room for {seen_room.count} of {total}")
        sorted.keys = <int64_t *>malloc(MOST * (sizeof(int64_t) + sizeof(int32_t)))
        if sorted.keys == NULL:
            raise MemoryError
        sorted.free, sorted.record = <int32_t *>(sorted.keys + MOST), -1
        with nogil:
            match_block(self, &block, &sorted)
        free(sorted.keys)


cdef inline int64_t number_of(Matching matching, int64_t i) noexcept nogil:
    """Number of the i-th entry by physical offset."""
    return i + 1 if matching.order == NULL else matching.order[i]


cdef int order_of(const void *left, const void *right) noexcept nogil:
    cdef int64_t one = (<const int64_t *>left)[0], other = (<const int64_t *>right)[0]
    return (one > other) - (one < other)


cdef inline int64_t key_of(int32_t key_hash, int64_t place) noexcept nogil:
    return <int64_t>key_hash * (<int64_t>1 << 32) + place


cdef void sort_hashes(Sorted *sorted, const int32_t *hashes, int64_t record, int64_t count) noexcept nogil:
    cdef int64_t i
    for i in range(count):
        sorted.keys[i] = key_of(hashes[i], i)
    for i in range(count + 1):
        sorted.free[i] = <int32_t>i
    qsort(sorted.keys, count, sizeof(int64_t), &order_of)
    sorted.record, sorted.count = record, count


cdef int64_t first_free(Matching matching, Sorted *sorted, int32_t key_hash, int64_t place) noexcept nogil:
    """Number of the first key of a hash, at a place or behind it, that no entry has taken; else ALL_TAKEN or NOT_THERE."""
    cdef int64_t low = 0, high = sorted.count, middle, key = key_of(key_hash, place)
    cdef int32_t number, following
    while low < high:
        matching.compared += 1
        middle = (low + high) // 2
        if sorted.keys[middle] < key:
            low = middle + 1
        else:
            high = middle
    if low == sorted.count or sorted.keys[low] >> 32 != key_hash:
        return NOT_THERE
    number = <int32_t>low
    while sorted.free[number] != number:  # and halve the way for those who come later
        matching.compared += 1
        following = sorted.free[number]
        sorted.free[number] = sorted.free[following]
        number = following
    return number if number < sorted.count and sorted.keys[number] >> 32 == key_hash else ALL_TAKEN


cdef int64_t find_sorted(Matching matching, Sorted *sorted, int64_t start, int32_t key_hash) noexcept nogil:
    """As :c:func:`find_expected`, by the sorted list of the record's hashes; places count from its first one."""
    cdef int64_t number = first_free(matching, sorted, key_hash, start)
    if number < 0:
        number = first_free(matching, sorted, key_hash, 0)
    if number < 0:
        return number
    sorted.free[number] += 1
    return sorted.keys[number] & <int64_t>0xFFFFFFFF


cdef int64_t find_expected(
    Matching matching, const Block *block, int64_t first, int64_t count, int64_t start, int32_t key_hash
) noexcept nogil:
    """Place of a hash among those of a record that no entry has taken yet; ALL_TAKEN, or NOT_THERE without any.

    The search goes round from ``start``: entries come in the order in which they are expected.
    """
    cdef int64_t step, at = start, found = NOT_THERE
    for step in range(count):
        if at == first + count:
            at = first
        if block.hashes[at] == key_hash:
            if not block.seen[at]:
                return at
            found = ALL_TAKEN
        at += 1
        matching.compared += 1
    return found


cdef bint stand_together(const IndexView *view, int64_t count, const int32_t *hashes) noexcept nogil:
    """Whether the first ``count`` entries of a file have these hashes, one behind the other."""
    cdef int64_t i
    for i in range(count):
        if entry_at(view, i + 1).key_hash != hashes[i]:
            return False
    return True


cdef int64_t first_place(const IndexView *view, const Block *block, int64_t first, int64_t count) noexcept nogil:
    """Where among its record's ``count`` hashes a file's first entry is looked for.

    A record may straddle files, and name a key twice: the first entries of a file are the last ones of their record,
    with the tag's or, by older brokers, without it; of a file that has no other record they may be any.
    """
    cdef int64_t same = 1, place, lowest, offset = entry_at(view, 1).physical_offset
    while same < view.entries and entry_at(view, same + 1).physical_offset == offset:
        same += 1
    lowest = 0 if same == view.entries else max(count - same - 1, 0)
    place = count - same
    while place >= lowest:
        if stand_together(view, same, block.hashes + first + place):
            return first + place
        place -= 1
    return first


cdef void note_time(Matching matching, int64_t number, int64_t timestamp, int32_t seconds) noexcept nogil:
    """Keep the times that a header is made of, and an entry's time difference if it is wrong."""
    cdef int64_t expected
    if matching.timed == 0:
        matching.smallest_time = matching.largest_time = timestamp
    matching.timed += 1
    matching.smallest_time = earlier_of(matching.smallest_time, timestamp)
    matching.largest_time = max(matching.largest_time, timestamp)
    if number == matching.view.entries:
        matching.last_time = timestamp
    if number == 1:
        matching.first_time = timestamp
        return
    expected = whole_seconds(matching.begin, timestamp)
    if seconds != expected:
        if matching.lates < matching.most_late:
            matching.late_entries[matching.lates] = Late(number, expected)
        matching.lates += 1


cdef void note_rank(Matching matching, int64_t rank, int64_t before) noexcept nogil:
    """Keep what is known of all ranks; ``before`` is that of the entry matched last."""
    matching.lowest = rank if matching.matches == 0 else min(matching.lowest, rank)
    matching.highest = max(matching.highest, rank)
    matching.matches += 1
    if rank < before:
        matching.descents += 1


cdef void match_block(Matching matching, const Block *block, Sorted *sorted) noexcept nogil:
    """As :meth:`Matching.match`."""
    cdef const IndexView *view = &matching.view
    cdef int64_t record = 0, first = 0, start = 0, before = -1, number, distance, count, at
    cdef Entry entry
    while matching.at < view.entries:
        number = number_of(matching, matching.at)
        entry = entry_at(view, number)
        # An entry may say any number: what lies before the block is at none of its distances.
        distance = -1 if entry.physical_offset < block.first_offset else entry.physical_offset - block.first_offset
        while record < block.records and block.offsets[record] < distance:
            first += block.counts[record]
            start = first
            record += 1
        if record == block.records:
            return
        if block.offsets[record] == distance:
            count = block.counts[record]
            if number == 1:
                start = first_place(view, block, first, count)
            if count <= FEW:
                at = find_expected(matching, block, first, count, start, entry.key_hash)
            else:
                if sorted.record != record:
                    sort_hashes(sorted, block.hashes + first, record, count)
                at = find_sorted(matching, sorted, start - first, entry.key_hash)
                at += first if at >= 0 else 0
            if at >= 0:
                block.seen[at] = 1
                matching.ranks[number] = block.rank + at
                start = at + 1
                note_rank(matching, block.rank + at, before)
                before = block.rank + at
            else:
                matching.ranks[number] = HAS_NO_KEY if at == NOT_THERE else HAS_KEY_ONCE - (block.rank + first)
            if at != NOT_THERE:
                note_time(matching, number, block.timestamps[record], entry.seconds)
        matching.at += 1
