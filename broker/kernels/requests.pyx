"""Read the header of a plain request where it lies, or say that it is not plain: of a view, a key query, a pull.

Plain is what Java's fastjson writes: members in any order, each at most once and of a known name; texts without escapes
and in well-formed UTF-8 without U+FFFD, integers in their shortest form, in quotes or not. What the JSON says is read
as for all commands (protocol/kernels/json_members.pxd); about what is not plain nothing is said here, and the ordinary
way decides. So this may be narrow, and never has to say what is wrong.
"""

from libc.stdint cimport INT32_MAX, int64_t, uint8_t, uint64_t

from protocol.kernels.json_members cimport (
    A_NULL,
    A_TEXT,
    Value,
    Walk,
    enter,
    find_plain_end,
    next_member,
    read_plain,
    skip_blanks,
)
from protocol.kernels.memory cimport Text, load_i64, load_native_u32
from storage.kernels.lookups cimport KIND_ANY, KIND_KEY, KIND_TAG, KIND_UNIQUE
from storage.kernels.region cimport Region, require

cdef enum:
    LONGEST_NAME = 24
    MOST_NAMES = 64

cdef enum What:  # What stands behind a name.
    I32
    I64
    TEXT
    SOME_TEXT  # that says nothing about the answer
    KIND
    BOOLEAN
    EMPTY_TEXT
    FIELDS
    NULL_OR_TEXT
    OPAQUE
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
    (b"code", I32, <size_t>&sample.code - <size_t>&sample),
    (b"flag", I32, <size_t>&sample.flag - <size_t>&sample),
    (b"opaque", OPAQUE, <size_t>&sample.opaque - <size_t>&sample),
    (b"remark", NULL_OR_TEXT, 0),
    (b"version", I32, <size_t>&sample.version - <size_t>&sample),
    (b"language", SOME_TEXT, 0),
    (b"extFields", FIELDS, 0),
    (b"serializeTypeCurrentRPC", SOME_TEXT, 0),
)
"""Name, what stands behind it and its place, by ascending length of the names."""

_EXT_FIELDS = (
    (b"lo", SOME_TEXT, 0),
    (b"ns", SOME_TEXT, 0),
    (b"key", TEXT, <size_t>&sample.key - <size_t>&sample),
    (b"nsd", SOME_TEXT, 0),
    (b"oway", SOME_TEXT, 0),
    (b"topic", TEXT, <size_t>&sample.topic - <size_t>&sample),
    (b"bname", SOME_TEXT, 0),
    (b"offset", I64, <size_t>&sample.offset - <size_t>&sample),
    (b"maxNum", I32, <size_t>&sample.maximum - <size_t>&sample),
    (b"lastKey", EMPTY_TEXT, 0),
    (b"queueId", I32, <size_t>&sample.queue_id - <size_t>&sample),
    (b"sysFlag", I32, <size_t>&sample.sys_flag - <size_t>&sample),
    (b"indexType", KIND, 0),
    (b"liteTopic", SOME_TEXT, 0),
    (b"maxMsgNums", I32, <size_t>&sample.max_messages - <size_t>&sample),
    (b"subVersion", I64, <size_t>&sample.sub_version - <size_t>&sample),
    (b"maxMsgBytes", BYTES_LIMIT, <size_t>&sample.max_bytes - <size_t>&sample),
    (b"queueOffset", I64, <size_t>&sample.queue_offset - <size_t>&sample),
    (b"commitOffset", I64, <size_t>&sample.commit_offset - <size_t>&sample),
    (b"endTimestamp", I64, <size_t>&sample.end_timestamp - <size_t>&sample),
    (b"subscription", TEXT, <size_t>&sample.subscription - <size_t>&sample),
    (b"consumerGroup", TEXT, <size_t>&sample.group - <size_t>&sample),
    (b"requestSource", I32, <size_t>&sample.ignored - <size_t>&sample),
    (b"beginTimestamp", I64, <size_t>&sample.begin_timestamp - <size_t>&sample),
    (b"expressionType", TEXT, <size_t>&sample.expression_type - <size_t>&sample),
    (b"_UNIQUE_KEY_QUERY", BOOLEAN, 0),
    (b"proxyFrowardClientId", SOME_TEXT, 0),
    (b"suspendTimeoutMillis", I64, <size_t>&sample.ignored - <size_t>&sample),
)
"""As above, for a request's own fields. The values of skipped and ignored ones do not change the lane's answer."""


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


# --- A request ---


cdef inline bint is_i32(int64_t integer) noexcept nogil:
    return -INT32_MAX - 1 <= integer <= INT32_MAX


cdef inline bint take_boolean(const Text *text, Request *request) noexcept nogil:
    """Take ``true`` or ``false``; whether it is one of them."""
    request.is_unique = text.length == 4 and load_native_u32(text.start) == load_native_u32(b"true")
    if request.is_unique:
        return True
    return text.length == 5 and load_native_u32(text.start + 1) == load_native_u32(b"alse") and text.start[0] == c"f"


cdef inline void take_kind(const Text *text, Request *request) noexcept nogil:
    """Take the kind of key: K, U or T; any other text means any."""
    request.kind = KIND_ANY
    if text.length == 1:
        if text.start[0] == c"K":
            request.kind = KIND_KEY
        elif text.start[0] == c"U":
            request.kind = KIND_UNIQUE
        elif text.start[0] == c"T":
            request.kind = KIND_TAG


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


cdef inline int next_name(Walk *walk, int group, Request *request) noexcept nogil:
    """The number of the known name that a walk comes to, for the first time; −2 at its end, −1 where it is none."""
    cdef Value name
    cdef int found = next_member(walk, &name), number
    if found == 0:
        return -2
    if found < 0 or name.kind != A_TEXT or walk.stop - name.text.start < 8:
        return -1
    number = find_name(name.text.start, name.text.length, group)
    if number < 0 or request.seen >> number & 1:
        return -1
    request.seen |= <uint64_t>1 << number
    return number


cdef inline bint take_value(What what, size_t place, const Value *value, Request *request) noexcept nogil:
    """Take what stands behind a name; whether it is plain."""
    cdef uint8_t *to = <uint8_t *>request + place
    if what == I64 or what == I32 or what == BYTES_LIMIT or what == OPAQUE:
        if not value.is_integer or (what != I64 and not is_i32(value.integer)):
            return False
        (<int64_t *>to)[0] = value.integer
        if what == BYTES_LIMIT:
            request.has_max_bytes = True
        elif what == OPAQUE:
            request.opaque_digits = value.text
        return True
    if value.kind != A_TEXT:
        return what == NULL_OR_TEXT and value.kind == A_NULL
    if what == TEXT:
        (<Text *>to)[0] = value.text
    elif what == KIND:
        take_kind(&value.text, request)
    elif what == BOOLEAN:
        return take_boolean(&value.text, request)
    return what != EMPTY_TEXT or value.text.length == 0


cdef bint read_members(Walk *walk, int group, Request *request) noexcept nogil:
    """Read the members of an object that are known in a group; whether all are plain."""
    cdef Value value
    cdef Walk fields
    cdef int number
    while True:
        number = next_name(walk, group, request)
        if number < 0:
            return number == -2
        if names[number].what == FIELDS:
            if not enter(&fields, walk.at, walk.stop) or not read_members(&fields, OF_REQUEST, request):
                return False
            walk.at = fields.at
            continue
        walk.at = read_plain(walk.at, walk.stop, &value)
        if walk.at == NULL or not take_value(names[number].what, names[number].place, &value, request):
            return False


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
    cdef Walk walk
    request.seen = 0
    request.kind = KIND_ANY
    request.is_unique = request.has_max_bytes = False
    request.topic.start = request.subscription.start = request.expression_type.start = NULL
    request.topic.length = request.subscription.length = request.expression_type.length = 0
    if not enter(&walk, at, stop) or not read_members(&walk, OF_HEADER, request):
        return False
    if skip_blanks(walk.at, stop) != stop:
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
