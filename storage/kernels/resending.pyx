"""Plain records as a producer sends them again: what is noted of each, and each as a message of a batch.

Which properties stay, and which topics, is said by who makes the rules. A record is declined of which anything needs
more than to copy bytes: a batch, an IPv6 address, text that is no UTF-8, two properties of one name, a missing key.
"""

cimport cython
from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

import numpy as np

from protocol.kernels.memory cimport load_i32, load_i64, load_native_u64, store_i16, store_i32
from protocol.kernels.responses cimport LONGEST_NUMBER, digits_of, write_text
from storage.kernels.checksum cimport crc32_of
from storage.kernels.records cimport (
    BODY_CRC,
    BORN_TIMESTAMP,
    BORN_HOST_V6,
    CRC_MASK,
    FLAG,
    INNER_BODY_LENGTH,
    INNER_FLAG,
    INNER_HEAD,
    IPV6_EXTRA,
    Property,
    PropertyWalk,
    QUEUE_ID,
    QUEUE_OFFSET,
    Record,
    STORE_HOST_V6,
    STORE_IP,
    STORE_TIMESTAMP,
    SYS_FLAG,
    Text,
    begin_properties,
    is_batch,
    is_text,
    next_property,
    read_shape,
    text_of,
)
from storage.kernels.region cimport Block, Column, Region, Room, require, take


cdef extern from "Python.h":
    unicode PyUnicode_DecodeASCII(const char *text, Py_ssize_t size, const char *errors)


cdef enum:
    MOST_KEPT = 48  # Properties of a record; what has more is declined.
    LONGEST_NAME = 64  # Of a property that is left behind.
    MOST_PROPERTIES = 32767
    IPV4_HOST = 8  # Address and port.
    SCRATCH = 1 << 17
    LONGEST_CLUSTER = 1024


cdef struct Plain:  # A record that is only copied.
    Record record
    Property kept[MOST_KEPT]
    int count
    Text unique_key
    int64_t size  # Bytes of the properties that are kept.
    int64_t way


@cython.final
cdef class ResendRules:
    """What stays of a message, and what is added."""

    cdef list _names  # Which are held as long as the rules.
    cdef Text *left
    cdef int first[LONGEST_NAME + 2]  # Of the names of a length, which are sorted by it.
    cdef bytes _origin
    cdef Text origin
    cdef bytes _cluster
    cdef Text cluster
    cdef int32_t kept_flags
    cdef object _way_of
    cdef dict _ways
    cdef uint8_t *scratch
    cdef list _blocks

    def __cinit__(
        self, *, left_behind: Iterable[bytes], bytes origin not None, bytes cluster not None, int kept_flags,
        way_of: Callable[[bytes, bytes, int], int],
    ) -> None:
        """Leave the properties `left_behind`, and add one named `origin`, which says the `cluster`.

        Of sysFlag the bits `kept_flags` stay. `way_of` is asked once for the way of messages by topic, packed IPv4
        address and queue of the source: a number, negative for those that are declined. Raises ValueError for long
        names.
        """
        cdef int number = 0, length
        cdef bytes name
        self._names = sorted(left_behind, key=len)
        longest = max(map(len, [*self._names, origin]))
        if longest > LONGEST_NAME or len(cluster) > LONGEST_CLUSTER:
            raise ValueError("a name is too long")
        self._blocks = []
        self.left = <Text *>take(self._blocks, len(self._names), sizeof(Text))
        self.scratch = <uint8_t *>take(self._blocks, SCRATCH, 1)
        for length in range(LONGEST_NAME + 2):
            self.first[length] = sum(1 for name in self._names if len(name) < length)
        for number, name in enumerate(self._names):
            self.left[number] = text_of(name)
        self._origin, self._cluster = origin, cluster
        self.origin, self.cluster = text_of(origin), text_of(cluster)
        self.kept_flags = kept_flags
        self._way_of, self._ways = way_of, {}

    cdef int64_t way(self, const Plain *plain) except? -2:
        """The way of a message from an IPv4 address."""
        cdef const Text *topic = &plain.record.topic
        cdef const uint8_t *record = plain.record.start
        cdef const uint8_t *host = record + STORE_IP + (IPV6_EXTRA if load_i32(record + SYS_FLAG) & BORN_HOST_V6 else 0)
        cdef bytes key = PyBytes_FromStringAndSize(NULL, IPV4_HOST + sizeof(int32_t) + topic.length)
        cdef uint8_t *to = <uint8_t *>PyBytes_AsString(key)
        memcpy(to, host, IPV4_HOST)
        memcpy(to + IPV4_HOST, record + QUEUE_ID, sizeof(int32_t))
        memcpy(to + IPV4_HOST + sizeof(int32_t), topic.start, topic.length)
        found = self._ways.get(key)
        if found is None:
            found = self._ways[key] = self._way_of(
                key[IPV4_HOST + sizeof(int32_t):], key[:IPV4_HOST], load_i32(record + QUEUE_ID)
            )
        return found


cdef bint is_left(ResendRules rules, const Text *name) noexcept nogil:
    """Whether a property is left behind."""
    cdef int i
    if name.length > LONGEST_NAME:
        return False
    for i in range(rules.first[name.length], rules.first[name.length + 1]):
        if memcmp(rules.left[i].start, name.start, name.length) == 0:
            return True
    return False


cdef int64_t ascii_length(const uint8_t *start, int64_t length) noexcept nogil:
    """How many bytes of a text are ASCII before the first that is not."""
    cdef int64_t i = 0
    while i + 8 <= length and not load_native_u64(start + i) & <uint64_t>0x8080808080808080:
        i += 8
    while i < length and not start[i] & 0x80:
        i += 1
    return i


cdef bint is_utf8(const Text *text) noexcept nogil:
    """Whether Java and Python read a text alike: no byte of it is malformed UTF-8, nor a half character."""
    cdef const uint8_t *at
    cdef int64_t i = 0
    cdef uint32_t point
    cdef int more, k
    while True:
        i += ascii_length(text.start + i, text.length - i)
        if i == text.length:
            return True
        at = text.start + i
        more = 1 if at[0] >> 5 == 6 else 2 if at[0] >> 4 == 14 else 3 if at[0] >> 3 == 30 else 0
        if more == 0 or text.length - i <= more:
            return False
        point = at[0] & (0x3F >> more)
        for k in range(1, more + 1):
            if at[k] >> 6 != 2:
                return False
            point = point << 6 | (at[k] & 0x3F)
        if point < (0x80 if more == 1 else 0x800 if more == 2 else 0x10000) or point > 0x10FFFF:
            return False
        if point >> 11 == 0x1B:
            return False
        i += more + 1


cdef bint is_repeated(const Plain *plain, const Text *name) noexcept nogil:
    cdef int i
    for i in range(plain.count):
        if plain.kept[i].name.length == name.length and memcmp(plain.kept[i].name.start, name.start, name.length) == 0:
            return True
    return False


cdef bint read_plain(
    Plain *plain, ResendRules rules, const uint8_t *start, int64_t available, int64_t physical_offset
) noexcept nogil:
    """Read a record that is only copied; False where it is another, or none, which has no size."""
    cdef PropertyWalk walk
    cdef Property each
    if read_shape(&plain.record, start, available, physical_offset) < 0:
        plain.record.size = 0
        return False
    if is_batch(start) or load_i32(start + SYS_FLAG) & (BORN_HOST_V6 | STORE_HOST_V6):
        return False
    if not is_utf8(&plain.record.properties):
        return False
    plain.count = 0
    plain.size = 0
    plain.unique_key.start, plain.unique_key.length = NULL, 0
    begin_properties(&walk, &plain.record.properties)
    while next_property(&walk, &each):
        if is_left(rules, &each.name):
            continue
        if plain.count == MOST_KEPT or is_repeated(plain, &each.name):
            return False
        if each.name.length == rules.origin.length and memcmp(
            each.name.start, rules.origin.start, rules.origin.length
        ) == 0:
            return False
        if is_text(&each.name, b"UNIQ_KEY", 8):
            plain.unique_key = each.value
        plain.kept[plain.count] = each
        plain.count += 1
        plain.size += each.name.length + each.value.length + 2
    if plain.unique_key.start == NULL:
        return False
    return ascii_length(plain.unique_key.start, plain.unique_key.length) == plain.unique_key.length


cdef int64_t write_origin(uint8_t *to, const Plain *plain, ResendRules rules) noexcept nogil:
    """Write where a message was stored first: offset message id, born and store time, cluster; its length."""
    cdef const uint8_t *record = plain.record.start
    cdef const char *digits = b"0123456789ABCDEF"
    cdef uint8_t room[LONGEST_NUMBER]
    cdef uint8_t *at
    cdef uint8_t byte
    cdef Text number
    cdef int64_t used = 0
    cdef int i
    for i in range(IPV4_HOST + 8):
        byte = record[STORE_IP + i] if i < IPV4_HOST else <uint8_t>(
            <uint64_t>plain.record.physical_offset >> (8 * (IPV4_HOST + 7 - i))
        )
        to[used], to[used + 1] = digits[byte >> 4], digits[byte & 15]
        used += 2
    to[used] = c" "
    number = digits_of(load_i64(record + BORN_TIMESTAMP), room)
    at = write_text(to + used + 1, &number)
    at[0] = c" "
    number = digits_of(load_i64(record + STORE_TIMESTAMP), room)
    at = write_text(at + 1, &number)
    at[0] = c" "
    return write_text(at + 1, &rules.cluster) - to


cdef int32_t crc_of(const Plain *plain) noexcept nogil:
    return load_i32(plain.record.start + BODY_CRC) if plain.record.body.length else 0


cdef int64_t inner_properties(const Plain *plain, ResendRules rules, int64_t origin) noexcept nogil:
    """Bytes of the properties that a message is sent with, whose origin has so many."""
    return plain.size + rules.origin.length + origin + 2


cdef uint8_t *write_inner(uint8_t *to, const Plain *plain, ResendRules rules, int64_t origin) noexcept nogil:
    """Write a message as one of a batch: head, body, properties; the origin lies in `scratch`. The place behind it."""
    cdef int64_t properties = inner_properties(plain, rules, origin), body = plain.record.body.length
    cdef int i
    store_i32(to, <int32_t>(INNER_HEAD + body + 2 + properties))
    store_i32(to + 4, 0)
    store_i32(to + 8, 0)
    store_i32(to + INNER_FLAG, load_i32(plain.record.start + FLAG))
    store_i32(to + INNER_BODY_LENGTH, <int32_t>body)
    to = write_text(to + INNER_HEAD, &plain.record.body)
    store_i16(to, <short>properties)
    to += 2
    for i in range(plain.count):
        to = write_text(to, &plain.kept[i].name)
        to[0] = 1
        to = write_text(to + 1, &plain.kept[i].value)
        to[0] = 2
        to += 1
    to = write_text(to, &rules.origin)
    to[0] = 1
    memcpy(to + 1, rules.scratch, origin)
    to += 1 + origin
    to[0] = 2
    return to + 1


cdef int64_t plain_at(
    Plain *plain, ResendRules rules, Region region, int64_t position, int64_t readable, int64_t base
) except -2:
    """Read a record that is only copied, and write its origin, of which the length is returned; −1 for another.

    The way is known of both.
    """
    cdef int64_t origin
    cdef bint is_plain
    require(region, position, readable)
    is_plain = read_plain(plain, rules, region.data + position, readable - position, base + position)
    plain.way = -1
    if plain.record.size > 0 and not load_i32(plain.record.start + SYS_FLAG) & STORE_HOST_V6:
        plain.way = rules.way(plain)
    if plain.way < 0 or not is_plain:
        return -1
    origin = write_origin(rules.scratch, plain, rules)
    return origin if inner_properties(plain, rules, origin) <= MOST_PROPERTIES else -1


def resend_ways(
    Region region not None, positions: npt.NDArray[np.int64], int64_t readable, int64_t base, ResendRules rules not None,
) -> npt.NDArray[np.int64]:
    """Return the way of each record; where it is declined −1, or −2 − w where others of its queue go by the way w.

    `readable` bounds reading. The region's first byte has the physical offset `base`. Raises ValueError for a position
    that lies outside.
    """
    cdef Column places = Column(positions, sizeof(int64_t))
    cdef const int64_t *at = <const int64_t *>places.items
    cdef Plain plain
    cdef Py_ssize_t i
    cdef int64_t origin
    ways = np.empty(places.count, np.int64)
    cdef Room room = Room(ways, sizeof(int64_t))
    cdef int64_t *to = <int64_t *>room.items
    require(region, 0, readable)
    for i in range(places.count):
        origin = plain_at(&plain, rules, region, at[i], readable, base)
        to[i] = plain.way if origin >= 0 else -1 if plain.way < 0 else -2 - plain.way
    return ways


def resend_parcels(
    Region region not None, positions: npt.NDArray[np.int64], int64_t readable, int64_t base, ResendRules rules not None,
    *, bint with_messages,
) -> tuple[
    list[tuple[int, str, int, int, int, int, int, int, None] | None], bytes, npt.NDArray[np.int64], npt.NDArray[np.int32]
]:
    """Return what is noted of each record; the messages as in a batch, where each ends, and its sysFlag.

    Noted are way, unique key, physical and queue offset, CRC of the body, born and store time (ms), bytes of the body,
    and None for the place. A record that is declined, or whose body was changed since it was chosen, has None, and an
    empty message. Without `with_messages` there are none. The rest is as for :func:`resend_ways`.
    """
    cdef Column places = Column(positions, sizeof(int64_t))
    cdef const int64_t *at = <const int64_t *>places.items
    cdef Plain plain
    cdef Py_ssize_t i
    cdef int64_t origin, size = 0, needed, behind
    cdef const uint8_t *record
    cdef uint8_t *made
    cdef Block messages = Block()
    cdef list rows = []
    ends, flags = np.zeros(places.count, np.int64), np.zeros(places.count, np.int32)
    cdef Room end_room = Room(ends, sizeof(int64_t)), flag_room = Room(flags, sizeof(int32_t))
    require(region, 0, readable)
    for i in range(places.count):
        row = None
        origin = plain_at(&plain, rules, region, at[i], readable, base)
        if origin >= 0:
            record = plain.record.start
            row = (
                plain.way,
                PyUnicode_DecodeASCII(<const char *>plain.unique_key.start, plain.unique_key.length, NULL),
                plain.record.physical_offset,
                load_i64(record + QUEUE_OFFSET),
                crc_of(&plain),
                load_i64(record + BORN_TIMESTAMP),
                load_i64(record + STORE_TIMESTAMP),
                plain.record.body.length,
                None,
            )
            (<int32_t *>flag_room.items)[i] = load_i32(record + SYS_FLAG) & rules.kept_flags
            if with_messages:
                needed = INNER_HEAD + plain.record.body.length + 2 + inner_properties(&plain, rules, origin)
                if size + needed > messages.size and not messages.grow(2 * (size + needed)):
                    raise MemoryError
                made = <uint8_t *>messages.items
                behind = write_inner(made + size, &plain, rules, origin) - made
                # Of what is sent, not of what may change after a look at it.
                if <int32_t>(
                    crc32_of(made + size + INNER_HEAD, plain.record.body.length) & CRC_MASK
                ) == crc_of(&plain):
                    size = behind
                else:
                    row = None
        (<int64_t *>end_room.items)[i] = size
        rows.append(row)
    return rows, PyBytes_FromStringAndSize(<const char *>messages.items, size), ends, flags
