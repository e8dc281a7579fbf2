"""The header of a command, of either form, read once into one struct: see heads.pyx."""

from libc.stdint cimport INT32_MAX, int8_t, int64_t, uint8_t, uint64_t

from protocol.kernels.json_members cimport A_NULL, A_RAW_TEXT, A_TEXT, AN_ODD_TEXT, Value, Walk
from protocol.kernels.memory cimport Text


cdef enum:  # The members of a header, in the order of their names in heads.pyx, and how many there are.
    CODE, FLAG, OPAQUE, REMARK, VERSION, LANGUAGE, EXT_FIELDS, SERIALIZE_TYPE, MEMBERS

cdef enum:  # The fields of requests that the fast lane answers, likewise.
    LO, NS, KEY, NSD, OWAY, TOPIC, BNAME, OFFSET, MAX_NUM, LAST_KEY, QUEUE_ID, SYS_FLAG, INDEX_TYPE, LITE_TOPIC
    MAX_MSG_NUMS, SUB_VERSION, MAX_MSG_BYTES, QUEUE_OFFSET, COMMIT_OFFSET, END_TIMESTAMP, SUBSCRIPTION, CONSUMER_GROUP
    REQUEST_SOURCE, BEGIN_TIMESTAMP, EXPRESSION_TYPE, UNIQUE_KEY_QUERY, PROXY_FROWARD_CLIENT_ID, SUSPEND_TIMEOUT_MILLIS
    KNOWN_FIELDS

cdef enum:
    UNKNOWN = -1  # A field of another name.
    MOST_FIELDS = 40  # Kept of one header; of more the first ones are.


cdef enum Oddity:  # What a header has that the ones which Java writes do not: a bit for each.
    AGAIN = 1  # Two members or fields of one name.
    FOREIGN = 2  # A member or field of an unknown name.
    ODD_TEXT = 4  # A name or text with escapes, ill-formed UTF-8 or U+FFFD.
    NESTED = 8  # An object or array that is not the one of the fields.
    NO_VALUE = 16  # Null, but for the remark.
    MISFIT = 32  # A value of another type than its name's.
    HIDDEN = 64  # A field that is not found by its name: one of more than `MOST_FIELDS`, or of a name with escapes.


cdef enum Reading:  # How the reading of a header ended.
    READ
    NO_OBJECT
    MALFORMED
    FOLLOWED  # Something stands behind the object.
    ODD  # Only if nothing odd was to be read.


cdef struct Field:
    int known  # Its number, or UNKNOWN.
    Text name
    Value value


cdef struct Head:
    int oddities
    int met  # A bit for each member that was met; what stands behind the others is not set.
    Value members[MEMBERS]
    int wrong  # The first member that is of a wrong type, or MEMBERS.
    uint64_t fields_met  # A bit for each known field that was met,
    int8_t places[KNOWN_FIELDS]  # and where it is among the fields.
    int count
    Field fields[MOST_FIELDS]


cdef int read_head(const uint8_t *at, const uint8_t *stop, Head *head, bint is_plain) except -1


cdef inline const Value *field_of(const Head *head, int known) noexcept nogil:
    """The value of a known field that was met."""
    return &head.fields[head.places[known]].value


cdef struct FieldWalk:  # Through the fields of a header, of one form or the other.
    bint is_binary
    Walk walk  # In a binary header `is_first` says nothing.


cdef enum What:  # What stands behind a name.
    AN_I32
    AN_I64
    SOME_TEXT
    TEXT_OR_NULL
    A_BOOLEAN  # The kinds of fields in typed headers besides,
    OTHER  # which nothing is known about here.


cdef int read_binary_head(const uint8_t *at, const uint8_t *stop, Head *head) except -1
cdef int next_field(FieldWalk *fields, Value *name, Value *value) except -2
cdef object name_of(const Value *name)
cdef object text_of(const Value *value)


cdef inline bint is_i32(int64_t integer) noexcept nogil:
    return -INT32_MAX - 1 <= integer <= INT32_MAX


cdef inline int oddity_of(const Value *value, What what) noexcept:
    """What is odd about a value behind a name."""
    if what == AN_I32 or what == AN_I64:
        return 0 if value.is_integer and (what == AN_I64 or is_i32(value.integer)) else MISFIT
    if value.kind == A_TEXT:
        return 0
    if value.kind == A_NULL:
        return 0 if what == TEXT_OR_NULL else NO_VALUE
    return ODD_TEXT if value.kind == AN_ODD_TEXT or value.kind == A_RAW_TEXT else MISFIT
