"""Read the header of a plain request where it lies, or say that it is not plain: of a view, a key query, a pull.

Plain is what Java's fastjson writes: compact JSON, members in any order, each at most once and of a known name; texts
without escapes and in well-formed UTF-8 without U+FFFD, integers in their shortest form, in quotes or not. On these,
this reader and the decoders of :mod:`protocol` agree by construction; about everything else it has no opinion, and the
ordinary way decides. So it may be narrow, and never has to say what is wrong.

A header comes from a peer, and nothing in it is trusted: each function takes ``stop``, behind the last byte that there
is, and reads none at or behind it. Places are NULL where something is not plain.
"""

from libc.stdint cimport INT32_MAX, INT64_MAX, int64_t, uint8_t, uint64_t

from storage.kernels.java_string cimport REPLACEMENT, Character, decode_sequence
from storage.kernels.lookups cimport KIND_ANY, KIND_KEY, KIND_TAG, KIND_UNIQUE
from storage.kernels.memory cimport __builtin_ctzll, load_i64, load_native_u32, load_native_u64
from storage.kernels.records cimport Text
from storage.kernels.region cimport Region, require

cdef enum:
    LONGEST_NAME = 24
    MOST_NAMES = 64

cdef enum What:  # What stands behind a name.
    AN_I32
    AN_I64
    A_TEXT
    SOME_TEXT  # that says nothing about the answer
    A_KIND
    A_BOOLEAN
    EMPTY_TEXT
    FIELDS
    NULL_OR_TEXT
    THE_OPAQUE
    BYTES_LIMIT

cdef enum:
    OF_HEADER = 0  # Its own members,
    OF_REQUEST = 1  # and the fields of the request.

cdef struct Name:
    int64_t head  # All of it, or its first eight bytes,
    int64_t tail  # its last eight,
    int64_t middle  # and the eighth to the sixteenth.
    int64_t length
    What what
    size_t place  # Where the value goes in a request.


cdef Name names[MOST_NAMES]
cdef int first_by_length[2][LONGEST_NAME + 2]  # The first name that is at least so long.
cdef uint64_t needed_by_view, needed_by_query, needed_by_pull

cdef Request sample  # of which nothing is used but where its members lie

_MEMBERS = (
    (b"code", AN_I32, <size_t>&sample.code - <size_t>&sample),
    (b"flag", AN_I32, <size_t>&sample.flag - <size_t>&sample),
    (b"opaque", THE_OPAQUE, <size_t>&sample.opaque - <size_t>&sample),
    (b"remark", NULL_OR_TEXT, 0),
    (b"version", AN_I32, <size_t>&sample.version - <size_t>&sample),
    (b"language", SOME_TEXT, 0),
    (b"extFields", FIELDS, 0),
    (b"serializeTypeCurrentRPC", SOME_TEXT, 0),
)
"""Name, what stands behind it and its place, by ascending length of the names."""

_EXT_FIELDS = (
    (b"lo", SOME_TEXT, 0),
    (b"ns", SOME_TEXT, 0),
    (b"key", A_TEXT, <size_t>&sample.key - <size_t>&sample),
    (b"nsd", SOME_TEXT, 0),
    (b"oway", SOME_TEXT, 0),
    (b"topic", A_TEXT, <size_t>&sample.topic - <size_t>&sample),
    (b"bname", SOME_TEXT, 0),
    (b"offset", AN_I64, <size_t>&sample.offset - <size_t>&sample),
    (b"maxNum", AN_I32, <size_t>&sample.maximum - <size_t>&sample),
    (b"lastKey", EMPTY_TEXT, 0),
    (b"queueId", AN_I32, <size_t>&sample.queue_id - <size_t>&sample),
    (b"sysFlag", AN_I32, <size_t>&sample.sys_flag - <size_t>&sample),
    (b"indexType", A_KIND, 0),
    (b"liteTopic", SOME_TEXT, 0),
    (b"maxMsgNums", AN_I32, <size_t>&sample.max_messages - <size_t>&sample),
    (b"subVersion", AN_I64, <size_t>&sample.sub_version - <size_t>&sample),
    (b"maxMsgBytes", BYTES_LIMIT, <size_t>&sample.max_bytes - <size_t>&sample),
    (b"queueOffset", AN_I64, <size_t>&sample.queue_offset - <size_t>&sample),
    (b"commitOffset", AN_I64, <size_t>&sample.commit_offset - <size_t>&sample),
    (b"endTimestamp", AN_I64, <size_t>&sample.end_timestamp - <size_t>&sample),
    (b"subscription", A_TEXT, <size_t>&sample.subscription - <size_t>&sample),
    (b"consumerGroup", A_TEXT, <size_t>&sample.group - <size_t>&sample),
    (b"requestSource", AN_I32, <size_t>&sample.ignored - <size_t>&sample),
    (b"beginTimestamp", AN_I64, <size_t>&sample.begin_timestamp - <size_t>&sample),
    (b"expressionType", A_TEXT, <size_t>&sample.expression_type - <size_t>&sample),
    (b"_UNIQUE_KEY_QUERY", A_BOOLEAN, 0),
    (b"proxyFrowardClientId", SOME_TEXT, 0),
    (b"suspendTimeoutMillis", AN_I64, <size_t>&sample.ignored - <size_t>&sample),
)
"""The same. An answer that the lane writes is the same whatever stands in what is only skipped or ignored."""


cdef int list_names() except -1:
    """Fill in the tables of names."""
    cdef int number = 0, group, length
    cdef bytes name
    for group, some in enumerate((_MEMBERS, _EXT_FIELDS)):
        for length in range(LONGEST_NAME + 2):
            first_by_length[group][length] = number + sum(len(name) < length for name, _, _ in some)
        for name, what, place in some:
            names[number].head = int.from_bytes(name[:8], "big")
            names[number].tail = int.from_bytes(name[max(len(name) - 8, 0) :], "big")
            names[number].middle = int.from_bytes(name[8:16], "big")
            names[number].length, names[number].what, names[number].place = len(name), what, place
            number += 1
    return 0


cdef uint64_t bits_of(bytes wanted) except 0:
    """The bits of what every header has that is answered, and of some fields."""
    cdef uint64_t bits = 0
    known = [name for name, _, _ in _MEMBERS + _EXT_FIELDS]
    for name in (*b"code opaque flag extFields".split(), *wanted.split()):
        bits |= <uint64_t>1 << <int>known.index(name)
    return bits


list_names()
needed_by_view = bits_of(b"offset")
needed_by_query = bits_of(b"topic key maxNum beginTimestamp endTimestamp")
needed_by_pull = bits_of(
    b"consumerGroup topic queueId queueOffset maxMsgNums sysFlag commitOffset suspendTimeoutMillis subVersion"
)


# --- The pieces of compact JSON ---


cdef inline uint64_t special_bytes(uint64_t word) noexcept nogil:
    """The top bit of each of eight bytes that ends a run of plain ASCII: right up to the first such byte.

    A quote, a backslash, a control or what is not ASCII. A byte less than ``n`` sets its top bit when ``n`` is taken
    away, and its borrow may set others, but only behind it.
    """
    cdef uint64_t each = <uint64_t>0x0101010101010101
    cdef uint64_t quotes = word ^ (c'"' * each), backslashes = word ^ (c"\\" * each)
    return (
        ((quotes - each) & ~quotes) | ((backslashes - each) & ~backslashes) | ((word - c" " * each) & ~word) | word
    ) & (each << 7)


cdef const uint8_t *find_plain_end(const uint8_t *at, const uint8_t *stop) noexcept nogil:
    """The first byte from ``at`` on that is a quote, a backslash, a control or not ASCII, or ``stop``."""
    cdef uint64_t special
    while stop - at >= 8:
        special = special_bytes(load_native_u64(at))
        if special:
            return at + (__builtin_ctzll(special) >> 3)
        at += 8
    while at < stop and not (at[0] == c'"' or at[0] == c"\\" or at[0] < c" " or at[0] >= 128):
        at += 1
    return at


cdef inline bint is_at(const uint8_t *at, const uint8_t *stop, uint8_t byte) noexcept nogil:
    return at < stop and at[0] == byte


cdef inline const uint8_t *read_text(const uint8_t *at, const uint8_t *stop, Text *text) noexcept nogil:
    """Read a text in quotes; the place behind them."""
    cdef Character character
    if not is_at(at, stop, c'"'):
        return NULL
    at += 1
    text.start = at
    at = find_plain_end(at, stop)
    while at < stop and at[0] != c'"':
        if at[0] < c" " or at[0] == c"\\":
            return NULL
        character = decode_sequence(at, stop - at)
        if character.point == REPLACEMENT:
            return NULL
        at = find_plain_end(at + character.length, stop)
    if at >= stop:
        return NULL
    text.length = at - text.start
    return at + 1


cdef inline const uint8_t *read_integer(const uint8_t *at, const uint8_t *stop, int64_t *value) noexcept nogil:
    """Read a 64-bit integer in its shortest form, in quotes or not; the place behind it."""
    cdef bint is_quoted = is_at(at, stop, c'"'), is_negative
    cdef const uint8_t *start
    cdef int64_t number = 0
    cdef uint8_t digit
    at += is_quoted
    is_negative = is_at(at, stop, c"-")
    at += is_negative
    start = at
    while at < stop:
        digit = <uint8_t>(at[0] - c"0")
        if digit > 9:
            break
        if number >= INT64_MAX // 10 and (number > INT64_MAX // 10 or digit > 7):
            return NULL
        number = number * 10 + digit
        at += 1
    if at == start or (start[0] == c"0" and (is_negative or at - start > 1)):
        return NULL
    value[0] = -number if is_negative else number
    if not is_quoted:
        return at
    return at + 1 if is_at(at, stop, c'"') else NULL


cdef inline const uint8_t *read_i32(const uint8_t *at, const uint8_t *stop, int64_t *value) noexcept nogil:
    """The same for a 32-bit integer."""
    at = read_integer(at, stop, value)
    return at if -INT32_MAX - 1 <= value[0] <= INT32_MAX else NULL


# --- A request ---


cdef const uint8_t *read_boolean(const uint8_t *at, const uint8_t *stop, Request *request) noexcept nogil:
    """Read ``"true"`` or ``"false"``."""
    cdef Text text
    at = read_text(at, stop, &text)
    if at == NULL:
        return NULL
    request.is_unique = text.length == 4 and load_native_u32(text.start) == load_native_u32(b"true")
    if request.is_unique:
        return at
    if text.length == 5 and load_native_u32(text.start + 1) == load_native_u32(b"alse") and text.start[0] == c"f":
        return at
    return NULL


cdef const uint8_t *read_kind(const uint8_t *at, const uint8_t *stop, Request *request) noexcept nogil:
    """Read the kind of key: K, U or T; any other text means any."""
    cdef Text text
    at = read_text(at, stop, &text)
    if at == NULL:
        return NULL
    request.kind = KIND_ANY
    if text.length == 1:
        if text.start[0] == c"K":
            request.kind = KIND_KEY
        elif text.start[0] == c"U":
            request.kind = KIND_UNIQUE
        elif text.start[0] == c"T":
            request.kind = KIND_TAG
    return at


cdef inline int find_name(const uint8_t *at, int64_t length, int group) noexcept nogil:
    """The number of the known name that stands there, or −1; eight bytes must be readable."""
    cdef int number
    cdef int64_t head
    cdef Name *name
    if length < 1 or length > LONGEST_NAME:
        return -1
    head = load_i64(at)
    if length < 8:
        head = <int64_t>(<uint64_t>head >> (64 - 8 * length))
    for number in range(first_by_length[group][length], first_by_length[group][length + 1]):
        name = &names[number]
        if name.head == head and (
            length <= 8
            or (load_i64(at + length - 8) == name.tail and (length <= 16 or load_i64(at + 8) == name.middle))
        ):
            return number
    return -1


cdef inline int read_name(const uint8_t *at, const uint8_t *stop, int group, Request *request) noexcept nogil:
    """The number of the known name in quotes that stands there, before a colon and for the first time; −1 if none."""
    cdef const uint8_t *end
    cdef int number
    if stop - at < 9 or at[0] != c'"':
        return -1
    end = find_plain_end(at + 1, stop)
    if stop - end < 2 or end[0] != c'"' or end[1] != c":":
        return -1
    number = find_name(at + 1, end - at - 1, group)
    if number < 0 or request.seen >> number & 1:
        return -1
    request.seen |= <uint64_t>1 << number
    return number


cdef inline const uint8_t *read_value(
    const Name *name, const uint8_t *at, const uint8_t *stop, Request *request
) noexcept nogil:
    """Read what stands behind the name of a field; the place behind it."""
    cdef uint8_t *place = <uint8_t *>request + name.place
    cdef Text skipped
    cdef const uint8_t *end
    if name.what == A_TEXT:
        return read_text(at, stop, <Text *>place)
    if name.what == AN_I64:
        return read_integer(at, stop, <int64_t *>place)
    if name.what == AN_I32:
        return read_i32(at, stop, <int64_t *>place)
    if name.what == BYTES_LIMIT:
        request.has_max_bytes = True
        return read_i32(at, stop, <int64_t *>place)
    if name.what == A_KIND:
        return read_kind(at, stop, request)
    if name.what == A_BOOLEAN:
        return read_boolean(at, stop, request)
    end = read_text(at, stop, &skipped)
    if end != NULL and name.what == EMPTY_TEXT and skipped.length:
        return NULL
    return end


cdef const uint8_t *read_ext_fields(const uint8_t *at, const uint8_t *stop, Request *request) noexcept nogil:
    """Read the object of a request's own fields; the place behind it."""
    cdef int number
    if not is_at(at, stop, c"{"):
        return NULL
    while True:
        number = read_name(at + 1, stop, OF_REQUEST, request)
        if number < 0:
            return NULL
        at = read_value(&names[number], at + names[number].length + 4, stop, request)
        if at == NULL or at >= stop:
            return NULL
        if at[0] != c",":
            return at + 1 if at[0] == c"}" else NULL


cdef inline const uint8_t *read_member(
    const Name *name, const uint8_t *at, const uint8_t *stop, Request *request
) noexcept nogil:
    """Read the value of one of the header's own members; the place behind it."""
    cdef const uint8_t *end
    cdef Text skipped
    if name.what == FIELDS:
        return read_ext_fields(at, stop, request)
    if name.what == NULL_OR_TEXT and stop - at >= 4 and load_native_u32(at) == load_native_u32(b"null"):
        return at + 4
    if name.what != AN_I32 and name.what != THE_OPAQUE:
        return read_text(at, stop, &skipped)
    if is_at(at, stop, c'"'):
        return NULL
    end = read_i32(at, stop, <int64_t *>(<uint8_t *>request + name.place))
    if name.what == THE_OPAQUE:
        request.opaque_digits.start, request.opaque_digits.length = at, end - at
    return end


cdef inline bint is_complete(const Request *request) noexcept nogil:
    """Whether a request is one that the lane knows, says all that it has to, and wants an answer."""
    cdef uint64_t needed
    if request.code == VIEW:
        needed = needed_by_view
    elif request.code == QUERY:
        needed = needed_by_query
    elif request.code == PULL or request.code == LITE_PULL:
        needed = needed_by_pull
    else:
        return False
    return request.seen & needed == needed and request.flag == 0


cdef bint read_request(const uint8_t *at, const uint8_t *stop, Request *request) noexcept nogil:
    """Read a header; whether it is plain, and complete for its code."""
    cdef int number
    request.seen = 0
    request.kind = KIND_ANY
    request.is_unique = request.has_max_bytes = False
    request.topic.start = request.subscription.start = request.expression_type.start = NULL
    request.topic.length = request.subscription.length = request.expression_type.length = 0
    if not is_at(at, stop, c"{"):
        return False
    while True:
        number = read_name(at + 1, stop, OF_HEADER, request)
        if number < 0:
            return False
        at = read_member(&names[number], at + names[number].length + 4, stop, request)
        if at == NULL or at >= stop:
            return False
        if at[0] != c",":
            break
    if at[0] != c"}" or at + 1 != stop:
        return False
    if request.is_unique:
        request.kind = KIND_UNIQUE
    return is_complete(request)


# --- Doors ---


def plain_end(Region data not None, int64_t position):
    require(data, position, position)
    return find_plain_end(data.data + position, data.data + data.size) - data.data


def code_of(Region header not None):
    cdef Request request
    return request.code if read_request(header.data, header.data + header.size, &request) else None
