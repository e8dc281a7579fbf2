"""Index files as a whole: checks of their structure, the range that they cover, and writing (store-format §3.4, §3.5).

Slots and pointers follow from the hashes of the entries and the slot count. Neither count is written in the file, so a
candidate is tested by recomputing: in the order of entries, each must point to the entry that its slot had before, and
in the end the slots must be those of the file. The broker's own files satisfy this, and compacted ones too; a wrong
candidate fails within a few entries.

A broker may add further entries meanwhile: first the entry, then its slot, then the header's count. So slots may point
to entries after those that are checked; their pointers lead down to the checked ones.
"""

import contextlib
import mmap

cimport cython
from libc.stdint cimport INT32_MAX, int8_t, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memset

from protocol.kernels.memory cimport __builtin_prefetch, load_i32, load_i64, store_i32, store_i64
from storage.kernels.region cimport Column, Region, Room, take


cdef Room zeroed_heads(int64_t slots):
    """A newest entry for each slot, none yet, in memory that lies in large pages where there are any."""
    memory = mmap.mmap(-1, slots * sizeof(int32_t), mmap.MAP_PRIVATE)
    with contextlib.suppress(OSError):  # a kernel without them
        memory.madvise(mmap.MADV_HUGEPAGE)
    return Room(memoryview(memory).cast("i"), sizeof(int32_t))


cdef int require_growth(int64_t known, int64_t entries, int64_t capacity) except -1:
    if not 0 <= known <= entries <= capacity:
        raise ValueError(f"entries {known} to {entries} of a file that has room for {capacity}")
    return 0


# --- Slots and pointers ---


def check_structure(Region region not None, int64_t slots, int64_t entries) -> int:
    """0 if slots and pointers of the file are what its hashes make of them, else the number of the first bad entry.

    A bad slot counts as entry ``entries + 1 + slot``.
    """
    cdef IndexView view
    cdef Room room
    cdef int32_t *heads
    cdef int64_t slot, bad
    view_index(&view, region, slots, entries)
    room = zeroed_heads(slots)
    heads = <int32_t *>room.items
    with nogil:
        bad = first_bad_entry(view.first_entry + ENTRY_BYTES, 1, entries, slots, heads)
        slot = 0
        while bad == 0 and slot < slots:
            if newest_in(&view, slot) != heads[slot]:
                bad = entries + 1 + slot
            slot += 1
    return bad


cdef int64_t newest_among(const IndexView *view, int64_t slot, int64_t entries) noexcept nogil:
    """The newest of the first ``entries`` in a slot, whatever was put into it later; −1 where the way there is broken.

    As many entries as the view has fit the file. Entries that came later are of this slot, and physical offsets do not
    fall.
    """
    cdef int64_t number = newest_in(view, slot)
    cdef Entry entry
    while number > entries:
        if number > view.entries:
            return -1
        entry = entry_at(view, number)
        if entry.key_hash < 0 or slot_of(entry.key_hash, view.slots, view.inverse) != slot or entry.previous >= number:
            return -1
        if entry.physical_offset < entry_at(view, entries).physical_offset:
            return -1
        number = entry.previous
    return number if number >= 0 else -1


def check_growing_structure(Region region not None, int64_t slots, int64_t entries, int64_t capacity) -> int:
    """As :func:`check_structure` for the first ``entries`` of a file that grows; up to ``capacity`` fit it."""
    cdef IndexView view
    cdef Room room
    cdef int32_t *heads
    cdef int64_t slot, bad
    require_growth(0, entries, capacity)
    view_index(&view, region, slots, capacity)
    room = zeroed_heads(slots)
    heads = <int32_t *>room.items
    with nogil:
        bad = first_bad_entry(view.first_entry + ENTRY_BYTES, 1, entries, slots, heads)
        slot = 0
        while bad == 0 and slot < slots:
            if newest_among(&view, slot, entries) != heads[slot]:
                bad = entries + 1 + slot
            slot += 1
    return bad


cdef bint is_grown_well(
    const IndexView *view, int64_t known, int64_t entries, int64_t number, int8_t *reached
) noexcept nogil:
    """Whether one entry behind the ``known`` ones holds together with those around it; notes what it points to."""
    cdef Entry entry = entry_at(view, number)
    cdef int64_t slot
    if entry.key_hash < 0 or entry.previous < 0 or entry.previous >= number:
        return False
    if number > 1 and entry.physical_offset < entry_at(view, number - 1).physical_offset:
        return False
    slot = slot_of(entry.key_hash, view.slots, view.inverse)
    if not reached[number - known - 1] and newest_among(view, slot, entries) != number:
        return False
    if entry.previous > 0:
        if slot_of(entry_at(view, entry.previous).key_hash, view.slots, view.inverse) != slot:
            return False
        if entry.previous > known:
            reached[entry.previous - known - 1] = 1
    return True


def check_growth(Region region not None, int64_t slots, int64_t known, int64_t entries, int64_t capacity) -> int:
    """0 if entries ``known`` + 1 to ``entries`` hold together with those before, else the number of a bad one.

    Physical offsets must not fall. Each entry must be the newest of its slot or be pointed at by a later one, and the
    last pointer of each chain lead to a known entry of its slot, or nowhere. Up to ``capacity`` entries fit the file.
    """
    cdef IndexView view
    cdef Room room
    cdef int64_t number = entries
    require_growth(known, entries, capacity)
    view_index(&view, region, slots, capacity)
    room = Room(bytearray(entries - known), sizeof(int8_t))
    with nogil:
        while number > known and is_grown_well(&view, known, entries, number, <int8_t *>room.items):
            number -= 1
    return number if number > known else 0


# --- What entries cover ---


cdef struct Gap:
    int64_t start
    int64_t stop

cdef struct Span:
    int64_t minimum
    int64_t maximum
    bint ascending


@cython.final
cdef class EntrySpan:
    """What entries cover of the log; all 0 without any."""

    cdef readonly int64_t minimum  # The smallest physical offset.
    cdef readonly int64_t maximum  # The largest.
    cdef readonly bint ascending  # Whether they never fall.
    # Physical offsets of neighbours more than GAP_BYTES apart, as far as they were asked for.
    cdef readonly list[tuple[int, int]] gaps
    cdef readonly int64_t gap_count  # How many of those there are.

    def __cinit__(self, int64_t minimum, int64_t maximum, bint ascending, list gaps, int64_t gap_count):
        self.minimum, self.maximum, self.ascending = minimum, maximum, ascending
        self.gaps, self.gap_count = gaps, gap_count


@cython.final
cdef class CompactedSpan:
    """What the entries of a compacted file cover."""

    # The number of the first entry that does not lie slot by slot, 0 for none; with any the rest is undefined.
    cdef readonly int64_t bad
    cdef readonly int64_t minimum  # The smallest physical offset.
    cdef readonly int64_t maximum  # The largest.
    cdef readonly bint ascending  # Whether they never fall along a chain.

    def __cinit__(self, int64_t bad, int64_t minimum, int64_t maximum, bint ascending):
        self.bad, self.minimum, self.maximum, self.ascending = bad, minimum, maximum, ascending


cdef int64_t find_gaps(const IndexView *view, int64_t before, Span *span, Gap *gaps, int64_t room) noexcept nogil:
    """Measure the entries behind the first ``before`` ones; how many gaps there are, of which ``room`` are noted."""
    cdef const uint8_t *at = view.first_entry + ENTRY_BYTES * (before + 1) + ENTRY_OFFSET
    cdef const uint8_t *stop = view.first_entry + ENTRY_BYTES * (view.entries + 1)
    cdef int64_t minimum = load_i64(at), previous = minimum, maximum = minimum, count = 0, physical_offset
    cdef bint ascending = True
    at += ENTRY_BYTES
    while at < stop:
        physical_offset = load_i64(at)
        if physical_offset < previous:
            ascending = False
            minimum, maximum = min(minimum, physical_offset), max(maximum, previous)
        elif <uint64_t>physical_offset - <uint64_t>previous > GAP_BYTES:  # they may be any numbers
            if count < room:
                gaps[count].start, gaps[count].stop = previous, physical_offset
            count += 1
        previous = physical_offset
        at += ENTRY_BYTES
    span.minimum, span.maximum, span.ascending = minimum, max(maximum, previous), ascending
    return count


def measure_entries(
    Region region not None, int64_t slots, int64_t before, int64_t entries, int64_t most_gaps,
) -> EntrySpan:
    """What the entries from ``before`` + 1 to ``entries`` cover; up to ``most_gaps`` gaps are listed."""
    cdef IndexView view
    cdef Span span
    cdef list blocks = []
    cdef Gap *gaps
    cdef int64_t count = 0
    view_index(&view, region, slots, entries)
    if not 0 <= before <= entries or most_gaps < 0:
        raise ValueError(f"{most_gaps} gaps among entries {before} to {entries}")
    most_gaps = min(most_gaps, entries - before)
    gaps = <Gap *>take(blocks, most_gaps, sizeof(Gap))
    span.minimum, span.maximum, span.ascending = 0, 0, True
    if entries > before:
        with nogil:
            count = find_gaps(&view, before, &span, gaps, most_gaps)
    listed = [(gaps[i].start, gaps[i].stop) for i in range(min(count, most_gaps))]
    return EntrySpan(span.minimum, span.maximum, span.ascending, listed, count)


cdef int64_t measure_slot_by_slot(
    const IndexView *view, int64_t start, Span *span, int64_t *lowest, int64_t *highest, int64_t rows
) noexcept nogil:
    """As :func:`measure_compacted`; the number of the first entry that does not lie so, 0 for none."""
    cdef int64_t number, row, before = 0
    cdef Entry entry
    for number in range(1, view.entries + 1):
        entry = entry_at(view, number)
        if entry.previous != 0 and entry.previous != number - 1:
            return number
        if number > 1 and entry.previous != 0 and entry.physical_offset < before:
            span.ascending = False
        if number == 1:
            span.minimum = span.maximum = entry.physical_offset
        span.minimum = min(span.minimum, entry.physical_offset)
        span.maximum = max(span.maximum, entry.physical_offset)
        before = entry.physical_offset
        if entry.physical_offset >= start:
            row = (entry.physical_offset - start) / STRETCH_BYTES
            if row < rows:
                if lowest[row] == NO_ENTRY or entry.physical_offset < lowest[row]:
                    lowest[row] = entry.physical_offset
                if entry.physical_offset > highest[row]:
                    highest[row] = entry.physical_offset
    return 0


def measure_compacted(
    Region region not None, int64_t slots, int64_t entries, int64_t start, lowest: npt.NDArray[np.int64],
    highest: npt.NDArray[np.int64],
) -> CompactedSpan:
    """Measure entries that should lie slot by slot: each points to none, or to the one right before it.

    ``lowest`` and ``highest`` get at i the lowest and the highest physical offset from ``start`` + i · STRETCH_BYTES
    on, NO_ENTRY without any; entries before and behind all of these stretches have none.
    """
    cdef Room lowest_room = Room(lowest, sizeof(int64_t)), highest_room = Room(highest, sizeof(int64_t))
    cdef int64_t *low = <int64_t *>lowest_room.items
    cdef int64_t *high = <int64_t *>highest_room.items
    cdef int64_t row, rows = lowest_room.count, bad
    cdef IndexView view
    cdef Span span
    view_index(&view, region, slots, entries)
    if start < 0 or highest_room.count != rows:
        raise ValueError(f"{rows} and {highest_room.count} stretches from offset {start} on")
    span.minimum, span.maximum, span.ascending = 0, 0, True
    with nogil:
        for row in range(rows):
            low[row] = high[row] = NO_ENTRY
        bad = measure_slot_by_slot(&view, start, &span, low, high, rows)
    return CompactedSpan(bad, span.minimum, span.maximum, span.ascending)


# --- Files of which some bytes are wrong: counts by majority, what exactly is wrong ---


cdef double explained(const IndexView *view, int32_t *heads) noexcept nogil:
    """As :func:`share_explained`; ``heads`` are zeroed."""
    cdef int64_t good = 0, total = view.entries, number, slot
    cdef Entry entry
    cdef int32_t newest
    for number in range(1, view.entries + 1):
        entry = entry_at(view, min(number + AHEAD, view.entries))
        __builtin_prefetch(heads + slot_of(entry.key_hash, view.slots, view.inverse))
        entry = entry_at(view, number)
        if entry.key_hash >= 0:
            slot = slot_of(entry.key_hash, view.slots, view.inverse)
            good += entry.previous == heads[slot]
            heads[slot] = <int32_t>number
    for slot in range(view.slots):
        newest = newest_in(view, slot)
        if newest != 0 or heads[slot] != 0:
            total += 1
            good += newest == heads[slot]
    return <double>good / <double>total if total > 0 else 0.0


def share_explained(Region region not None, int64_t slots, int64_t entries) -> float:
    """The share of a file's pointers and used slots that a slot count explains."""
    cdef IndexView view
    cdef Room heads
    cdef double share
    view_index(&view, region, slots, entries)
    heads = zeroed_heads(slots)
    with nogil:
        share = explained(&view, <int32_t *>heads.items)
    return share


cdef bint may_have_slots(const uint8_t *data, int64_t slots, int64_t entries) noexcept nogil:
    """Whether a slot count explains the pointers of most of a file's first entries."""
    cdef const uint8_t *first = data + INDEX_HEADER + SLOT_BYTES * slots
    cdef int64_t looked_at = min(entries, QUICK_ENTRIES), failures = 0, number, before, expected
    cdef Entry entry
    cdef int32_t other
    for number in range(1, looked_at + 1):
        entry = read_entry(first + ENTRY_BYTES * number)
        expected = 0
        before = number - 1 if entry.key_hash >= 0 else 0
        while before > 0 and expected == 0:
            other = load_i32(first + ENTRY_BYTES * before)
            if other >= 0 and other % <int32_t>slots == entry.key_hash % <int32_t>slots:
                expected = before
            before -= 1
        if entry.key_hash < 0 or entry.previous != expected:
            failures += 1
            if failures > QUICK_FAILURES or 2 * failures > looked_at:
                return False
    return True


def next_slot_count(Region region not None, int64_t slots, int64_t last_data) -> int:
    """The smallest slot count from ``slots`` on that explains the pointers of most of the first entries; 0 for none.

    ``last_data`` is the position of the file's last byte that is not zero; it must lie in the last entry, which the
    region must hold.
    """
    cdef int64_t entries, found = 0
    if slots < 1 or last_data < 0 or last_data > region.size - ENTRY_BYTES:
        raise ValueError(f"{slots} slots, and a last byte at {last_data} of a region of {region.size} bytes")
    with nogil:
        while slots <= INT32_MAX:
            entries = (last_data - INDEX_HEADER - SLOT_BYTES * slots) / ENTRY_BYTES
            if entries < 1:
                break
            if may_have_slots(region.data, slots, entries):
                found = slots
                break
            slots += 1
    return found


cdef struct Wrong:
    int kind
    int64_t number
    int64_t expected
    int64_t found

cdef struct Wrongs:
    Wrong *noted
    int64_t room
    int64_t count


@cython.final
cdef class WrongPointer:
    """A slot or pointer that does not follow from the hashes."""

    cdef readonly int kind  # BAD_POINTER or BAD_SLOT.
    cdef readonly int64_t number  # The number of the entry, or of the slot.
    cdef readonly int64_t expected  # The entry it should point to.
    cdef readonly int64_t found  # The entry it points to.

    def __cinit__(self, int kind, int64_t number, int64_t expected, int64_t found):
        self.kind, self.number, self.expected, self.found = kind, number, expected, found


@cython.final
cdef class PointerCheck:
    """What came of recomputing slots and pointers."""

    cdef readonly int64_t wrong  # How many are wrong.
    cdef readonly int64_t used  # How many slots are in use.
    cdef readonly list[WrongPointer] noted  # The first of the wrong ones, as many as were asked for.

    def __cinit__(self, int64_t wrong, int64_t used, list noted):
        self.wrong, self.used, self.noted = wrong, used, noted


cdef void note_wrong(Wrongs *wrongs, int kind, int64_t number, int64_t expected, int64_t found) noexcept nogil:
    """Note a wrong slot or pointer if there is room."""
    cdef Wrong *wrong
    if wrongs.count < wrongs.room:
        wrong = wrongs.noted + wrongs.count
        wrong.kind, wrong.number, wrong.expected, wrong.found = kind, number, expected, found
    wrongs.count += 1


cdef int64_t newest_below(const IndexView *view, int64_t slot, int64_t number, int64_t entries) noexcept nogil:
    """What a slot held before the entries behind ``entries`` were put; an entry of another slot ends its chain.

    So no entry is passed for two slots, whatever the pointers say.
    """
    cdef Entry entry
    while number > entries:
        entry = entry_at(view, number)
        if entry.previous >= number or slot_of(entry.key_hash, view.slots, view.inverse) != slot:
            return number
        number = entry.previous
    return number


cdef int64_t recompute(
    const IndexView *view, int64_t entries, const int64_t *numbers, const int32_t *true_hashes, int64_t fixes,
    int32_t *heads, Wrongs *wrongs,
) noexcept nogil:
    """As :func:`check_pointers`; how many slots are in use. As many entries as the view has may be in slots."""
    cdef int64_t fixed = 0, used = 0, number, slot, found
    cdef Entry entry
    for number in range(1, entries + 1):
        entry = entry_at(view, min(number + AHEAD, entries))
        __builtin_prefetch(heads + slot_of(entry.key_hash, view.slots, view.inverse))
        entry = entry_at(view, number)
        while fixed < fixes and numbers[fixed] < number:
            fixed += 1
        if fixed < fixes and numbers[fixed] == number:
            entry.key_hash = true_hashes[fixed]
        if entry.key_hash < 0:
            continue
        slot = slot_of(entry.key_hash, view.slots, view.inverse)
        if entry.previous != heads[slot]:
            note_wrong(wrongs, BAD_POINTER, number, heads[slot], entry.previous)
        heads[slot] = <int32_t>number
    for slot in range(view.slots):
        used += heads[slot] != 0
        found = newest_in(view, slot)
        if entries < found <= view.entries:
            found = newest_below(view, slot, found, entries)
        if found != heads[slot]:
            note_wrong(wrongs, BAD_SLOT, slot, heads[slot], found)
    return used


def check_pointers(
    Region region not None, int64_t slots, int64_t entries, int64_t written, numbers: npt.NDArray[np.int64],
    true_hashes: npt.NDArray[np.int32], int64_t most,
) -> PointerCheck:
    """Recompute slots and pointers, and note up to ``most`` wrong ones.

    ``numbers`` (ascending) are entries whose hash in the file is wrong, ``true_hashes`` theirs. ``written`` is
    ``entries``, or above it for a file that grows: slots may then point to newer entries up to there.
    """
    cdef Column number_column = Column(numbers, sizeof(int64_t)), hash_column = Column(true_hashes, sizeof(int32_t))
    cdef IndexView view
    cdef Wrongs wrongs
    cdef list blocks = []
    cdef Room heads
    cdef int64_t used
    require_growth(0, entries, written)
    view_index(&view, region, slots, written)
    if number_column.count != hash_column.count or most < 0:
        raise ValueError(f"{hash_column.count} hashes of {number_column.count} entries, {most} wrong ones to be noted")
    heads = zeroed_heads(slots)
    most = min(most, entries + slots)
    wrongs.room, wrongs.count = most, 0
    wrongs.noted = <Wrong *>take(blocks, most, sizeof(Wrong))
    with nogil:
        used = recompute(
            &view, entries, <const int64_t *>number_column.items, <const int32_t *>hash_column.items,
            number_column.count, <int32_t *>heads.items, &wrongs,
        )
    most = min(most, wrongs.count)
    noted = [WrongPointer(each.kind, each.number, each.expected, each.found) for each in wrongs.noted[:most]]
    return PointerCheck(wrongs.count, used, noted)


# --- Building: entry by entry as a broker puts them, or slot by slot ---


def slot_number(int32_t key_hash, int32_t slots) -> int:
    """The slot of a hash, 0 at least: its remainder by the number of slots."""
    if key_hash < 0 or slots < 1:
        raise ValueError(f"hash {key_hash} among {slots} slots")
    return slot_of(key_hash, slots, 1.0 / slots)


def seconds_between(int64_t begin, int64_t timestamp) -> int:
    """Whole seconds between two store times (ms) as an entry holds them: never below 0, and 0 where there is no begin.

    This is the time difference that a broker writes (store-format §3.5).
    """
    return whole_seconds(begin, timestamp)


cdef inline void write_entry(
    uint8_t *at, int32_t key_hash, int64_t physical_offset, int64_t seconds, int64_t previous
) noexcept nogil:
    store_i32(at, key_hash)
    store_i64(at + ENTRY_OFFSET, physical_offset)
    store_i32(at + ENTRY_SECONDS, <int32_t>seconds)
    store_i32(at + ENTRY_PREVIOUS, <int32_t>previous)


cdef int require_room(Room memory, int64_t slots, int64_t entries) except -1:
    """Raise ValueError unless a file of so many slots and entries, one of which is never used, fits some memory."""
    if slots < 1 or slots > INT32_MAX or entries < 1 or entries > INT32_MAX:
        raise ValueError(f"an index file of {slots} slots and {entries} entries holds nothing, or too much")
    if INDEX_HEADER + SLOT_BYTES * slots + ENTRY_BYTES * entries > memory.count:
        raise ValueError(f"{slots} slots and {entries} entries do not fit {memory.count} bytes")
    return 0


cdef struct Put:  # Entries to be put: columns of their records and hashes.
    const int64_t *offsets
    const int64_t *timestamps
    const int64_t *stops
    const int32_t *hashes
    int64_t record
    int64_t entry
    int64_t stop


@cython.final
cdef class IndexWriter:
    """Puts entries into an index file in memory as a broker does, and keeps the numbers of its header.

    For one thread at a time: `put` raises RuntimeError while another thread is in it.
    """

    cdef Room _memory
    cdef int64_t _slots
    cdef int64_t _entries
    cdef bint _is_claimed  # By a thread that is just using it.
    cdef readonly int64_t begin_timestamp  # Store time of the first entry's record, ms.
    cdef readonly int64_t end_timestamp  # Store time of the last entry's record, ms.
    cdef readonly int64_t begin_physical_offset  # Where the first entry's record lies.
    cdef readonly int64_t end_physical_offset  # Where the last entry's record lies.
    cdef readonly int64_t slot_count  # Slots that are not empty.
    cdef readonly int64_t index_count  # Entries, and one.

    def __cinit__(
        self, memory: WriteableBuffer, int64_t slots, int64_t entries, int64_t timestamp, int64_t physical_offset,
    ) -> None:
        """Write to zeroed memory; one of the ``entries`` is never used.

        ``timestamp`` (ms) and ``physical_offset`` are those with which the file before it ends.
        """
        self._memory = Room(memory, 1)
        require_room(self._memory, slots, entries)
        self._slots, self._entries = slots, entries
        self.begin_timestamp = self.end_timestamp = timestamp
        self.begin_physical_offset = self.end_physical_offset = physical_offset
        self.index_count = 1

    def put(
        self, offsets: npt.NDArray[np.int64], timestamps: npt.NDArray[np.int64], stops: npt.NDArray[np.int64],
        hashes: npt.NDArray[np.int32], int64_t first_entry, int64_t count,
    ) -> None:
        """Put ``count`` entries of some records, from one on.

        Of each record there are its physical offset, its store time (ms) and the number before which its entries end.
        Raises ValueError for columns that do not fit together, or more entries than there are or there is room for.
        """
        cdef Column offset_column = Column(offsets, sizeof(int64_t)), time_column = Column(timestamps, sizeof(int64_t))
        cdef Column stop_column = Column(stops, sizeof(int64_t)), hash_column = Column(hashes, sizeof(int32_t))
        cdef int64_t records = stop_column.count
        cdef Put put
        put.offsets, put.timestamps = <const int64_t *>offset_column.items, <const int64_t *>time_column.items
        put.stops, put.hashes = <const int64_t *>stop_column.items, <const int32_t *>hash_column.items
        put.record, put.entry, put.stop = 0, first_entry, first_entry + count
        if offset_column.count != records or time_column.count != records:
            raise ValueError(f"columns are not all of length {records}")
        if hash_column.count != (put.stops[records - 1] if records else 0):
            raise ValueError(f"{hash_column.count} hashes for {put.stops[records - 1] if records else 0} entries")
        if first_entry < 0 or count < 0 or count > hash_column.count - first_entry:
            raise ValueError(f"entries {first_entry} to {first_entry + count} of {hash_column.count}")
        if count > self._entries - self.index_count:
            raise ValueError(f"{count} entries for a file that has room for {self._entries - self.index_count}")
        if self._is_claimed:
            raise RuntimeError("an IndexWriter is for one thread, and another one is just using it")
        self._is_claimed = True
        with nogil:
            while put.record < records and put.stops[put.record] <= first_entry:
                put.record += 1
            put_entries(self, &put)
        self._is_claimed = False


cdef void put_entries(IndexWriter file, Put *put) noexcept nogil:
    """Put entries as a broker does, one after the other; the last number of ``put.stops`` is beyond them."""
    cdef uint8_t *first_slot = <uint8_t *>file._memory.items + INDEX_HEADER
    cdef int64_t slots = file._slots, number = file.index_count, used = file.slot_count, last = put.stop - 1
    cdef int64_t stop, seconds, timestamp, physical_offset, i
    cdef double inverse = 1.0 / slots
    cdef uint8_t *target = first_slot + SLOT_BYTES * slots + ENTRY_BYTES * number
    cdef uint8_t *slot
    cdef int32_t previous
    while put.entry < put.stop:
        physical_offset, timestamp = put.offsets[put.record], put.timestamps[put.record]
        stop = min(put.stops[put.record], put.stop)
        seconds = whole_seconds(file.begin_timestamp, timestamp)
        for i in range(put.entry, stop):
            __builtin_prefetch(first_slot + SLOT_BYTES * slot_of(put.hashes[min(i + AHEAD, last)], slots, inverse))
            slot = first_slot + SLOT_BYTES * slot_of(put.hashes[i], slots, inverse)
            previous = load_i32(slot)
            store_i32(slot, <int32_t>number)
            write_entry(target, put.hashes[i], physical_offset, seconds, previous)
            if number == 1:
                # Only now: the first entry's time counts from the seed, and readers have to live with it (§3.5).
                file.begin_timestamp, file.begin_physical_offset = timestamp, physical_offset
                seconds = 0
            used += previous == 0
            number += 1
            target += ENTRY_BYTES
        file.end_timestamp, file.end_physical_offset = timestamp, physical_offset
        put.entry = max(put.entry, stop)
        put.record += 1
    file.index_count, file.slot_count = number, used


cdef int64_t finish_slots(uint8_t *first_slot, uint8_t *first_entry) noexcept nogil:
    """Let each slot point to its last entry, and its first entry to none; how many slots have entries."""
    cdef int64_t used = 0, first = 1, behind
    cdef uint8_t *slot = first_slot
    while slot < first_entry:
        behind = load_i32(slot)
        if behind > first:
            store_i32(first_entry + ENTRY_BYTES * first + ENTRY_PREVIOUS, 0)
            store_i32(slot, <int32_t>(behind - 1))
            used += 1
        else:
            store_i32(slot, 0)
        first = behind
        slot += SLOT_BYTES
    return used


cdef void reserve_places(uint8_t *first_slot, int64_t slots, const int32_t *hashes, int64_t count) noexcept nogil:
    """Let each slot hold the number of its first entry, as if all lay slot by slot."""
    cdef double inverse = 1.0 / slots
    cdef int64_t i, number = 1
    cdef int32_t in_slot
    cdef uint8_t *slot
    memset(first_slot, 0, SLOT_BYTES * slots)  # what is counted here decides where entries are written
    for i in range(count):
        __builtin_prefetch(first_slot + SLOT_BYTES * slot_of(hashes[min(i + AHEAD, count - 1)], slots, inverse))
        slot = first_slot + SLOT_BYTES * slot_of(hashes[i], slots, inverse)
        store_i32(slot, load_i32(slot) + 1)
    for i in range(slots):
        in_slot = load_i32(first_slot + SLOT_BYTES * i)
        store_i32(first_slot + SLOT_BYTES * i, <int32_t>number)
        number += in_slot


cdef int64_t place_slot_by_slot(
    uint8_t *file, int64_t slots, const int32_t *hashes, const int64_t *offsets, const int64_t *timestamps,
    int64_t count, int64_t begin,
) noexcept nogil:
    """As :func:`place_entries`. Until the end a slot holds where its next entry goes."""
    cdef uint8_t *first_slot = file + INDEX_HEADER
    cdef uint8_t *first_entry = first_slot + SLOT_BYTES * slots
    cdef uint8_t *slot
    cdef double inverse = 1.0 / slots
    cdef int64_t i, number, last = count - 1
    reserve_places(first_slot, slots, hashes, count)
    for i in range(count):
        __builtin_prefetch(first_slot + SLOT_BYTES * slot_of(hashes[min(i + 2 * AHEAD, last)], slots, inverse))
        slot = first_slot + SLOT_BYTES * slot_of(hashes[min(i + AHEAD, last)], slots, inverse)
        __builtin_prefetch(first_entry + ENTRY_BYTES * <int64_t>load_i32(slot))
        slot = first_slot + SLOT_BYTES * slot_of(hashes[i], slots, inverse)
        number = load_i32(slot)
        store_i32(slot, <int32_t>(number + 1))
        write_entry(
            first_entry + ENTRY_BYTES * number, hashes[i], offsets[i], whole_seconds(begin, timestamps[i]), number - 1
        )
    return finish_slots(first_slot, first_entry)


def place_entries(
    memory: WriteableBuffer, int64_t slots, hashes: npt.NDArray[np.int32], offsets: npt.NDArray[np.int64],
    timestamps: npt.NDArray[np.int64], int64_t count, int64_t begin_timestamp,
) -> int:
    """Write the first ``count`` entries slot by slot into a file in zeroed memory; how many slots are in use.

    Their seconds count from ``begin_timestamp`` as a broker counts them: those of entries stored before it are 0.
    Within a slot they keep their order, and each but the first points to the one right before it.
    """
    cdef Room room = Room(memory, 1)
    cdef Column hash_column = Column(hashes, sizeof(int32_t))
    cdef Column offset_column = Column(offsets, sizeof(int64_t)), time_column = Column(timestamps, sizeof(int64_t))
    cdef int64_t used
    if not 0 <= count <= min(hash_column.count, offset_column.count, time_column.count):
        raise ValueError(f"{count} entries of columns that hold {hash_column.count}")
    require_room(room, slots, count + 1)
    with nogil:
        used = place_slot_by_slot(
            <uint8_t *>room.items, slots, <const int32_t *>hash_column.items, <const int64_t *>offset_column.items,
            <const int64_t *>time_column.items, count, begin_timestamp,
        )
    return used
