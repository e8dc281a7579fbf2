"""Which records of a segment may be what a content search looks for: headers and raw bytes, nothing is decoded.

A record that is passed over cannot match. One that is noted still has to be decoded and checked: its body may be
compressed, or its bytes may stand at a place that does not count.

Bytes are looked for ahead of the records, over everything that lies there: so most records need only be held against
the place of the next hit. They are looked for by two of them that are seldom, 64 places at a time, most of which hold
no such pair.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy

from protocol.kernels.memory cimport __builtin_ctzll, __builtin_prefetch, load_i32, load_native_u64
from storage.kernels.records cimport (
    AT_BLANK,
    AT_DAMAGE,
    AT_LIMIT,
    BORN_HOST_V6,
    BORN_IP,
    COMPRESSED,
    HEAD,
    IS_BATCH,
    OUTPUT_FULL,
    SPACE,
    SYS_FLAG,
    Indexed,
    Record,
    Text,
    find_indexed,
    read_step,
    split_off,
    store_timestamp_at,
    text_of,
)
from storage.kernels.region cimport Region, Room, require
from storage.kernels.sql92 cimport (
    LONGEST_PROPERTIES,
    TRUE,
    Evaluation,
    Program,
    decide,
    memmem,
    open_evaluation,
)


cdef extern from "pairs.h" nogil:
    enum:
        PAIRS_WIDE
    # Bit n says whether first[n] is one byte and second[n] is the other, of PAIRS_WIDE.
    uint64_t find_pairs(const uint8_t *first, const uint8_t *second, uint8_t one, uint8_t other) noexcept


cpdef enum:
    # Where bytes are looked for.
    IN_BODY = 1
    IN_PROPERTIES = 2

cdef enum:
    # So many bytes are looked through ahead: what lies there is still in the processor's cache when records are read. By
    # `benchmarks.search` a core so looked through 12 GB/s, record by record 5.8.
    AHEAD = 1 << 15
    NEAR = 1 << 12  # What lies no further behind what was looked through is likely to be asked about next.
    # Pairs in one look ahead that do not belong to the needle, until what takes no longer for them takes over.
    MOST_PAIRS = 256
    MOST_NEEDLES = 2
    MOST_PACKINGS = 16
    CACHE_LINE = 64
    # Where no bytes are looked for: by `benchmarks.search` 14 GB/s, without asking memory 8.
    FETCHED_AHEAD = 1 << 11
    FETCHED_AT_ONCE = 1 << 10


cdef struct Needle:
    Text text
    int64_t first  # Positions of its two rarest bytes, the lower one first.
    int64_t second

cdef struct Query:
    Text topic  # These start at NULL for any.
    Text tag
    Text key
    bint key_is_start
    int64_t first_timestamp
    int64_t last_timestamp
    int64_t smallest_body
    int64_t largest_body
    Text sender  # Name and separator of the property that proxies name senders by; NULL for any born host.
    int64_t host_bytes  # Of the born host, 4 or 16, and 0 where no address is wanted.
    uint64_t network[2]
    uint64_t mask[2]  # Of an address of 4 bytes the first half of the first word.
    int64_t port  # −1 for any.
    int place  # IN_BODY, IN_PROPERTIES, or both; 0: bytes are not looked for.
    Needle needles[MOST_NEEDLES]  # One of these must be there.
    int needle_count
    Text packings[MOST_PACKINGS]  # A body that begins with one of these holds other bytes.
    int packing_count


# --- Bytes looked for ahead ---


cdef struct Finder:
    const Needle *needle
    const uint8_t *data
    int64_t end  # Of the data.
    int64_t clear  # From some position up to here no hit starts,
    bint is_hit  # but one does here.


cdef int64_t find_plainly(const uint8_t *data, int64_t position, int64_t stop, const Text *wanted) noexcept nogil:
    """As :c:func:`next_hit`, by libc, in a time that no bytes make longer."""
    cdef const void *found = memmem(
        data + position, stop - position + wanted.length - 1, wanted.start, wanted.length
    )
    return <const uint8_t *>found - data if found != NULL else -1


cdef int64_t next_hit(const Needle *needle, const uint8_t *data, int64_t position, int64_t stop) noexcept nogil:
    """Where the needle next starts in [position, stop), or −1; its bytes may reach beyond ``stop``."""
    cdef const uint8_t *first = data + needle.first
    cdef const uint8_t *second = data + needle.second
    cdef uint8_t one = needle.text.start[needle.first], other = needle.text.start[needle.second]
    cdef int64_t pairs = 0, at
    cdef uint64_t found
    while position + PAIRS_WIDE <= stop and pairs < MOST_PAIRS:
        found = find_pairs(first + position, second + position, one, other)
        while found != 0:
            at = position + __builtin_ctzll(found)
            if memcmp(data + at, needle.text.start, needle.text.length) == 0:
                return at
            found &= found - 1
            pairs += 1
        position += PAIRS_WIDE
    if position >= stop:
        return -1
    return find_plainly(data, position, stop, &needle.text)


cdef inline bint is_in(Finder *finder, int64_t start, int64_t stop) noexcept nogil:
    """Whether the needle lies wholly in [start, stop), where no place is before one that was asked about."""
    cdef int64_t last = stop - finder.needle.text.length, ahead, hit
    cdef bint is_near = start - finder.clear < NEAR
    if finder.clear < start:
        finder.clear, finder.is_hit = start, False
    while not finder.is_hit and finder.clear <= last:
        ahead = last + 1
        if is_near:
            ahead = min(max(ahead, finder.clear + AHEAD), finder.end - finder.needle.text.length + 1)
        hit = next_hit(finder.needle, finder.data, finder.clear, ahead)
        finder.is_hit = hit >= 0
        finder.clear = hit if finder.is_hit else ahead
    return finder.is_hit and finder.clear <= last


# --- What is asked ---


@cython.final
cdef class SearchQuery:
    """What is looked for; ranges include both ends."""

    cdef Query query
    cdef Program program
    cdef tuple held

    def __cinit__(
        self, *, bytes topic, bytes tag, bytes key, bint key_is_start, times: tuple[int, int],
        body_sizes: tuple[int, int], bytes sender, network: tuple[bytes, bytes] | None, port: int | None,
        Program program, int place, needles: Sequence[tuple[bytes, int, int]], packings: Sequence[bytes],
    ) -> None:
        """None is any.

        `key`: one of the business keys or the unique key, or with `key_is_start` what one of them starts with. `times`
        are store times in ms. `sender`: the property, with its separator, by which proxies name senders; a record that
        has it is noted whatever it says. `network`: address and mask of the born host of all others, 4 or 16 bytes
        each. One of two `needles` at most must lie in `place`, which is IN_BODY, IN_PROPERTIES, both, or 0; each comes
        with the positions of its two rarest bytes, the lower one first. A body that begins with one of `packings`, 16
        at most, may hold a needle unseen, and so may a batch where there are any.
        """
        cdef Query *query = &self.query
        cdef bytes data
        cdef int64_t first, second
        query.topic = text_of(topic)
        query.tag = text_of(tag)
        query.key = text_of(key)
        query.key_is_start = key_is_start
        query.first_timestamp, query.last_timestamp = times
        query.smallest_body, query.largest_body = body_sizes
        query.sender = text_of(sender)
        if network is not None:
            address, mask = network
            self.set_network(address, mask)
        query.port = -1 if port is None else port
        self.program = program
        query.place = place
        if len(needles) > MOST_NEEDLES or (place and not needles):
            raise ValueError(f"{len(needles)} needles for the places {place}")
        for data, first, second in needles:
            if not 0 <= first <= second < len(data):
                raise ValueError(f"positions {first} and {second} of a needle of {len(data)} bytes")
            query.needles[query.needle_count].text = text_of(data)
            query.needles[query.needle_count].first = first
            query.needles[query.needle_count].second = second
            query.needle_count += 1
        if len(packings) > MOST_PACKINGS:
            raise ValueError(f"{len(packings)} packings, at most {MOST_PACKINGS} are known")
        for data in packings:
            query.packings[query.packing_count] = text_of(data)
            query.packing_count += 1
        self.held = (topic, tag, key, sender, tuple(needles), tuple(packings))

    cdef int set_network(self, bytes address, bytes mask) except -1:
        if len(address) != len(mask) or len(mask) not in (4, 16):
            raise ValueError(f"a network of {len(address)} bytes and a mask of {len(mask)}")
        self.query.host_bytes = len(mask)
        memcpy(self.query.network, <const uint8_t *>address, len(mask))
        memcpy(self.query.mask, <const uint8_t *>mask, len(mask))
        return 0


cdef bint is_from(const Query *query, const Record *record, int32_t flags) noexcept nogil:
    """Whether a record's born host lies in the wanted network and has the wanted port, or a proxy names its sender."""
    cdef const uint8_t *host = record.start + BORN_IP
    cdef const Text *properties = &record.properties
    cdef uint64_t unlike
    if memmem(properties.start, properties.length, query.sender.start, query.sender.length) != NULL:
        return True
    if query.host_bytes != (16 if flags & BORN_HOST_V6 else 4):
        return False
    unlike = (load_native_u64(host) ^ query.network[0]) & query.mask[0]
    if query.host_bytes == 16:
        unlike |= (load_native_u64(host + 8) ^ query.network[1]) & query.mask[1]
    return unlike == 0 and (query.port < 0 or load_i32(host + query.host_bytes) == query.port)


cdef inline bint is_wanted(const Text *text, const Text *wanted, bint is_start) noexcept nogil:
    """Whether a text is another, or starts so."""
    if text.length < wanted.length or (text.length > wanted.length and not is_start):
        return False
    return text.start != NULL and memcmp(text.start, wanted.start, wanted.length) == 0


cdef bint has_key(const Query *query, Indexed *indexed) noexcept nogil:
    """Whether one of the business keys, or the unique key, is the wanted one, or starts like it."""
    cdef Text piece
    if is_wanted(&indexed.unique_key, &query.key, query.key_is_start):
        return True
    while indexed.keys.length > 0:
        piece = split_off(&indexed.keys, SPACE)
        if is_wanted(&piece, &query.key, query.key_is_start):
            return True
    return False


cdef bint has_properties(const Query *query, const Record *record, Evaluation *evaluation) noexcept nogil:
    """Whether the properties of a record may have the wanted tag and key, and fulfil the expression."""
    cdef Indexed indexed
    if query.tag.start != NULL or query.key.start != NULL:
        find_indexed(record, &indexed)
        if query.tag.start != NULL and not is_wanted(&indexed.tags, &query.tag, False):
            return False
        if query.key.start != NULL and not has_key(query, &indexed):
            return False
    return evaluation == NULL or decide(evaluation, &record.properties) == TRUE


cdef inline bint has_needle(const Query *query, Finder *finders, const uint8_t *data, const Text *text) noexcept nogil:
    cdef int number
    for number in range(query.needle_count):
        if is_in(&finders[number], text.start - data, text.start - data + text.length):
            return True
    return False


cdef inline bint is_packed(const Query *query, const Text *body) noexcept nogil:
    """Whether a body begins as one does that an application has packed."""
    cdef int number
    for number in range(query.packing_count):
        if is_wanted(body, &query.packings[number], True):
            return True
    return False


cdef inline bint may_match(
    const Query *query, const Record *record, const uint8_t *data, Finder *finders, Evaluation *evaluation
) noexcept nogil:
    """Whether a record of sound shape may be wanted."""
    cdef int32_t flags = load_i32(record.start + SYS_FLAG)
    cdef bint is_compressed = flags & COMPRESSED and record.body.length > 0
    # Of a batch each message has properties and a size of its own, in the body.
    cdef bint is_batch = flags & IS_BATCH == IS_BATCH
    if not query.first_timestamp <= store_timestamp_at(record.start) <= query.last_timestamp:
        return False
    if query.topic.start != NULL and not is_wanted(&record.topic, &query.topic, False):
        return False
    if query.sender.start != NULL and not is_batch and not is_from(query, record, flags):
        return False
    if not is_batch:
        if not is_compressed and not query.smallest_body <= record.body.length <= query.largest_body:
            return False
        if not has_properties(query, record, evaluation):
            return False
    if query.place == 0:
        return True
    if query.place & IN_BODY or is_batch:
        # The bodies of a batch may each be packed.
        if is_compressed or has_needle(query, finders, data, &record.body) or is_packed(query, &record.body):
            return True
        if is_batch and query.packing_count:
            return True
    return query.place & IN_PROPERTIES != 0 and has_needle(query, finders, data, &record.properties)


cdef inline void fetch(const uint8_t *at, int64_t size) noexcept nogil:
    """Ask memory for what will be read soon: where no bytes are looked for, records would be waited for one by one."""
    cdef int64_t line = 0
    size = min(size, FETCHED_AT_ONCE)
    while line < size:
        __builtin_prefetch(at + FETCHED_AHEAD + line)
        line += CACHE_LINE


@cython.final
cdef class Selection:
    """How a walk over records went."""

    cdef readonly int64_t position  # Where it ended.
    cdef readonly int64_t found  # How many records were noted.
    cdef readonly int64_t records  # How many were stepped over.
    cdef readonly int reason  # Why it ended: AT_LIMIT, AT_BLANK, AT_DAMAGE or OUTPUT_FULL.
    cdef readonly int code  # The `BAD_` code of damage, else 0.

    def __cinit__(self, int64_t position, int64_t found, int64_t records, int reason, int code):
        self.position, self.found, self.records, self.reason, self.code = position, found, records, reason, code


def select_records(
    Region region not None, int64_t position, int64_t stop, int64_t readable, int64_t base, int64_t boundary,
    SearchQuery wanted not None, found: npt.NDArray[np.int64],
) -> Selection:
    """Note in `found` the positions of the records that start in [position, stop) and may be wanted.

    `readable` bounds reading. The region's first byte has the physical offset `base`; the next segment starts at
    `boundary`.
    """
    cdef Room room = Room(found, sizeof(int64_t))
    cdef int64_t *places = <int64_t *>room.items
    cdef const Query *query = &wanted.query
    cdef const uint8_t *data = region.data
    cdef Finder finders[MOST_NEEDLES]
    cdef Evaluation evaluation
    cdef Evaluation *decides = NULL
    cdef Record record
    cdef int64_t size, count = 0, records = 0
    cdef int reason = AT_LIMIT, code = 0, number
    require(region, position, readable)
    for number in range(query.needle_count):
        finders[number].needle, finders[number].data = &wanted.query.needles[number], data
        finders[number].end, finders[number].clear, finders[number].is_hit = readable, 0, False
    if wanted.program is not None:
        blocks = open_evaluation(&evaluation, wanted.program, LONGEST_PROPERTIES)
        decides = &evaluation
    with nogil:
        while position < stop and position + HEAD <= readable:
            size = read_step(&record, data + position, readable - position, base + position, boundary)
            if size <= 0:
                reason, code = AT_BLANK if size == 0 else AT_DAMAGE, <int>size
                break
            if record.start == NULL:
                position += size
                continue
            if count == room.count:
                reason = OUTPUT_FULL
                break
            if record.start - data >= stop:
                position = record.start - data
                break
            if may_match(query, &record, data, finders, decides):
                places[count] = record.start - data
                count += 1
            if query.place == 0:
                fetch(record.start, record.size)
            records += 1
            position += size
    return Selection(position, count, records, reason, code)


def find_needle(
    Region region not None, int64_t position, int64_t stop, bytes data not None, int first, int second,
) -> int:
    """Where a needle, with the positions of its rarest bytes, first lies wholly in [position, stop), or −1."""
    cdef Needle needle
    cdef Finder finder
    require(region, position, stop)
    if not 0 <= first <= second < len(data):
        raise ValueError(f"positions {first} and {second} of a needle of {len(data)} bytes")
    needle.text = text_of(data)
    needle.first, needle.second = first, second
    finder.needle, finder.data, finder.end, finder.clear, finder.is_hit = &needle, region.data, region.size, 0, False
    return finder.clear if is_in(&finder, position, stop) else -1
