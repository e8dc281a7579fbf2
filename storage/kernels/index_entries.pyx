"""Index entries beside the log: dealt out by where their records lie, held against records, matched with keys.

A compaction checks and deals out the entries of one index file, a stretch at a time, into the cells of the log that
their offsets lie in. Then it goes over the records of a cell in the order of the log, through a window on the segment,
and notes which of them exist, when they were stored, and which are to be left out.
"""

cimport cython
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp

import numpy as np

from protocol.kernels.memory cimport load_i32, load_i64
from storage.kernels.indexes cimport ENTRY_BYTES, ENTRY_OFFSET, SLOT_BYTES, first_bad_entry
from storage.kernels.records cimport (
    MAXIMUM_PIECES,
    MINIMUM_SIZE,
    PHYSICAL_OFFSET,
    TOTAL_SIZE,
    Entries,
    Indexed,
    Record,
    Text,
    emit_keys,
    find_indexed,
    has_record_magic,
    read_shape,
    store_timestamp_at,
    tag_hash,
    text_of,
    topic_hash,
)
from storage.kernels.region cimport Column, Region, Room, region_of, require, take


# --- One file, a stretch at a time ---


def check_entries(entries: ReadableBuffer | Region, int64_t number, heads: npt.NDArray[np.int32]) -> int:
    """0 if each of some entries, the first being ``number``, points at the one its slot held, else its number.

    ``heads`` are the newest entries of all slots so far, and are brought up to date; all are 0 before entry 1.
    """
    cdef Region region = region_of(entries)
    cdef Room room = Room(heads, sizeof(int32_t))
    cdef int64_t count = region.size // ENTRY_BYTES, bad
    if room.count < 1 or number < 1 or number + count > INT32_MAX:
        raise ValueError(f"entries {number} to {number + count} of a file of {room.count} slots")
    with nogil:
        bad = first_bad_entry(region.data, number, count, room.count, <int32_t *>room.items)
    return bad


def check_slots(slots: ReadableBuffer | Region, heads: npt.NDArray[np.int32], int64_t newest) -> int:
    """−1 if the slots of a file hold ``heads``, else the number of the first that does not.

    With ``newest`` ≥ 0 a slot may hold a higher number than that: the file is being written to.
    """
    cdef Region region = region_of(slots)
    cdef Column column = Column(heads, sizeof(int32_t))
    cdef const int32_t *expected = <const int32_t *>column.items
    cdef int64_t slot, bad = -1
    cdef int32_t held
    require(region, 0, SLOT_BYTES * column.count)
    with nogil:
        for slot in range(column.count):
            held = load_i32(region.data + SLOT_BYTES * slot)
            if held != expected[slot] and (newest < 0 or held <= newest):
                bad = slot
                break
    return bad


cdef struct Cells:  # Of the log: physical offsets [start, end) of each, and how many entries lie where.
    const int64_t *starts
    const int64_t *ends
    int64_t count
    int64_t below
    int64_t beyond
    int64_t nowhere


cdef int32_t find_cell(Cells *cells, int64_t physical_offset) noexcept nogil:
    """The cell that an entry belongs to; −1 for none, and it is counted why."""
    cdef int64_t low = 0, high = cells.count, middle
    if physical_offset < cells.starts[0]:
        cells.below += 1
        return -1
    if physical_offset >= cells.ends[cells.count - 1]:
        cells.beyond += 1
        return -1
    while high - low > 1:
        middle = (low + high) >> 1
        if cells.starts[middle] <= physical_offset:
            low = middle
        else:
            high = middle
    if physical_offset < cells.ends[low]:
        return <int32_t>low
    cells.nowhere += 1
    return -1


cdef void deal(
    const uint8_t *entries, int64_t count, Cells *cells, int32_t *places, int64_t *counts, int64_t *next_free,
    int32_t *hashes, uint32_t *positions,
) noexcept nogil:
    """``places`` is room for each entry, ``next_free`` for each cell; ``counts`` are zeroed."""
    cdef int32_t cell = -1
    cdef int64_t i, physical_offset, start = 0, end = 0  # of the cell that the entry before lies in
    for i in range(count):
        physical_offset = load_i64(entries + ENTRY_BYTES * i + ENTRY_OFFSET)
        if physical_offset < start or physical_offset >= end:
            cell = find_cell(cells, physical_offset)
            start = cells.starts[cell] if cell >= 0 else 0
            end = cells.ends[cell] if cell >= 0 else 0
        places[i] = cell
        if cell >= 0:
            counts[cell] += 1
    next_free[0] = 0
    for i in range(1, cells.count):
        next_free[i] = next_free[i - 1] + counts[i - 1]
    for i in range(count):
        cell = places[i]
        if cell >= 0:
            hashes[next_free[cell]] = load_i32(entries + ENTRY_BYTES * i)
            physical_offset = load_i64(entries + ENTRY_BYTES * i + ENTRY_OFFSET)
            positions[next_free[cell]] = <uint32_t>(physical_offset - cells.starts[cell])
            next_free[cell] += 1


@cython.final
cdef class Dealt:
    """Entries by the cells of the log that they lie in."""

    cdef readonly int64_t below  # How many lie below the log.
    cdef readonly int64_t beyond  # How many lie behind its end.
    cdef readonly int64_t nowhere  # How many lie in none of its segments.
    cdef readonly object counts  # `npt.NDArray[np.int64]`: How many lie in each cell.
    # Their hashes cell by cell, in their order within each; behind these anything.
    cdef readonly object hashes  # `npt.NDArray[np.int32]`:
    # Their physical offsets, counted from the start of the cell, in the same order.
    cdef readonly object positions  # `npt.NDArray[np.uint32]`:

    def __cinit__(self, int64_t below, int64_t beyond, int64_t nowhere, counts, hashes, positions):
        self.below, self.beyond, self.nowhere = below, beyond, nowhere
        self.counts, self.hashes, self.positions = counts, hashes, positions


def deal_entries(entries: ReadableBuffer | Region, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> Dealt:
    """Group entries by the cells [start, end) of the log, which ascend; those of no cell are only counted."""
    cdef Region region = region_of(entries)
    cdef Column start_column = Column(starts, sizeof(int64_t)), end_column = Column(ends, sizeof(int64_t))
    cdef int64_t count = region.size // ENTRY_BYTES
    cdef Room count_room, hash_room, position_room, places, next_free
    cdef Cells cells
    cells.starts, cells.ends = <const int64_t *>start_column.items, <const int64_t *>end_column.items
    cells.count, cells.below, cells.beyond, cells.nowhere = start_column.count, 0, 0, 0
    if not 0 < cells.count == end_column.count or cells.count > INT32_MAX:
        raise ValueError(f"{cells.count} starts and {end_column.count} ends of cells")
    counts, hashes, positions = np.zeros(cells.count, np.int64), np.empty(count, np.int32), np.empty(count, np.uint32)
    count_room, hash_room = Room(counts, sizeof(int64_t)), Room(hashes, sizeof(int32_t))
    position_room = Room(positions, sizeof(uint32_t))
    places, next_free = Room(np.empty(count, np.int32), sizeof(int32_t)), Room(np.empty_like(starts), sizeof(int64_t))
    with nogil:
        deal(
            region.data, count, &cells, <int32_t *>places.items, <int64_t *>count_room.items,
            <int64_t *>next_free.items, <int32_t *>hash_room.items, <uint32_t *>position_room.items,
        )
    return Dealt(cells.below, cells.beyond, cells.nowhere, counts, hashes, positions)


# --- The records that entries point to ---


cdef struct Window:  # Bytes [start, stop) of a segment that starts at base; its records end at limit.
    const uint8_t *data
    int64_t start
    int64_t stop
    int64_t limit
    int64_t base

cdef struct Looked:  # Positions of records, and what was found of each.
    const int64_t *positions
    uint8_t *fates
    int64_t *timestamps
    int64_t *tags
    int64_t count

cdef struct Unwanted:  # What of the records is to be left out.
    Text *topics
    int64_t topic_count
    bint tags
    Entries keys


cdef int see_window(
    Window *window, Region region, int64_t start, int64_t filled, int64_t limit, int64_t base
) except -1:
    require(region, 0, filled)
    if start < 0 or limit < 0:
        raise ValueError(f"a window at position {start} of a segment whose records end at {limit}")
    window.data, window.start, window.stop, window.limit, window.base = region.data, start, start + filled, limit, base
    return 0


cdef int require_facts(
    Looked *looked, Column positions, int64_t number, Room fates, Room timestamps, Room tags
) except -1:
    if fates.count != positions.count or timestamps.count != positions.count or number < 0:
        raise ValueError(f"{fates.count} fates and {timestamps.count} times of {positions.count} records, from {number} on")
    if tags is not None and tags.count != positions.count:
        raise ValueError(f"{tags.count} tags of {positions.count} records")
    looked.positions, looked.count = <const int64_t *>positions.items, positions.count
    looked.fates, looked.timestamps = <uint8_t *>fates.items, <int64_t *>timestamps.items
    looked.tags = NULL if tags is None else <int64_t *>tags.items
    return 0


cdef int64_t announced_size(const uint8_t *at, int64_t physical_offset, int64_t room) noexcept nogil:
    """Size of the record that the first bytes there announce, 0 where they are none's of that offset."""
    cdef int32_t size = load_i32(at + TOTAL_SIZE)
    if not has_record_magic(at) or load_i64(at + PHYSICAL_OFFSET) != physical_offset:
        return 0
    return size if MINIMUM_SIZE <= size <= room else 0


cdef bint has_topic(const Record *record, const Unwanted *unwanted) noexcept nogil:
    """Whether a record's topic is one of those to be left out."""
    cdef int64_t i
    for i in range(unwanted.topic_count):
        if unwanted.topics[i].length == record.topic.length:
            if memcmp(unwanted.topics[i].start, record.topic.start, record.topic.length) == 0:
                return True
    return False


cdef int64_t separate_tag(const Record *record, Entries *keys) noexcept nogil:
    """Hash of a record's tag entry, or −1 where it has none or a key of the record has the same hash."""
    cdef Indexed indexed
    cdef uint32_t of_topic
    cdef int32_t tag
    cdef int64_t i
    find_indexed(record, &indexed)
    if indexed.tags.start == NULL:
        return -1
    of_topic = topic_hash(record)
    tag = tag_hash(of_topic, &indexed.tags)
    keys.count = 0
    emit_keys(of_topic, &indexed, 0, keys)
    for i in range(keys.count):
        if keys.hashes[i] == tag:
            return -1
    return tag


cdef inline int64_t look(Window window, Looked looked, int64_t number, Unwanted *unwanted) noexcept nogil:
    """As :func:`read_heads`, or without NULL as :func:`read_records`."""
    cdef Record record
    cdef const uint8_t *at
    cdef int64_t position, size
    while number < looked.count:
        position = looked.positions[number]
        looked.fates[number] = NO_RECORD
        if position <= window.limit - MINIMUM_SIZE:
            if position < window.start or position > window.stop - MINIMUM_SIZE:
                return number
            at = window.data + (position - window.start)
            size = announced_size(at, window.base + position, window.limit - position)
            if unwanted == NULL:
                if size > 0:
                    looked.fates[number], looked.timestamps[number] = KEEP, store_timestamp_at(at)
            else:
                if size > window.stop - position:
                    return number
                if size > 0 and read_shape(&record, at, size, window.base + position) == size:
                    looked.fates[number] = LEFT_OUT if has_topic(&record, unwanted) else KEEP
                    looked.timestamps[number] = store_timestamp_at(at)
                    looked.tags[number] = separate_tag(&record, &unwanted.keys) if unwanted.tags else -1
        number += 1
    return number


def read_heads(
    Region region not None, int64_t start, int64_t filled, int64_t limit, int64_t base,
    positions: npt.NDArray[np.int64], int64_t number, fates: npt.NDArray[np.uint8], timestamps: npt.NDArray[np.int64],
) -> int:
    """Store times of the records at ``positions``, from ``number`` on, as far as a window shows their heads.

    The region's first ``filled`` bytes are those from ``start`` on of a segment that starts at the physical offset
    ``base`` and whose records end at ``limit``. What is no record has the fate NO_RECORD. Returns the number of the
    first position not looked at. Raises ValueError for more bytes than the region has, and arrays of other lengths.
    """
    cdef Column column = Column(positions, sizeof(int64_t))
    cdef Room fate_room = Room(fates, sizeof(uint8_t)), time_room = Room(timestamps, sizeof(int64_t))
    cdef Window window
    cdef Looked looked
    see_window(&window, region, start, filled, limit, base)
    require_facts(&looked, column, number, fate_room, time_room, None)
    with nogil:
        number = look(window, looked, number, NULL)
    return number


def read_records(
    Region region not None, int64_t start, int64_t filled, int64_t limit, int64_t base,
    positions: npt.NDArray[np.int64], int64_t number, tuple[bytes, ...] topics not None, bint wants_tags,
    fates: npt.NDArray[np.uint8], timestamps: npt.NDArray[np.int64], tags: npt.NDArray[np.int64],
) -> int:
    """As :func:`read_heads`, with whole records in the window: those of ``topics`` are LEFT_OUT.

    With ``wants_tags`` the hash of each one's tag entry goes to ``tags``, −1 for none.
    """
    cdef Column column = Column(positions, sizeof(int64_t))
    cdef Room fate_room = Room(fates, sizeof(uint8_t)), time_room = Room(timestamps, sizeof(int64_t))
    cdef Room tag_room = Room(tags, sizeof(int64_t))
    cdef bytes topic
    cdef list blocks = []
    cdef Window window
    cdef Looked looked
    cdef Unwanted unwanted
    see_window(&window, region, start, filled, limit, base)
    require_facts(&looked, column, number, fate_room, time_room, tag_room)
    unwanted.tags, unwanted.topic_count = wants_tags, 0
    unwanted.topics = <Text *>take(blocks, len(topics), sizeof(Text))
    unwanted.keys.offsets = <int64_t *>take(blocks, MAXIMUM_PIECES, sizeof(int64_t))
    unwanted.keys.hashes = <int32_t *>take(blocks, MAXIMUM_PIECES, sizeof(int32_t))
    for topic in topics:
        unwanted.topics[unwanted.topic_count] = text_of(topic)
        unwanted.topic_count += 1
    with nogil:
        number = look(window, looked, number, &unwanted)
    return number
