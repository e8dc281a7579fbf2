"""Find messages of queues in the log, where the queues' own units do not lead to them, and make their units.

A light queue (``%LMQ%``) is searched by what its messages say of it in their properties (store-format §2.10).
"""

cimport cython
from libc.stdint cimport INT64_MIN, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp

from protocol.kernels.memory cimport load_i32, load_i64
from storage.kernels.light_queues cimport LIGHT_PREFIX_BYTES, count_items, is_light_name, trim_list
from storage.kernels.plain_units cimport UNIT_BYTES, write_plain_unit
from storage.kernels.properties cimport Properties, find_properties, parse_integer, tags_code
from storage.kernels.records cimport (
    HEAD,
    QUEUE_ID,
    QUEUE_OFFSET,
    SYS_FLAG,
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    Record,
    Sums,
    Text,
    begin_sums,
    check_sums,
    next_recent,
    read_step,
    split_off,
    text_of,
)
from storage.kernels.region cimport Region, Room, require

ANY_OFFSET: Final[int] = -1
NOT_FOUND: Final[int] = -1


cdef enum:
    ANY = -1  # queue offset
    NOWHERE = -1


cdef struct Search:
    Text topic
    int32_t queue_id
    bint is_light
    int64_t first  # Queue offset, or ANY.
    int64_t count
    uint8_t *units  # As they are in a plain queue's file; one without a message leads NOWHERE.
    int64_t left
    int64_t beyond


@cython.final
cdef class MessageSearch:
    """Messages of one queue that are looked for, and the units of those that the log has."""

    cdef Search search
    cdef bytes topic
    cdef Room room

    def __cinit__(
        self, bytes topic not None, int32_t queue_id, int64_t first, units: npt.NDArray[np.uint8], int64_t beyond,
    ) -> None:
        """A search for the messages of the queue offsets from ``first`` on, one for each of the ``units``.

        These are bytes as in a plain queue's file (store-format §5.1). The physical offset in a unit is NOT_FOUND
        before its message is found. ``beyond`` messages of the queue with later offsets may come before nothing more is
        looked for. Raises ValueError for a negative offset but ANY_OFFSET, and for units that are no bytes.
        """
        cdef Search *search = &self.search
        cdef int64_t i
        if first < ANY:
            raise ValueError(f"there is no queue offset {first}")
        self.topic, self.room = topic, Room(units, 1)
        search.topic = text_of(topic)
        search.queue_id, search.first, search.beyond = queue_id, first, beyond
        search.is_light = search.topic.length > LIGHT_PREFIX_BYTES and is_light_name(&search.topic)
        search.units, search.count = <uint8_t *>self.room.items, self.room.count // UNIT_BYTES
        for i in range(search.count):
            search.left += load_i64(search.units + UNIT_BYTES * i) == NOWHERE

    @property
    def left(self) -> int:
        """How many of them are still to be found, 0 when nothing more is looked for."""
        return max(self.search.left, 0)


cdef int64_t light_offset(const Record *record, const Text *queue) noexcept nogil:
    """The offset that a record says it has in a light queue, or NOWHERE for a record that is not dispatched to it."""
    cdef Properties found
    cdef Text names, offsets, name, offset
    cdef int64_t i, count, queue_offset = 0
    find_properties(record, &found)
    if found.multi_dispatch.start == NULL or found.multi_queue_offset.start == NULL:
        return NOWHERE
    names, offsets = found.multi_dispatch, found.multi_queue_offset
    trim_list(&names)
    trim_list(&offsets)
    count = count_items(&names)
    if count != count_items(&offsets):
        return NOWHERE
    for i in range(count):
        name, offset = split_off(&names, c','), split_off(&offsets, c',')
        if name.length == queue.length and memcmp(name.start, queue.start, name.length) == 0:
            return queue_offset if parse_integer(&offset, 64, &queue_offset) else NOWHERE
    return NOWHERE


cdef inline int64_t offset_in_queue(const Record *record, const Search *search) noexcept nogil:
    """The queue offset of a record in the queue of a search, below 0 for no message of the queue."""
    if search.is_light:
        return light_offset(record, &search.topic)
    if (
        load_i32(record.start + QUEUE_ID) == search.queue_id
        and record.topic.length == search.topic.length
        and memcmp(record.topic.start, search.topic.start, search.topic.length) == 0
    ):
        return load_i64(record.start + QUEUE_OFFSET)
    return NOWHERE


cdef void note_message(const Record *record, Search *search, Sums sums) noexcept nogil:
    """Make the unit of a record that is intact and looked for; the first one of an offset counts."""
    cdef int64_t offset = offset_in_queue(record, search), number
    cdef Properties found
    if offset < 0:
        return
    number = 0 if search.first == ANY else offset - search.first
    if number < 0 or (number < search.count and load_i64(search.units + UNIT_BYTES * number) != NOWHERE):
        return
    if check_sums(record, sums) < 0:
        return
    if number < search.count:
        find_properties(record, &found)
        write_plain_unit(
            search.units + UNIT_BYTES * number, record.physical_offset, <int32_t>record.size, tags_code(&found)
        )
        search.left -= 1
        return
    search.beyond -= 1
    if search.beyond <= 0:
        search.left = 0


cdef int64_t search_records(
    const uint8_t *data,
    int64_t position,
    int64_t stop,
    int64_t readable,
    int64_t base,
    int64_t boundary,
    Search **searches,
    int64_t count,
    Sums sums,
) noexcept nogil:
    """As :func:`find_messages`."""
    cdef Record record
    cdef int64_t i, size, open = 0
    cdef int32_t transaction
    for i in range(count):
        open += searches[i].left > 0
    while open > 0 and position < stop and position + HEAD <= readable:
        size = read_step(&record, data + position, readable - position, base + position, boundary)
        if size == 0:
            return readable
        if size < 0:
            position = next_recent(data, position + 1, stop, readable, base, INT64_MIN, sums)
            continue
        if record.start == NULL:
            position += size
            continue
        if record.start - data >= stop:
            return record.start - data
        transaction = load_i32(record.start + SYS_FLAG) & TRANSACTION_MASK
        if transaction == 0 or transaction == TRANSACTION_COMMIT:
            for i in range(count):
                if searches[i].left > 0:
                    note_message(&record, searches[i], sums)
                    open -= searches[i].left <= 0
        position += size
    return position


def find_messages(
    Region region not None, int64_t position, int64_t stop, int64_t readable, int64_t base, int64_t boundary,
    list[MessageSearch] searches not None,
) -> int:
    """Make the units of messages whose records start in [position, stop), of some searches; where the search goes on.

    Positions are of a segment whose first byte has the physical offset ``base``, ``readable`` bounds reading,
    ``boundary`` is the physical offset at which the next segment starts. The search ends at ``stop``, behind it with
    the record that starts before it, at the BLANK that closes the segment, which is answered by ``readable``, or before
    where nothing more is looked for. Damaged records are no messages; behind damage it goes on at the next intact one.
    Raises ValueError where it was to read outside the region.
    """
    cdef Sums sums = begin_sums(None, region)
    cdef MessageSearch each
    cdef Search **pointers
    cdef int64_t i, count = len(searches)
    require(region, position, readable)
    pointers = <Search **>malloc(count * sizeof(Search *) + 1)
    if pointers == NULL:
        raise MemoryError
    try:
        for i in range(count):
            each = searches[i]
            if each is None:
                raise TypeError("None is no search")
            pointers[i] = &each.search
        with nogil:
            position = search_records(
                region.data, position, stop, readable, base, boundary, pointers, count, sums
            )
    finally:
        free(pointers)
    return position
