"""Find messages of queues in the log, where the queues' own units do not lead to them, and make their units.

A light queue (``%LMQ%``) is searched by what its messages say of it in their properties (store-format §2.10).
"""

import os

cimport cython
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcmp

from protocol.kernels.memory cimport load_i32, load_i64
from storage.kernels.light_queues cimport LIGHT_PREFIX_BYTES, count_items, is_light_name, trim_list
from storage.kernels.plain_units cimport UNIT_BYTES, write_plain_unit
from storage.kernels.properties cimport Properties, find_properties, parse_integer, tags_code
from storage.kernels.queue_units cimport hash_name
from storage.kernels.records cimport (
    HEAD,
    QUEUE_ID,
    QUEUE_OFFSET,
    SYS_FLAG,
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    Record,
    KeptChecksums,
    Text,
    begin_sums,
    check_sums,
    next_recent,
    read_step,
    split_off,
    text_of,
)
from storage.kernels.region cimport Region, Room, require, take_zeroes

ANY_OFFSET: Final[int] = -1
NOT_FOUND: Final[int] = -1


cdef enum:
    ANY = -1  # queue offset
    NOWHERE = -1
    FREE_ROOM = 1 << 20  # Units up to which room is made for messages whatever lies before them.


cdef uint64_t multiplier = int.from_bytes(os.urandom(8), "big") | 1  # Of the hash, as in the dispatch scan.


cdef struct Search:
    Text topic
    uint64_t name_hash
    int32_t queue_id
    bint is_light
    bint grows
    bint is_full
    int64_t first  # Queue offset, or ANY.
    int64_t count
    uint8_t *units  # As they are in a plain queue's file; one without a message leads NOWHERE.
    int64_t left
    int64_t beyond
    int64_t start  # Physical offsets between which records count.
    int64_t stop
    int64_t noted  # Physical offset of the last record that was noted, which may name a light queue several times.


cdef struct Listed:  # A search in a table, and the next one in the same place of it.
    Search *search
    Listed *next


cdef struct Searches:  # By their queues.
    Listed *listed
    Listed **table
    uint64_t mask
    uint64_t queue_ids  # A bit for each: what a record's head says is read before its topic, which lies behind the body.
    uint64_t topics  # A bit for each `kind_of`, which most topics that are not looked for do not have.
    int64_t open
    bint have_light


@cython.final
cdef class MessageSearch:
    """Messages of one queue that are looked for, and the units of those that the log has."""

    cdef Search search
    cdef bytes topic
    cdef Room room

    def __cinit__(
        self, bytes topic not None, int32_t queue_id, int64_t first, units: npt.NDArray[np.uint8], int64_t beyond, *,
        bint grows=False,
    ) -> None:
        """A search for the messages of the queue offsets from ``first`` on, one for each of the ``units``.

        These are bytes as in a plain queue's file (store-format §5.1). The physical offset in a unit is NOT_FOUND
        before its message is found. ``beyond`` messages of the queue with later offsets may come before nothing more is
        looked for. One that ``grows`` looks for later messages too, from ANY_OFFSET on for all from the first one on.
        Raises ValueError for a negative offset but ANY_OFFSET, and for units that are no bytes.
        """
        cdef Search *search = &self.search
        cdef int64_t i
        if first < ANY:
            raise ValueError(f"there is no queue offset {first}")
        self.topic, self.room = topic, Room(units, 1)
        search.topic = text_of(topic)
        search.queue_id, search.first, search.beyond, search.grows = queue_id, first, beyond, grows
        search.is_light = search.topic.length > LIGHT_PREFIX_BYTES and is_light_name(&search.topic)
        search.name_hash = hash_name(&search.topic, 0 if search.is_light else queue_id, multiplier)
        search.units, search.count = <uint8_t *>self.room.items, self.room.count // UNIT_BYTES
        search.left = grows
        search.start, search.stop, search.noted = 0, INT64_MAX, NOWHERE
        for i in range(search.count):
            search.left += load_i64(search.units + UNIT_BYTES * i) == NOWHERE

    def limit(self, int64_t start, int64_t stop) -> None:
        """Let only records count from now on that start between two physical offsets."""
        self.search.start, self.search.stop = start, stop

    @property
    def first(self) -> int:
        """The first queue offset; ANY_OFFSET until it is known."""
        return self.search.first

    @property
    def left(self) -> int:
        """How many of them are still to be found, 0 when nothing more is looked for."""
        return max(self.search.left, 0)

    @property
    def is_full(self) -> bool:
        """Whether a search that grows had no room for the unit of the record at which `find_messages` has stopped.

        Another one with twice as many units, and those that it has, goes on from there.
        """
        return self.search.is_full


cdef bint note_message(const Record *record, Search *search, int64_t offset, KeptChecksums sums) noexcept nogil:
    """Make the unit of a record with a queue offset, if it is intact and looked for; the first one of an offset counts.

    False where there is no room for its unit, which is to be made.
    """
    cdef int64_t number
    cdef Properties found
    if offset < 0 or search.left <= 0:
        return True
    number = 0 if search.first == ANY else offset - search.first
    if number < 0 or (number < search.count and load_i64(search.units + UNIT_BYTES * number) != NOWHERE):
        return True
    if check_sums(record, sums) < 0:
        return True
    if search.first == ANY and search.grows:
        search.first = offset
    if number < search.count:
        find_properties(record, &found)
        write_plain_unit(
            search.units + UNIT_BYTES * number, record.physical_offset, <int32_t>record.size, tags_code(&found)
        )
        search.left -= 1
        return True
    if search.grows and number < 2 * search.count and (search.count < FREE_ROOM or 2 * search.left <= search.count):
        search.is_full = True
        return False
    search.beyond -= 1
    if search.beyond <= 0:
        search.left = 0
    return True


cdef inline uint64_t kind_of(const Text *topic) noexcept nogil:
    """One of 64 bits, by the length and the end of a topic."""
    return <uint64_t>1 << ((topic.length + (8 * topic.start[topic.length - 1] if topic.length else 0)) & 63)


cdef bint note_in_queue(
    const Record *record, const Text *name, int32_t queue_id, const Text *light_offset, Searches *searches, KeptChecksums sums
) noexcept nogil:
    """Note a record for all searches of a queue that it is in. False where there is no room for its unit.

    ``light_offset`` is what it says of its offset in a light queue, NULL for another one.
    """
    cdef uint64_t name_hash = hash_name(name, queue_id, multiplier)
    cdef Listed *listed = searches.table[name_hash & searches.mask]
    cdef Search *search
    cdef bint has_room = True, is_light = light_offset != NULL
    cdef int64_t offset
    while listed != NULL:
        search, listed = listed.search, listed.next
        if (
            search.left > 0
            and search.start <= record.physical_offset < search.stop
            and search.name_hash == name_hash
            and search.is_light == is_light
            and search.noted != record.physical_offset
            and (is_light or search.queue_id == queue_id)
            and search.topic.length == name.length
            and memcmp(search.topic.start, name.start, name.length) == 0
        ):
            search.noted = record.physical_offset
            offset = NOWHERE
            if not is_light:
                offset = load_i64(record.start + QUEUE_OFFSET)
            elif not parse_integer(light_offset, 64, &offset):
                offset = NOWHERE
            has_room &= note_message(record, search, offset, sums)
            searches.open -= search.left <= 0
    return has_room


cdef bint note_in_light_queues(const Record *record, Searches *searches, KeptChecksums sums) noexcept nogil:
    """Note a record for the searches of all light queues that it names. False where there is no room for its unit."""
    cdef Properties found
    cdef Text names, offsets, name, offset
    cdef bint has_room = True
    cdef int64_t i, count
    find_properties(record, &found)
    if found.multi_dispatch.start == NULL or found.multi_queue_offset.start == NULL:
        return True
    names, offsets = found.multi_dispatch, found.multi_queue_offset
    trim_list(&names)
    trim_list(&offsets)
    count = count_items(&names)
    if count != count_items(&offsets):
        return True
    for i in range(count):
        name, offset = split_off(&names, c','), split_off(&offsets, c',')
        has_room &= note_in_queue(record, &name, 0, &offset, searches, sums)
    return has_room


cdef int64_t search_records(
    const uint8_t *data,
    int64_t position,
    int64_t stop,
    int64_t readable,
    int64_t base,
    int64_t boundary,
    Searches *searches,
    KeptChecksums sums,
) noexcept nogil:
    """As :func:`find_messages`."""
    cdef Record record
    cdef int64_t size
    cdef int32_t transaction, queue_id
    cdef bint has_room
    while searches.open > 0 and position < stop and position + HEAD <= readable:
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
            has_room = True
            queue_id = load_i32(record.start + QUEUE_ID)
            if searches.queue_ids >> (queue_id & 63) & 1 and searches.topics & kind_of(&record.topic):
                has_room = note_in_queue(&record, &record.topic, queue_id, NULL, searches, sums)
            if searches.have_light:
                has_room &= note_in_light_queues(&record, searches, sums)
            if not has_room:
                return record.start - data
        position += size
    return position


cdef int64_t put_searches(list wanted, Searches *searches) except -1:
    """Lay searches into their table, which has more places than there are searches."""
    cdef MessageSearch each
    cdef Listed **place
    cdef Listed *listed
    cdef int64_t i
    searches.open, searches.queue_ids, searches.topics, searches.have_light = 0, 0, 0, False
    for i in range(len(wanted)):
        each = wanted[i]
        if each is None:
            raise TypeError("None is no search")
        place, listed = &searches.table[each.search.name_hash & searches.mask], &searches.listed[i]
        listed.search, listed.next, place[0] = &each.search, place[0], listed
        each.search.is_full = False
        searches.open += each.search.left > 0
        if each.search.is_light:
            searches.have_light = True
        else:
            searches.queue_ids |= <uint64_t>1 << (each.search.queue_id & 63)
            searches.topics |= kind_of(&each.search.topic)
    return 0


def find_messages(
    Region region not None, int64_t position, int64_t stop, int64_t readable, int64_t base, int64_t boundary,
    list[MessageSearch] searches not None,
) -> int:
    """Make the units of messages whose records start in [position, stop), of some searches; where the search goes on.

    Positions are of a segment whose first byte has the physical offset ``base``, ``readable`` bounds reading,
    ``boundary`` is the physical offset at which the next segment starts. The search ends at ``stop``, behind it with
    the record that starts before it, at the BLANK that closes the segment, which is answered by ``readable``, or before
    where nothing more is looked for, or at a record for whose unit one of them ``is_full``. Many searches take hardly
    longer than one. Damaged records are no messages; behind damage it goes on at the next intact one. Raises ValueError
    where it was to read outside the region.
    """
    cdef KeptChecksums sums = begin_sums(None, region)
    cdef Searches found
    cdef list blocks = []
    cdef uint64_t places = 4
    require(region, position, readable)
    while places < 2 * <uint64_t>len(searches):
        places *= 2
    found.mask = places - 1
    found.table = <Listed **>take_zeroes(blocks, places, sizeof(Listed *))
    found.listed = <Listed *>take_zeroes(blocks, places, sizeof(Listed))
    put_searches(searches, &found)
    with nogil:
        position = search_records(region.data, position, stop, readable, base, boundary, &found, sums)
    return position
