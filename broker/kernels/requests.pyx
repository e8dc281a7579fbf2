"""Take a plain request out of the header that it has, or say that it is not plain: a view, a key query, a pull.

Plain is what Java's fastjson writes: members in any order, each at most once and of a known name; texts without escapes
and in well-formed UTF-8 without U+FFFD, integers in their shortest form, in quotes or not. The header is read as that
of any command (protocol/kernels/heads.pxd); about what is not plain nothing is said here, and the ordinary way
decides. So this may be narrow, and never has to say what is wrong.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t

from protocol.kernels.heads cimport (
    BEGIN_TIMESTAMP,
    CODE,
    COMMIT_OFFSET,
    CONSUMER_GROUP,
    END_TIMESTAMP,
    EXPRESSION_TYPE,
    EXT_FIELDS,
    FLAG,
    INDEX_TYPE,
    KEY,
    LAST_KEY,
    MAX_MSG_BYTES,
    MAX_MSG_NUMS,
    MAX_NUM,
    OFFSET,
    OPAQUE,
    QUEUE_ID,
    QUEUE_OFFSET,
    READ,
    SUB_VERSION,
    SUBSCRIPTION,
    SUSPEND_TIMEOUT_MILLIS,
    SYS_FLAG,
    TOPIC,
    UNIQUE_KEY_QUERY,
    Head,
    field_of,
    read_head,
)
from protocol.kernels.json_members cimport find_plain_end
from protocol.kernels.memory cimport Text, load_native_u32
from storage.kernels.lookups cimport KIND_ANY, KIND_KEY, KIND_TAG, KIND_UNIQUE
from storage.kernels.region cimport Region, require

cdef enum:  # What every header has that is answered, and the fields of each code.
    NEEDED = 1 << CODE | 1 << OPAQUE | 1 << FLAG | 1 << EXT_FIELDS
    NEEDED_BY_VIEW = 1 << OFFSET
    NEEDED_BY_QUERY = 1 << TOPIC | 1 << KEY | 1 << MAX_NUM | 1 << BEGIN_TIMESTAMP | 1 << END_TIMESTAMP
    NEEDED_BY_PULL = (
        1 << CONSUMER_GROUP | 1 << TOPIC | 1 << QUEUE_ID | 1 << QUEUE_OFFSET | 1 << MAX_MSG_NUMS | 1 << SYS_FLAG
        | 1 << COMMIT_OFFSET | 1 << SUSPEND_TIMEOUT_MILLIS | 1 << SUB_VERSION
    )


cdef inline bint has(const Head *head, int known) noexcept nogil:
    return head.fields_met >> known & 1


cdef inline Text text_of(const Head *head, int known) noexcept nogil:
    """The text of a field; it starts at NULL where there is none."""
    cdef Text none
    none.start, none.length = NULL, 0
    return field_of(head, known).text if has(head, known) else none


cdef inline bint take_unique(const Text *text, Request *request) noexcept nogil:
    """Take ``true`` or ``false``; whether it is one of them."""
    request.is_unique = text.length == 4 and load_native_u32(text.start) == load_native_u32(b"true")
    if request.is_unique:
        return True
    return text.length == 5 and load_native_u32(text.start + 1) == load_native_u32(b"alse") and text.start[0] == c"f"


cdef inline int kind_of(const Head *head) noexcept nogil:
    """The kind of key: K, U or T; any other text, and none, means any."""
    cdef Text text = text_of(head, INDEX_TYPE)
    if text.length == 1:
        if text.start[0] == c"K":
            return KIND_KEY
        if text.start[0] == c"U":
            return KIND_UNIQUE
        if text.start[0] == c"T":
            return KIND_TAG
    return KIND_ANY


cdef bint take_query(const Head *head, Request *request) noexcept nogil:
    """Take what a key query says; whether that is plain."""
    if head.fields_met & NEEDED_BY_QUERY != NEEDED_BY_QUERY:
        return False
    if has(head, LAST_KEY) and field_of(head, LAST_KEY).text.length:
        return False
    request.kind, request.is_unique = kind_of(head), False
    if has(head, UNIQUE_KEY_QUERY) and not take_unique(&field_of(head, UNIQUE_KEY_QUERY).text, request):
        return False
    if request.is_unique:
        request.kind = KIND_UNIQUE
    request.key, request.maximum = field_of(head, KEY).text, field_of(head, MAX_NUM).integer
    request.begin_timestamp = field_of(head, BEGIN_TIMESTAMP).integer
    request.end_timestamp = field_of(head, END_TIMESTAMP).integer
    return True


cdef bint take_pull(const Head *head, Request *request) noexcept nogil:
    """Take what a pull says; whether it says all that it has to."""
    if head.fields_met & NEEDED_BY_PULL != NEEDED_BY_PULL:
        return False
    request.group = field_of(head, CONSUMER_GROUP).text
    request.subscription, request.expression_type = text_of(head, SUBSCRIPTION), text_of(head, EXPRESSION_TYPE)
    request.queue_id, request.queue_offset = field_of(head, QUEUE_ID).integer, field_of(head, QUEUE_OFFSET).integer
    request.max_messages, request.sys_flag = field_of(head, MAX_MSG_NUMS).integer, field_of(head, SYS_FLAG).integer
    request.has_max_bytes = has(head, MAX_MSG_BYTES)
    if request.has_max_bytes:
        request.max_bytes = field_of(head, MAX_MSG_BYTES).integer
    request.commit_offset = field_of(head, COMMIT_OFFSET).integer
    request.sub_version = field_of(head, SUB_VERSION).integer
    return True


cdef bint read_request(const uint8_t *at, const uint8_t *stop, Request *request) except -1:
    """Read a header; whether it is plain, of a request that the lane knows, complete, and wants an answer."""
    cdef Head head
    if read_head(at, stop, &head, True) != READ or head.met & NEEDED != NEEDED or head.members[FLAG].integer:
        return False
    request.code, request.opaque_digits = head.members[CODE].integer, head.members[OPAQUE].text
    request.topic = text_of(&head, TOPIC)
    if request.code == VIEW:
        if not has(&head, OFFSET):
            return False
        request.offset = field_of(&head, OFFSET).integer
        return True
    if request.code == QUERY:
        return take_query(&head, request)
    return (request.code == PULL or request.code == LITE_PULL) and take_pull(&head, request)


# --- Doors ---


def plain_end(Region data not None, int64_t position) -> int:
    """Where the first byte from a position on lies that is a quote, a backslash, a control or not ASCII."""
    require(data, position, position)
    return find_plain_end(data.data + position, data.data + data.size) - data.data


def code_of(Region header not None) -> int | None:
    """The code of a request whose header is plain, and complete for its code; None for any other header."""
    cdef Request request
    return request.code if read_request(header.data, header.data + header.size, &request) else None
