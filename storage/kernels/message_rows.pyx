"""Choose records of a stretch of the log, and note where their parts lie: the rows that columns are gathered from.

A choice is made by what can be read of a record in place: topic, queue, queue offset, store time, tag. Bodies
are read only to hold those of the chosen records against their checksums, and where they hold a batch, of which each
message is chosen by itself.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t

from protocol.kernels.memory cimport load_i32, load_i64, load_native_u64
from storage.kernels.records cimport (
    AT_BLANK,
    AT_DAMAGE,
    AT_LIMIT,
    AT_NOTHING,
    AT_PACKED,
    BAD_BLANK,
    BAD_MAGIC,
    BAD_SIZE,
    BORN_HOST_V6,
    BORN_IP,
    ENTRY_OF_RECORD,
    HEAD,
    INNER_HEAD,
    IPV6_EXTRA,
    MAGIC,
    MAGIC_BLANK,
    MINIMUM_SIZE,
    OUTPUT_FULL,
    QUEUE_ID,
    QUEUE_OFFSET,
    STORE_IP,
    SYS_FLAG,
    Indexed,
    Record,
    Text,
    check_checksums,
    closes_segment_at,
    count_inner,
    entry_at,
    find_indexed,
    has_record_magic,
    is_batch,
    is_cut_entry,
    is_packed_batch,
    next_inner,
    read_shape,
    store_timestamp_at,
    text_of,
)
from storage.kernels.region cimport Column, Region, Room, require, take
from storage.kernels.text_sets cimport TextSet, place_in

ROW_FIELDS: Final[tuple[str, ...]] = tuple(
    "position size body body_length topic topic_length properties properties_length keys keys_length tags tags_length "
    "unique_key unique_key_length born_host store_host inner".split()
)


# --- What is wanted ---


@cython.final
cdef class _Texts:
    """Some texts, and the bytes that hold them."""

    cdef TextSet texts
    cdef list held
    cdef list blocks

    def __cinit__(self, texts):
        cdef bytes each
        cdef int64_t number
        self.held = sorted(texts, key=lambda text: (len(text), text))
        self.blocks = []
        self.texts.texts = <Text *>take(self.blocks, len(self.held), sizeof(Text))
        self.texts.count = len(self.held)
        for number in range(self.texts.count):
            each = self.held[number]
            self.texts.texts[number] = text_of(each)


cdef struct Query:
    const TextSet *topics  # NULL for any.
    const TextSet *tags
    const int32_t *queue_ids
    int64_t queue_id_count
    int64_t first_timestamp
    int64_t last_timestamp
    int64_t first_offset  # In the queue.
    int64_t last_offset
    bint notes_names  # Where keys, tag and unique key lie.
    bint checksums
    bint apart  # Whether batches are taken apart.


@cython.final
cdef class RowQuery:
    """Which records are wanted; None is any. Ranges include both ends."""

    cdef Query query
    cdef tuple held

    def __cinit__(
        self, *, topics: Iterable[bytes] | None, tags: Iterable[bytes] | None, queue_ids: npt.NDArray[np.int32] | None,
        times: tuple[int, int], queue_offsets: tuple[int, int], bint names, bint checksums, bint apart=True,
    ) -> None:
        """`names`: note where keys, tag and unique key lie; `checksums`: hold the chosen records against theirs.

        `apart`: take batches apart, where they are such as they should be; else they stay what they are as records.
        """
        cdef _Texts chosen_topics = None if topics is None else _Texts(topics)
        cdef _Texts chosen_tags = None if tags is None else _Texts(tags)
        cdef Column numbers = None if queue_ids is None else Column(queue_ids, sizeof(int32_t))
        self.held = (chosen_topics, chosen_tags, numbers)
        self.query.topics = NULL if topics is None else &chosen_topics.texts
        self.query.tags = NULL if tags is None else &chosen_tags.texts
        if queue_ids is not None:
            self.query.queue_ids, self.query.queue_id_count = <const int32_t *>numbers.items, numbers.count
        else:
            self.query.queue_id_count = -1
        self.query.first_timestamp, self.query.last_timestamp = times
        self.query.first_offset, self.query.last_offset = queue_offsets
        self.query.notes_names, self.query.checksums, self.query.apart = names, checksums, apart


cdef bint has_queue_id(const Query *query, int32_t queue_id) noexcept nogil:
    cdef int64_t number
    for number in range(query.queue_id_count):
        if query.queue_ids[number] == queue_id:
            return True
    return query.queue_id_count < 0


cdef inline bint has_place(const Query *query, const Record *record) noexcept nogil:
    """Whether topic, queue and time of a record of sound shape are wanted: what all messages of a batch share."""
    return (
        query.first_timestamp <= store_timestamp_at(record.start) <= query.last_timestamp
        and has_queue_id(query, load_i32(record.start + QUEUE_ID))
        and (query.topics == NULL or place_in(query.topics, &record.topic) >= 0)
    )


cdef inline bint is_chosen(const Query *query, int64_t queue_offset, const Indexed *indexed) noexcept nogil:
    """Whether a message is wanted whose place is; its tag counts only where one is asked for."""
    return query.first_offset <= queue_offset <= query.last_offset and (
        query.tags == NULL or indexed.tags.start != NULL and place_in(query.tags, &indexed.tags) >= 0
    )


# --- Rows ---


cdef inline void put_text(const uint8_t *data, const Text *text, int64_t *position, int64_t *length) noexcept nogil:
    position[0], length[0] = 0, -1
    if text.start != NULL:
        position[0], length[0] = text.start - data, text.length


cdef inline void fill_row(Row *row, const uint8_t *data, const Record *record, const Indexed *indexed) noexcept nogil:
    cdef int64_t born_extra = IPV6_EXTRA if load_i32(record.start + SYS_FLAG) & BORN_HOST_V6 else 0
    row.position, row.size = record.start - data, record.size
    put_text(data, &record.body, &row.body, &row.body_length)
    put_text(data, &record.topic, &row.topic, &row.topic_length)
    put_text(data, &record.properties, &row.properties, &row.properties_length)
    put_text(data, &indexed.keys, &row.keys, &row.keys_length)
    put_text(data, &indexed.tags, &row.tags, &row.tags_length)
    put_text(data, &indexed.unique_key, &row.unique_key, &row.unique_key_length)
    row.born_host = row.position + BORN_IP
    row.store_host = row.position + STORE_IP + born_extra
    row.inner = -1


cdef int64_t fill_inner(
    Row *rows, int64_t room, const uint8_t *data, const Query *query, const Record *record
) noexcept nogil:
    """Note the wanted messages of a batch; how many. It may have changed since they were counted."""
    cdef Record inner = record[0]
    cdef Indexed indexed
    cdef const uint8_t *at = record.body.start
    cdef const uint8_t *end = at + record.body.length
    cdef int64_t count = 0, number = 0, first = load_i64(record.start + QUEUE_OFFSET)
    indexed.keys.start = indexed.tags.start = indexed.unique_key.start = NULL
    while count < room and next_inner(&inner, &at, end):
        if query.notes_names or query.tags != NULL:
            find_indexed(&inner, &indexed)
        if is_chosen(query, first + number, &indexed):
            fill_row(&rows[count], data, &inner, &indexed)
            rows[count].inner = number
            count += 1
        number += 1
    return count


cdef inline int64_t read_next(
    Record *record, const uint8_t *at, int64_t left, int64_t physical_offset, int64_t boundary, int *reason
) noexcept nogil:
    """Size of the record of which ``left`` bytes are there, a ``BAD_`` code, or 0 and a reason why the run ends."""
    if left < HEAD:
        reason[0] = NEED_MORE
        return 0
    if not has_record_magic(at):
        if load_i32(at + MAGIC) == MAGIC_BLANK:
            reason[0] = AT_BLANK
            return 0 if closes_segment_at(at, boundary - physical_offset) else BAD_BLANK
        if closes_segment_at(at, boundary - physical_offset):
            reason[0] = AT_BLANK
            return 0
        if is_cut_entry(at, left):
            reason[0] = NEED_MORE
            return 0
        reason[0] = AT_NOTHING
        return 0 if load_native_u64(at) == 0 else BAD_MAGIC
    if load_i32(at) < MINIMUM_SIZE:
        return BAD_SIZE
    if load_i32(at) > left:
        reason[0] = NEED_MORE
        return 0
    return read_shape(record, at, left, physical_offset)


@cython.final
cdef class Choice:
    """How a run went."""

    cdef readonly int64_t position  # Where it ended.
    cdef readonly int64_t rows  # How many were written.
    cdef readonly int64_t records  # How many were passed, wanted or not.
    cdef readonly int64_t last  # Position of the last of these, −1 without one.
    # Why it ended: AT_LIMIT, AT_BLANK, AT_DAMAGE, OUTPUT_FULL, AT_NOTHING, NEED_MORE or AT_PACKED.
    cdef readonly int reason
    cdef readonly int code  # The `BAD_` code of damage, else 0.

    def __cinit__(self, int64_t position, int64_t rows, int64_t records, int64_t last, int reason, int code):
        self.position, self.rows, self.records, self.last = position, rows, records, last
        self.reason, self.code = reason, code


def choose_records(
    Region region not None, int64_t position, int64_t limit, int64_t stop, int64_t base, int64_t boundary,
    RowQuery wanted not None, table: npt.NDArray[np.int64],
) -> Choice:
    """Write a row for each wanted message of the records that start in [position, limit), up to AT_PACKED.

    Bytes up to `stop` are there. The region's first byte has the physical offset `base`; the next segment starts at
    `boundary`. `table` has room for whole rows.
    """
    cdef Room room = Room(table, sizeof(int64_t))
    cdef Row *rows = <Row *>room.items
    cdef int64_t row_room = room.count // <int64_t>(sizeof(Row) // sizeof(int64_t))
    cdef const Query *query = &wanted.query
    cdef Record record
    cdef Indexed indexed
    cdef int64_t size, head, start, inner, count = 0, records = 0, last = -1
    cdef int reason = AT_LIMIT, ended = AT_LIMIT, code = 0
    require(region, position, stop)
    record.start = region.data
    record.size = record.body.length = record.topic.length = record.properties.length = 0
    record.body.start = record.topic.start = record.properties.start = NULL
    indexed.keys.start = indexed.tags.start = indexed.unique_key.start = NULL
    indexed.keys.length = indexed.tags.length = indexed.unique_key.length = 0
    with nogil:
        while position < limit:
            if count == row_room:
                reason = OUTPUT_FULL
                break
            size = read_next(&record, region.data + position, stop - position, base + position, boundary, &ended)
            head = 0
            if size == BAD_MAGIC:
                head = entry_at(region.data + position, stop - position, base + position)
            if head > 0 and load_i32(region.data + position) != ENTRY_OF_RECORD:
                position += head
                continue
            if head > 0:
                start = position + head
                size = read_next(&record, region.data + start, stop - start, base + start, boundary, &ended)
                if start >= limit or (size == 0 and ended == NEED_MORE):
                    position, reason = start, AT_LIMIT if start >= limit else NEED_MORE
                    break
            if size > 0:
                inner = 0
                if query.apart and is_batch(record.start) and has_place(query, &record):
                    inner = 1 if is_packed_batch(&record) else count_inner(&record)
                    if inner > row_room - count and count > 0:
                        reason = OUTPUT_FULL
                        break
                if inner == 0 and (query.notes_names or query.tags != NULL):
                    find_indexed(&record, &indexed)
                if inner > 0 or has_place(query, &record) and is_chosen(
                    query, load_i64(record.start + QUEUE_OFFSET), &indexed
                ):
                    if query.checksums:
                        size = check_checksums(&record)
                        position = record.start - region.data
                        head = 0
                    if size > 0 and inner > 0 and is_packed_batch(&record):
                        position, reason = record.start - region.data, AT_PACKED
                        break
                    if size > 0 and 0 < inner <= row_room:
                        count += fill_inner(&rows[count], row_room - count, region.data, query, &record)
                    elif size > 0:
                        fill_row(&rows[count], region.data, &record, &indexed)
                        count += 1
            if size <= 0:
                reason, code = AT_DAMAGE if size < 0 else ended, <int>size
                break
            records += 1
            last = record.start - region.data
            position += head + size
    return Choice(position, count, records, last, reason, code)


def load_numbers(
    Region region not None, positions: npt.NDArray[np.int64], int32_t distance, int bits,
    numbers: npt.NDArray[np.int64],
) -> None:
    """Read a number of 32 or 64 bits so many bytes behind each of some positions."""
    cdef Column column = Column(positions, sizeof(int64_t))
    cdef Room room = Room(numbers, sizeof(int64_t))
    cdef const int64_t *places = <const int64_t *>column.items
    cdef int64_t *found = <int64_t *>room.items
    cdef int64_t row = 0, first = -<int64_t>distance, last = region.size - bits // 8 - distance, place
    if bits != 32 and bits != 64 or room.count != column.count:
        raise ValueError(f"{column.count} numbers of {bits} bits, and room for {room.count}")
    with nogil:
        while row < column.count:
            if not first <= places[row] <= last:
                break
            place = places[row] + distance
            found[row] = load_i64(region.data + place) if bits == 64 else load_i32(region.data + place)
            row += 1
    if row < column.count:
        raise ValueError(
            f"a number of {bits} bits {distance} bytes behind position {places[row]} does not lie in a region of "
            f"{region.size} bytes"
        )
