"""One query, one call: walk the chains of a key in every index file, check each record, copy the hits out.

The index is only a hint. An entry proposes a physical offset; what lies there counts only if it is an intact record
whose topic, key (or unique key, or tag) and store time match, so hash collisions, whole seconds, wild pointers and
stale entries can neither hide nor invent a message. A chain may only go down, which bounds every walk by the number
of entries.
"""

cimport cython
from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memmove, memset

from protocol.kernels.memory cimport __ATOMIC_RELAXED, __atomic_load_n, __atomic_store_n, __builtin_prefetch
from storage.kernels.indexes cimport ENTRY_BYTES, INDEX_HEADER, SLOT_BYTES, Entry, newest_in, read_entry, slot_of
from storage.kernels.records cimport (
    COLD,
    SPACE,
    Indexed,
    Record,
    Text,
    check_checksums,
    find_indexed,
    is_batch,
    is_packed_batch,
    next_inner,
    split_off,
    store_timestamp_at,
    text_of,
)
from storage.kernels.store_view cimport (
    CACHE_LINE,
    FileView,
    IndexFileView,
    Run,
    Segment,
    StoreView,
    find_segment,
    is_hot,
    is_known_damage,
    locate_in,
)


cdef enum:
    # Steps after which a chain's next entries are fetched ahead: a hot tag's chain would else wait at each for memory.
    # The unlucky key of `benchmarks`, whose chain has 143,000 entries, is found in 5.7 ms so, in 19.4 ms without, in 6.9
    # with 1,024 bytes ahead and in 6.0 with 16,384; a chain counts as long from 64 or from 256 on alike.
    LONG_CHAIN = 64
    AHEAD_BYTES = 4096
    # Entries of one hash in a row that are worth a shortcut. Less than the lane's STEPS_A_QUERY, with LONG_CHAIN: so it
    # is the lane that answers, however many entries come to a chain.
    LONG_ROW = 256
    PAIR_SHIFT = 25  # From a product of 32 bits to a pair of cells: half as many pairs as SHORTCUTS.
    # What became of a record that an entry proposes, if it did not match.
    NO_MATCH = 0
    NO_RECORD = -2  # None starts there although the log has that place.
    NOT_INTACT = -3  # It would match, but its checksums are wrong. Other than COLD.


# --- One record ---


cdef inline bint is_same(const Text *stored, const Text *asked) noexcept nogil:
    """Whether a text is there and equal to another one."""
    return (
        stored.start != NULL
        and stored.length == asked.length
        and memcmp(stored.start, asked.start, asked.length) == 0
    )


cdef bint has_piece(Text keys, const Text *key) noexcept nogil:
    """Whether one of the space-separated pieces of KEYS is the key."""
    cdef Text piece
    if key.length == 0:
        return False
    while keys.length >= key.length:
        piece = split_off(&keys, SPACE)
        if is_same(&piece, key):
            return True
    return False


cdef bint matches_key(const Record *record, const Query *query) noexcept nogil:
    """Whether a record's properties carry the key in the way that the kind of query asks for."""
    cdef Indexed indexed
    find_indexed(record, &indexed)
    if query.kind == KIND_TAG:
        return is_same(&indexed.tags, &query.key)
    if query.kind != KIND_KEY and is_same(&indexed.unique_key, &query.key):
        return True
    return query.kind != KIND_UNIQUE and has_piece(indexed.keys, &query.key)


cdef bint matches_inner(const Record *record, const Query *query) noexcept nogil:
    """Whether a message of a batch carries the key; one that is compressed as a whole may, as the entry says."""
    cdef Record inner = record[0]
    cdef const uint8_t *at = record.body.start
    cdef const uint8_t *end = at + record.body.length
    if is_packed_batch(record):
        return True
    while next_inner(&inner, &at, end):
        if matches_key(&inner, query):
            return True
    return False


cdef int64_t match_record(
    const Segment *segment, const Query *query, int64_t physical_offset, int64_t tick, Record *record, ColdBytes *cold
) noexcept nogil:
    """Size of the record at a place of a segment if it is intact and matches the query; or else a code from above."""
    cdef int64_t size = locate_in(segment, physical_offset, 0, tick, record, cold), stored
    if size < 0:
        return COLD if size == COLD else NO_RECORD
    if not is_same(&record.topic, &query.topic):
        return NO_MATCH
    if query.kind != KIND_UNIQUE:
        stored = store_timestamp_at(record.start)
        if stored < query.begin_timestamp or stored > query.end_timestamp:
            return NO_MATCH
    if not matches_key(record, query) and not (is_batch(record.start) and matches_inner(record, query)):
        return NO_MATCH
    return size if check_checksums(record) > 0 else NOT_INTACT


# --- The hits ---


cdef inline bint is_full(const Query *query, const Lookup *lookup) noexcept nogil:
    """Whether no further hit fits: there is one more than wanted."""
    return lookup.count > query.maximum


cdef inline bint is_too_old(const Query *query, const Lookup *lookup, int64_t physical_offset) noexcept nogil:
    """Whether a hit at an offset would not be among the newest any more."""
    return is_full(query, lookup) and physical_offset < lookup.hits[lookup.count - 1].physical_offset


cdef inline int64_t place_of(const Lookup *lookup, int64_t physical_offset) noexcept nogil:
    """Where among the hits one at an offset belongs, behind all newer ones; most come in falling order."""
    cdef int64_t place = lookup.count
    while place > 0 and lookup.hits[place - 1].physical_offset < physical_offset:
        place -= 1
    return place


cdef void keep_hit(const Query *query, Lookup *lookup, int64_t place, const Record *record) noexcept nogil:
    """Insert a hit at its place; if the hits are full the oldest one is dropped."""
    cdef Hit *hit = lookup.hits + place
    if not is_full(query, lookup):
        lookup.count += 1
    memmove(hit + 1, hit, (lookup.count - 1 - place) * sizeof(Hit))
    hit.physical_offset, hit.record, hit.size = record.physical_offset, record.start, record.size


cdef void keep_damaged(Lookup *lookup, int64_t physical_offset) noexcept nogil:
    """Note a place once, which several entries may propose."""
    cdef int64_t number
    for number in range(lookup.damaged_count):
        if lookup.damaged[number] == physical_offset:
            return
    if lookup.damaged_count < MOST_DAMAGED:
        lookup.damaged[lookup.damaged_count] = physical_offset
        lookup.damaged_count += 1


cdef int propose(const Store *store, const Query *query, int64_t physical_offset, int64_t tick, Lookup *lookup) noexcept nogil:
    """Check one proposed offset and keep it when it matches; STOPPED_COLD when its record is not in memory."""
    cdef int64_t place, size = NO_MATCH
    cdef const Segment *segment
    cdef Record record
    if physical_offset >= query.before_physical_offset or is_too_old(query, lookup, physical_offset):
        return FOUND
    place = place_of(lookup, physical_offset)
    if place > 0 and lookup.hits[place - 1].physical_offset == physical_offset:
        return FOUND
    segment = find_segment(&store.log, physical_offset)
    if segment != NULL:
        size = match_record(segment, query, physical_offset, tick, &record, &lookup.cold)
        if size > 0:
            record.physical_offset = physical_offset  # as it was when it was compared
            keep_hit(query, lookup, place, &record)
            return FOUND
        if size == COLD:
            return STOPPED_COLD
    lookup.refused += 1
    if size == NOT_INTACT:
        keep_damaged(lookup, physical_offset)
    if size == NO_RECORD and not is_known_damage(store, physical_offset):
        lookup.strays += 1
    return FOUND


# --- What proposes ---


cdef int search_run(
    const Store *store, const Query *query, const Run *run, int64_t tick, Lookup *lookup
) noexcept nogil:
    """Propose, newest first, what a run has for the query's hash."""
    cdef int64_t low = 0, high = run.count, middle
    while low < high:
        middle = (low + high) >> 1
        if run.hashes[middle] <= query.key_hash:
            low = middle + 1
        else:
            high = middle
    while low > 0 and run.hashes[low - 1] == query.key_hash:
        low -= 1
        if is_too_old(query, lookup, run.offsets[low]):
            break
        if lookup.steps <= 0:
            return STOPPED_LONG
        lookup.steps -= 1
        lookup.walked += 1
        if propose(store, query, run.offsets[low], tick, lookup) == STOPPED_COLD:
            return STOPPED_COLD
    return FOUND


cdef inline const uint8_t *fetch_ahead(
    const uint8_t *entry, const uint8_t *lowest, const uint8_t *fetched
) noexcept nogil:
    """Ask for the lines up to AHEAD_BYTES below an entry, down to `lowest`, but for `fetched` ones; the new mark.

    Chains only go down, so this is a sequential read; where hops are longer than what is fetched, nothing is.
    """
    cdef const uint8_t *target = entry - AHEAD_BYTES if entry - lowest > AHEAD_BYTES else lowest
    if entry < fetched:
        fetched = entry
    if fetched - target > 2 * AHEAD_BYTES:
        return target
    while fetched > target:
        fetched -= CACHE_LINE
        __builtin_prefetch(fetched)
    return fetched


cdef int stop_cold(Lookup *lookup, const IndexFileView *file, int64_t position, int64_t length) noexcept nogil:
    lookup.cold.file, lookup.cold.position, lookup.cold.length = &file.file, position, length
    return STOPPED_COLD


# --- Shortcuts past a chain's entries of one hash in a row, which a search for another hash need not walk again ---


cdef struct Row:
    int64_t walked  # How many entries, without those left out; 0 before the first.
    int32_t key_hash  # Of them all.
    int64_t first  # The newest,
    int64_t last  # and the oldest so far.
    uint64_t *taken  # The cell of the last shortcut in it, or NULL.


cdef inline uint64_t *pair_of(const IndexFileView *file, int64_t number) noexcept nogil:
    """The two cells, one of which has the shortcut from an entry, if it is known."""
    return file.shortcuts + 2 * (<uint32_t>(<uint32_t>number * <uint32_t>0x9E3779B1) >> PAIR_SHIFT)


cdef void note_row(const IndexFileView *file, const Row *row) noexcept nogil:
    """Note where a row leads if it was long, in place of a shortcut in it, or of that from the pair's older entry."""
    cdef uint64_t *pair
    if row.walked < LONG_ROW:
        return
    if row.taken != NULL:
        __atomic_store_n(row.taken, 0, __ATOMIC_RELAXED)
    pair = pair_of(file, row.first)
    if __atomic_load_n(pair, __ATOMIC_RELAXED) > __atomic_load_n(pair + 1, __ATOMIC_RELAXED):
        pair += 1
    __atomic_store_n(pair, <uint64_t>row.first << 32 | <uint64_t>row.last, __ATOMIC_RELAXED)


cdef inline void add_to_row(const IndexFileView *file, Row *row, int64_t number, int32_t key_hash) noexcept nogil:
    """Put the next entry of a chain into the row, or into a new one where its hash is another."""
    if row.walked == 0 or key_hash != row.key_hash:
        note_row(file, row)
        row.walked, row.key_hash, row.first, row.taken = 0, key_hash, number, NULL
    row.walked += 1
    row.last = number


cdef inline int64_t take_shortcut(const IndexFileView *file, Row *row, int64_t number) noexcept nogil:
    """An entry further down, of the row's hash as all are that lead from this one to it; or 0."""
    cdef uint64_t *cell = pair_of(file, number)
    cdef uint64_t *stop = cell + 2
    cdef uint64_t known
    while cell < stop:
        known = __atomic_load_n(cell, __ATOMIC_RELAXED)
        if <int64_t>(known >> 32) == number:
            row.taken = cell
            return <uint32_t>known
        cell += 1
    return 0


cdef int walk_chain(
    const Store *store, const Query *query, const IndexFileView *file, int64_t tick, Lookup *lookup, Row *row
) noexcept nogil:
    """Follow the chain of the query's hash in an index file, newest entry first; ``row`` ends where that ends."""
    cdef const uint8_t *first = file.view.first_entry
    cdef const uint8_t *fetched = file.file.data + file.file.size
    cdef const uint8_t *at
    cdef int64_t slot = slot_of(query.key_hash, file.view.slots, file.view.inverse)
    cdef int64_t position = INDEX_HEADER + SLOT_BYTES * slot, number, further, strays
    cdef int64_t fetch_below = lookup.steps - LONG_CHAIN
    cdef Entry entry
    if not is_hot(&file.file, position, SLOT_BYTES, tick):
        return stop_cold(lookup, file, position, SLOT_BYTES)
    number = newest_in(&file.view, slot)
    if number > file.view.entries:
        lookup.bad_pointers += 1
    while 0 < number <= file.view.entries:
        if lookup.steps <= 0:
            return STOPPED_LONG
        lookup.steps -= 1
        at = first + ENTRY_BYTES * number
        if lookup.steps < fetch_below:
            fetched = fetch_ahead(at, first, fetched)
        position = at - file.file.data
        if not is_hot(&file.file, position, ENTRY_BYTES, tick):
            return stop_cold(lookup, file, position, ENTRY_BYTES)
        lookup.walked += 1
        entry = read_entry(at)
        # The next entry comes while this one's record is checked.
        __builtin_prefetch(first + ENTRY_BYTES * <int64_t>max(entry.previous, 0))
        if entry.key_hash == query.key_hash:
            if file.ascending and is_too_old(query, lookup, entry.physical_offset):
                return FOUND
            strays = lookup.strays
            if propose(store, query, entry.physical_offset, tick, lookup) == STOPPED_COLD:
                return STOPPED_COLD
            if lookup.strays > strays:
                lookup.stray_file, lookup.stray_offset = &file.file, entry.physical_offset
        if entry.previous >= number:
            lookup.bad_pointers += 1
            return FOUND
        further = 0
        if lookup.steps < fetch_below:
            if entry.key_hash == query.key_hash:
                note_row(file, row)
                row.walked = 0
            else:
                add_to_row(file, row, number, entry.key_hash)
                further = take_shortcut(file, row, number)
        number = further if further > 0 else entry.previous
    return FOUND


cdef int search_file(
    const Store *store, const Query *query, const IndexFileView *file, int64_t tick, Lookup *lookup
) noexcept nogil:
    """Propose what an index file has for the query's hash. Wherever the walk ended, its last row may be a long one."""
    cdef Row row
    cdef int status
    memset(&row, 0, sizeof(Row))
    status = walk_chain(store, query, file, tick, lookup, &row)
    note_row(file, &row)
    return status


cdef int find_hits(const Store *store, const Query *query, int64_t tick, Lookup *lookup) noexcept nogil:
    cdef Hit *hits = lookup.hits
    cdef int64_t steps = lookup.steps, number = store.run_count
    cdef const IndexFileView *file = store.index_files
    cdef int status
    memset(lookup, 0, sizeof(Lookup))
    lookup.hits, lookup.steps = hits, steps
    while number > 0:
        number -= 1
        status = search_run(store, query, store.runs + number, tick, lookup)
        if status != FOUND:
            return status
    while file < store.index_files + store.index_count:
        # A hit at its highest offset would be there already.
        if is_full(query, lookup) and hits[lookup.count - 1].physical_offset >= file.maximum:
            break
        if file.has_tags or not query.tags_only:
            lookup.files += 1
            status = search_file(store, query, file, tick, lookup)
            if status != FOUND:
                return status
        file += 1
    return FOUND


cdef void limit_hits(const Query *query, Lookup *lookup) noexcept nogil:
    cdef int64_t kept = 0
    if is_full(query, lookup):
        lookup.more = True
        lookup.count = query.maximum
    lookup.total_bytes = 0
    while kept < lookup.count and lookup.total_bytes + lookup.hits[kept].size <= query.maximum_bytes:
        lookup.total_bytes += lookup.hits[kept].size
        kept += 1
    lookup.cut = kept < lookup.count
    lookup.count = kept


cdef void copy_hits(const Lookup *lookup, uint8_t *target) noexcept nogil:
    cdef const Hit *hit = lookup.hits + lookup.count
    while hit > lookup.hits:
        hit -= 1
        memcpy(target, hit.record, hit.size)
        target += hit.size


# --- The door ---


@cython.final
cdef class Found:
    """What a search found, and what it looked at."""

    cdef readonly int status  # FOUND, or why the search ended before anything was found.
    cdef readonly bytes records  # The records one after the other, ascending by physical offset.
    cdef readonly int64_t count  # How many records there are.
    cdef readonly bint truncated  # Whether more match than were asked for, or fit.
    cdef readonly int64_t files  # Index files that were searched.
    cdef readonly int64_t walked  # Entries that were looked at.
    cdef readonly int64_t refused  # Entries with the key's hash whose record does not match.
    cdef readonly int64_t bad_pointers  # Slots and entries that point where no chain leads.
    # Entries with the key's hash that point into the log where no record starts, unless damage is known there.
    cdef readonly int64_t strays
    cdef readonly FileView stray_file  # `FileView | None`: The index file in which the last of them stands.
    cdef readonly int64_t stray_offset  # The physical offset in that entry.
    # Physical offsets of records that match but for their checksums, ascending, MOST_DAMAGED at most.
    cdef readonly tuple[int, ...] damaged
    cdef readonly FileView cold_file  # `FileView | None`: The file of which something is not in memory.
    cdef readonly int64_t cold_position  # Position of the bytes that are not in memory.
    cdef readonly int64_t cold_length  # How many bytes are not in memory.
    cdef bytes _hits  # Of each its Hit.

    def __cinit__(
        self, int status=FOUND, bytes records=b"", bint truncated=False, int64_t files=0, int64_t walked=0,
        int64_t refused=0, int64_t bad_pointers=0, int64_t strays=0, FileView stray_file=None, int64_t stray_offset=0,
        tuple damaged=(), FileView cold_file=None, int64_t cold_position=0, int64_t cold_length=0, bytes hits=b"",
    ):
        self.status, self.records, self.truncated, self._hits = status, records, truncated, hits
        self.count = len(hits) // <int64_t>sizeof(Hit)
        self.files, self.walked, self.refused, self.bad_pointers = files, walked, refused, bad_pointers
        self.strays, self.stray_file, self.stray_offset, self.damaged = strays, stray_file, stray_offset, damaged
        self.cold_file, self.cold_position, self.cold_length = cold_file, cold_position, cold_length

    @property
    def physical_offsets(self) -> tuple[int, ...]:
        """The physical offsets at which they start."""
        cdef const Hit *hits = <const Hit *>PyBytes_AsString(self._hits)
        return tuple([hits[number].physical_offset for number in range(self.count - 1, -1, -1)])

    @property
    def sizes(self) -> tuple[int, ...]:
        """Bytes of each."""
        cdef const Hit *hits = <const Hit *>PyBytes_AsString(self._hits)
        return tuple([hits[number].size for number in range(self.count - 1, -1, -1)])


@cython.final
cdef class KeyQuery:
    """A question for the messages of a topic that carry a key, as `look_up` takes it; made once for several views."""

    cdef Query query
    cdef readonly bytes needle  # The text that an index hashes: ``topic#key`` or ``topic#T#tag``.

    def __cinit__(self, question: Any, *, bint tags_only=False) -> None:
        """Find at most MAXIMUM_HITS messages, and one at least; `tags_only` leaves index files without tags out.

        Raises ValueError for a needle that does not have its topic before its key, and for another kind.
        """
        cdef Query *query = &self.query
        cdef int64_t topic, key
        cdef Text needle
        self.needle, topic, key = question.needle()
        needle = text_of(self.needle)
        query.kind = question.kind
        if not 0 <= topic <= key <= needle.length or not KIND_ANY <= query.kind <= KIND_TAG:
            raise ValueError(f"a topic of {topic} bytes and a key from {key} on in {needle.length}, of kind {query.kind}")
        query.topic.start, query.topic.length = needle.start, topic
        query.key.start, query.key.length = needle.start + key, needle.length - key
        query.key_hash = hash_query(&query.topic, &query.key, query.kind)
        query.begin_timestamp, query.end_timestamp = question.begin_timestamp, question.end_timestamp
        query.before_physical_offset = question.before_physical_offset
        query.maximum, query.maximum_bytes = max(min(question.maximum, MAXIMUM_HITS), 1), question.maximum_bytes
        query.tags_only = tags_only


def look_up(StoreView view not None, KeyQuery query not None, int64_t tick, int64_t steps) -> Found:
    """Answer one query with the newest messages that match; `steps` entries may be walked.

    Records have no more bytes in all than the question allows: the oldest are dropped first.
    """
    cdef Hit hits[MAXIMUM_HITS + 1]
    cdef Lookup lookup
    cdef int status
    cdef bint is_cold
    lookup.hits, lookup.steps = hits, steps
    if tick == 0:
        with nogil:
            status = find_hits(&view.store, &query.query, tick, &lookup)
    else:  # a walk that is bounded: to wait for the GIL afterwards could take longer
        status = find_hits(&view.store, &query.query, tick, &lookup)
    if status == FOUND:
        limit_hits(&query.query, &lookup)
    else:
        lookup.count = 0
    is_cold = status == STOPPED_COLD
    records = PyBytes_FromStringAndSize(NULL, lookup.total_bytes)
    copy_hits(&lookup, <uint8_t *>PyBytes_AsString(records))
    return Found(
        status, records, lookup.more or lookup.cut, lookup.files, lookup.walked, lookup.refused, lookup.bad_pointers,
        lookup.strays, None if lookup.stray_file == NULL else <FileView>lookup.stray_file.view, lookup.stray_offset,
        tuple(sorted([lookup.damaged[i] for i in range(lookup.damaged_count)])) if lookup.damaged_count else (),
        <FileView>lookup.cold.file.view if is_cold else None, lookup.cold.position if is_cold else 0,
        lookup.cold.length if is_cold else 0,
        PyBytes_FromStringAndSize(<const char *>lookup.hits, lookup.count * <int64_t>sizeof(Hit)),
    )
