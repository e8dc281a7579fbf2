"""Plain records as a producer sends them again: what is noted of each, and each as a message of a batch.

Which properties stay, and which topics, is said by who makes the rules. A record is declined of which anything needs
more than to copy bytes: a batch, an IPv6 address, text that is no UTF-8, two properties of one name, a missing key.
"""

cimport cython
from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from protocol.kernels.memory cimport load_i32, load_i64, load_native_u64, store_i16, store_i32
from storage.kernels.records cimport (
    BODY_CRC,
    BORN_TIMESTAMP,
    BORN_HOST_V6,
    FLAG,
    INNER_BODY_LENGTH,
    INNER_FLAG,
    INNER_HEAD,
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
from storage.kernels.region cimport Column, Region, require


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
    cdef object _target_of
    cdef dict _targets
    cdef frozenset _own_hosts
    cdef dict _hosts
    cdef uint8_t *scratch

    def __cinit__(
        self, *, left_behind: Iterable[bytes], bytes origin not None, bytes cluster not None, int kept_flags,
        own_hosts: Iterable[bytes], target_of: Callable[[bytes], str | None],
    ) -> None:
        """Leave the properties `left_behind`, and add one named `origin`, which says the `cluster`.

        Of sysFlag the bits `kept_flags` stay. Records of `own_hosts`, packed IPv4 addresses, are declined. `target_of`
        is asked once for each topic where its messages go; None declines them. Raises ValueError for long names.
        """
        cdef int number = 0, length
        cdef bytes name
        self._names = sorted(left_behind, key=len)
        longest = max(map(len, [*self._names, origin]))
        if longest > LONGEST_NAME or len(cluster) > LONGEST_CLUSTER:
            raise ValueError("a name is too long")
        self.left = <Text *>malloc((len(self._names) + 1) * sizeof(Text))
        self.scratch = <uint8_t *>malloc(SCRATCH)
        if self.left == NULL or self.scratch == NULL:
            raise MemoryError
        for length in range(LONGEST_NAME + 2):
            self.first[length] = sum(1 for name in self._names if len(name) < length)
        for number, name in enumerate(self._names):
            self.left[number] = text_of(name)
        self._origin, self._cluster = origin, cluster
        self.origin, self.cluster = text_of(origin), text_of(cluster)
        self.kept_flags = kept_flags
        self._target_of, self._targets = target_of, {}
        self._own_hosts, self._hosts = frozenset(own_hosts), {}

    def __dealloc__(self):
        free(self.left)
        free(self.scratch)

    cdef object target(self, const Text *topic):
        """The topic that messages of one are sent to; None where that is not plain."""
        cdef bytes name = PyBytes_FromStringAndSize(<const char *>topic.start, topic.length)
        found = self._targets.get(name, self)
        if found is self:
            found = self._targets[name] = self._target_of(name)
        return found

    cdef object host(self, const uint8_t *at):
        """The text of an address; None where messages of its broker are not plain."""
        cdef bytes packed = PyBytes_FromStringAndSize(<const char *>at, IPV4_HOST)
        found = self._hosts.get(packed, self)
        if found is self:
            found = None
            if packed not in self._own_hosts:
                found = f"{at[0]}.{at[1]}.{at[2]}.{at[3]}:{load_i32(at + 4)}"
            self._hosts[packed] = found
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
    """Read a record that is only copied; False where it is another, or none."""
    cdef PropertyWalk walk
    cdef Property each
    if read_shape(&plain.record, start, available, physical_offset) < 0:
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
    cdef uint8_t byte
    cdef int64_t used = 0
    cdef int i
    for i in range(IPV4_HOST + 8):
        byte = record[STORE_IP + i] if i < IPV4_HOST else <uint8_t>(
            <uint64_t>plain.record.physical_offset >> (8 * (IPV4_HOST + 7 - i))
        )
        to[used], to[used + 1] = digits[byte >> 4], digits[byte & 15]
        used += 2
    used += snprintf(
        <char *>to + used, 64, b" %lld %lld ",
        <long long>load_i64(record + BORN_TIMESTAMP), <long long>load_i64(record + STORE_TIMESTAMP),
    )
    memcpy(to + used, rules.cluster.start, rules.cluster.length)
    return used + rules.cluster.length


cdef unicode place_of(const Plain *plain, ResendRules rules, object host):
    """The name of a message's place: host, physical offset, queue offset, unique key."""
    cdef bytes text = host.encode()
    cdef int64_t used = len(text)
    memcpy(rules.scratch, PyBytes_AsString(text), used)
    used += snprintf(
        <char *>rules.scratch + used, 64, b" %lld %lld ",
        <long long>plain.record.physical_offset, <long long>load_i64(plain.record.start + QUEUE_OFFSET),
    )
    memcpy(rules.scratch + used, plain.unique_key.start, plain.unique_key.length)
    return PyUnicode_DecodeASCII(<const char *>rules.scratch, used + plain.unique_key.length, b"replace")


cdef unicode ascii(const uint8_t *start, int64_t length):
    return PyUnicode_DecodeASCII(<const char *>start, length, b"replace")


cdef int32_t crc_of(const Plain *plain) noexcept nogil:
    return load_i32(plain.record.start + BODY_CRC) if plain.record.body.length else 0


cdef bytes inner_of(const Plain *plain, ResendRules rules):
    """The message as one of a batch; None where its properties are too long."""
    cdef int64_t origin = write_origin(rules.scratch, plain, rules)
    cdef int64_t properties = plain.size + rules.origin.length + origin + 2
    cdef int64_t body = plain.record.body.length, size
    cdef bytes made
    cdef uint8_t *to
    cdef int i
    if properties > MOST_PROPERTIES:
        return None
    size = INNER_HEAD + body + 2 + properties
    made = PyBytes_FromStringAndSize(NULL, size)
    to = <uint8_t *>PyBytes_AsString(made)
    store_i32(to, <int32_t>size)
    store_i32(to + 4, 0)
    store_i32(to + 8, 0)
    store_i32(to + INNER_FLAG, load_i32(plain.record.start + FLAG))
    store_i32(to + INNER_BODY_LENGTH, <int32_t>body)
    to += INNER_HEAD
    memcpy(to, plain.record.body.start, body)
    store_i16(to + body, <short>properties)
    to += body + 2
    for i in range(plain.count):
        memcpy(to, plain.kept[i].name.start, plain.kept[i].name.length)
        to += plain.kept[i].name.length
        to[0] = 1
        memcpy(to + 1, plain.kept[i].value.start, plain.kept[i].value.length)
        to += plain.kept[i].value.length + 2
        (to - 1)[0] = 2
    memcpy(to, rules.origin.start, rules.origin.length)
    to += rules.origin.length
    to[0] = 1
    memcpy(to + 1, rules.scratch, origin)
    (to + 1 + origin)[0] = 2
    return made


cdef tuple plain_at(
    Plain *plain, ResendRules rules, Region region, int64_t position, int64_t readable, int64_t base
):
    """Read a record that is only copied: the topic that it goes to, and the text of its host; None for another."""
    require(region, position, readable)
    if not read_plain(plain, rules, region.data + position, readable - position, base + position):
        return None
    topic, host = rules.target(&plain.record.topic), rules.host(plain.record.start + STORE_IP)
    return None if topic is None or host is None else (topic, host)


def resend_rows(
    Region region not None, positions: npt.NDArray[np.int64], int64_t readable, int64_t base, ResendRules rules not None,
) -> list[tuple[str, str, str, str, int, int, int] | None]:
    """Return of each record place, unique key, topic, origin, store time (ms), bytes and CRC of the body.

    None stands for a record that is declined. `readable` bounds reading. The region's first byte has the physical
    offset `base`. Raises ValueError for a position that lies outside.
    """
    cdef Column places = Column(positions, 8)
    cdef const int64_t *at = <const int64_t *>places.items
    cdef Plain plain
    cdef Py_ssize_t i
    cdef int64_t length
    cdef list rows = []
    require(region, 0, readable)
    for i in range(places.count):
        row = None
        found = plain_at(&plain, rules, region, at[i], readable, base)
        if found is not None:
            topic, host = found
            place = place_of(&plain, rules, host)
            length = write_origin(rules.scratch, &plain, rules)
            if plain.size + rules.origin.length + length + 2 <= MOST_PROPERTIES:
                row = (
                    place,
                    ascii(plain.unique_key.start, plain.unique_key.length),
                    topic,
                    ascii(rules.scratch, length),
                    load_i64(plain.record.start + STORE_TIMESTAMP),
                    plain.record.body.length,
                    crc_of(&plain),
                )
        rows.append(row)
    return rows


def resend_parcels(
    Region region not None, positions: npt.NDArray[np.int64], int64_t readable, int64_t base, ResendRules rules not None,
) -> list[tuple[str, str, str, int, str, int, int, bytes] | None]:
    """Return of each record place, unique key, topic, CRC of the body, store host, queue id, sysFlag and the message.

    The last is its form in a batch: head, body, properties. The rest is as for :func:`resend_rows`.
    """
    cdef Column places = Column(positions, 8)
    cdef const int64_t *at = <const int64_t *>places.items
    cdef Plain plain
    cdef Py_ssize_t i
    cdef list parcels = []
    require(region, 0, readable)
    for i in range(places.count):
        parcel = None
        found = plain_at(&plain, rules, region, at[i], readable, base)
        inner = None if found is None else inner_of(&plain, rules)
        if inner is not None:
            topic, host = found
            parcel = (
                place_of(&plain, rules, host),
                ascii(plain.unique_key.start, plain.unique_key.length),
                topic,
                crc_of(&plain),
                host,
                load_i32(plain.record.start + QUEUE_ID),
                load_i32(plain.record.start + SYS_FLAG) & rules.kept_flags,
                inner,
            )
        parcels.append(parcel)
    return parcels
