"""The header of a command, JSON or binary, read once into one struct: for the fast lane and for all other requests.

JSON has all that Java peers and those in other languages write (json_members.pxd); a binary header is a fixed part, the
remark, and the fields, each behind its length (docs/internals/remoting-protocol.md §1.3). Nothing is built while a
header is read: names and values are places in it, and what is odd about it is noted. The lane takes headers without
oddities. All others become commands (commands.pyx).
"""

from libc.stdint cimport INT32_MAX, int8_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

from protocol.kernels.java_string cimport Character, decode_sequence
from protocol.kernels.json_members cimport (
    A_NULL,
    A_NUMBER,
    A_RAW_TEXT,
    A_TEXT,
    AN_ARRAY,
    AN_OBJECT,
    AN_ODD_TEXT,
    DEEPEST,
    Value,
    Walk,
    enter,
    escaped,
    next_member,
    read_integer,
    read_name,
    read_plain,
    read_unit,
    skip_blanks,
)
from protocol.kernels.memory cimport Text, load_i16, load_i32, load_i64

import json
import re

from protocol.errors import BadCommand, quote
from protocol.java_hash import decode_java

cdef extern from *:
    object new_bytes "PyBytes_FromStringAndSize" (const char *content, Py_ssize_t size)
    const char *utf8_of "PyUnicode_AsUTF8AndSize" (object text, Py_ssize_t *size) except NULL
    object text_from_utf8 "PyUnicode_DecodeUTF8" (const char *content, Py_ssize_t size, const char *errors)

_ODD_INTEGER = re.compile(r"(-?(?:0|[1-9][0-9]*+))(\.[0-9]++)?+([eE][+-]?[0-9]++)?+", re.ASCII)
_LONGEST_INTEGER = 20
_EXACT = 2**53  # Floating-point numbers are whole numbers without gaps up to here.


# --- Values ---


cdef const uint8_t *skip_nested(const uint8_t *at, const uint8_t *stop) noexcept:
    """The place behind an object or array that starts there; NULL where it is none, or too deep."""
    cdef uint8_t closing[DEEPEST]
    cdef int depth = 0
    cdef Value value
    while True:
        if at < stop and (at[0] == c"{" or at[0] == c"["):
            if depth == DEEPEST:
                return NULL
            closing[depth] = at[0] + 2  # as ASCII has them
            depth += 1
            at = skip_blanks(at + 1, stop)
            if at >= stop:
                return NULL
            if at[0] != closing[depth - 1]:
                if closing[depth - 1] == c"}":
                    at = read_name(at, stop, &value)
                    if at == NULL:
                        return NULL
                continue
        else:
            at = read_plain(at, stop, &value)
            if at == NULL:
                return NULL
            at = skip_blanks(at, stop)
        while at < stop and at[0] == closing[depth - 1]:
            at += 1
            depth -= 1
            if depth == 0:
                return at
            at = skip_blanks(at, stop)
        if at >= stop or at[0] != c",":
            return NULL
        at = skip_blanks(at + 1, stop)
        if closing[depth - 1] == c"}":
            at = read_name(at, stop, &value)
            if at == NULL:
                return NULL


cdef bint read_value(Walk *walk, Value *value) noexcept:
    """Read the value that a walk stands at, whatever it is."""
    cdef const uint8_t *start = walk.at
    if start < walk.stop and (start[0] == c"{" or start[0] == c"["):
        value.kind = AN_OBJECT if start[0] == c"{" else AN_ARRAY
        value.is_integer = False
        walk.at = skip_nested(start, walk.stop)
        value.text.start, value.text.length = start, walk.at - start
    else:
        walk.at = read_plain(start, walk.stop, value)
    return walk.at != NULL


cdef uint8_t *write_character(uint8_t *at, uint32_t point) noexcept:
    """Write a character in UTF-8; the place behind it."""
    if point < 0x80:
        at[0] = <uint8_t>point
        return at + 1
    if point < 0x800:
        at[0], at[1] = 0xC0 | point >> 6, 0x80 | point & 0x3F
        return at + 2
    if point < 0x10000:
        at[0], at[1], at[2] = 0xE0 | point >> 12, 0x80 | point >> 6 & 0x3F, 0x80 | point & 0x3F
        return at + 3
    at[0], at[1] = 0xF0 | point >> 18, 0x80 | point >> 12 & 0x3F
    at[2], at[3] = 0x80 | point >> 6 & 0x3F, 0x80 | point & 0x3F
    return at + 4


cdef uint32_t read_escaped(const uint8_t **place, const uint8_t *stop) noexcept:
    """The character that an escape stands for, or two; ``?``, as Java writes it to bytes, for half of one."""
    cdef const uint8_t *at = place[0]
    cdef int unit = read_unit(at, stop), second
    if unit < 0:
        place[0] = at + 2
        return escaped(at[1])
    place[0] = at + 6
    if not 0xD800 <= unit <= 0xDFFF:
        return unit
    second = read_unit(at + 6, stop)
    if unit > 0xDBFF or not 0xDC00 <= second <= 0xDFFF:
        return c"?"
    place[0] = at + 12
    return 0x10000 + ((unit - 0xD800) << 10 | (second - 0xDC00))


cdef int64_t unescape(const Text *text, uint8_t *to) noexcept:
    """Write a text with escapes, or with bytes that are no UTF-8, in UTF-8; how many bytes that are.

    None takes more than here, but for malformed ones, which take three each.
    """
    cdef uint8_t *start = to
    cdef const uint8_t *at = text.start
    cdef const uint8_t *stop = text.start + text.length
    cdef Character character
    while at < stop:
        if at[0] == c"\\":
            to = write_character(to, read_escaped(&at, stop))
        elif at[0] < 0x80:
            to[0] = at[0]
            to += 1
            at += 1
        else:
            character = decode_sequence(at, stop - at)
            to = write_character(to, character.point)
            at += character.length
    return to - start


cdef object odd_text(const Text *text):
    cdef bytes written = new_bytes(NULL, 3 * text.length)
    cdef uint8_t *start = <uint8_t *><char *>written
    return text_from_utf8(<char *>start, unescape(text, start), NULL)


cdef object nested_text(const Text *text):
    """JSON of an object or array, in which numbers are texts: their digits as sent; no header has such a field."""
    value = json.loads(decode_java(text.start[:text.length]), parse_int=str, parse_float=str)
    return json.dumps(value, separators=(",", ":"))


cdef enum:
    KEPT_NAMES = 256
    LONGEST_KEPT = 64  # Bytes: longer names of fields are not kept.

cdef list kept_names = [""] * KEPT_NAMES


cdef object name_of(const Value *name):
    """The name of a field: mostly the object that it was when it came last, since all requests have the same few."""
    cdef const uint8_t *start = name.text.start
    cdef Py_ssize_t length = name.text.length, kept_length
    cdef const char *kept
    cdef int slot
    if name.kind != A_TEXT or not 0 < length <= LONGEST_KEPT:
        return text_of(name)
    slot = (start[0] + 7 * start[length // 2] + 31 * start[length - 1] + 61 * length) & (KEPT_NAMES - 1)
    found = kept_names[slot]
    kept = utf8_of(found, &kept_length)
    if kept_length != length or memcmp(kept, start, length) != 0:
        found = kept_names[slot] = text_of(name)
    return found


cdef object text_of(const Value *value):
    """A value as the text that Java sees, None for null."""
    if value.kind == A_NULL:
        return None
    if value.kind == AN_ODD_TEXT:
        return odd_text(&value.text)
    if value.kind == AN_OBJECT or value.kind == AN_ARRAY:
        return nested_text(&value.text)
    if value.kind == A_RAW_TEXT:
        return decode_java(value.text.start[:value.text.length])
    return text_from_utf8(<const char *>value.text.start, value.text.length, NULL)


cdef int read_odd_integer(Value *value) except -1:
    """Read a number that is not in its shortest form: whole ones may have a fraction of zero and an exponent."""
    if value.kind != A_NUMBER and value.kind != A_TEXT and value.kind != AN_ODD_TEXT:
        return 0
    found = _ODD_INTEGER.fullmatch(text_of(value))
    if found is None:
        return 0
    if found[2] is None and found[3] is None:
        number = int(found[1]) if len(found[1]) <= _LONGEST_INTEGER else None
    else:
        number = float(found[0])
        number = int(number) if abs(number) <= _EXACT and number.is_integer() else None
    if number is not None and -INT32_MAX - 1 <= number <= INT32_MAX:
        value.is_integer, value.integer = True, number
    return 0


# --- Names ---


cdef enum:
    LONGEST_NAME = 24
    MOST_NAMES = 64

cdef enum:
    OF_HEADER = 0  # Its own members,
    OF_REQUEST = 1  # and the fields of the request.

cdef struct Name:
    int64_t head  # All of it, or its first eight bytes,
    int64_t tail  # its last eight,
    int64_t middle  # and the eighth to the sixteenth.
    What what


cdef Name names[MOST_NAMES]
cdef int first_by_length[2][LONGEST_NAME + 2]  # The first name that is at least so long.

WHAT_OF_KIND: Final[dict[str, int]] = {
    "": SOME_TEXT, "i32": AN_I32, "i64": AN_I64, "boolean": A_BOOLEAN, "or null": TEXT_OR_NULL,
}
_MEMBERS = "code/i32, flag/i32, opaque/i32, remark/or null, version/i32, language, extFields, serializeTypeCurrentRPC"
_KNOWN_FIELDS = (
    "lo, ns, key, nsd, oway, topic, bname, offset/i64, maxNum/i32, lastKey, queueId/i32, sysFlag/i32, indexType, "
    "liteTopic, maxMsgNums/i32, subVersion/i64, maxMsgBytes/i32, queueOffset/i64, commitOffset/i64, endTimestamp/i64, "
    "subscription, consumerGroup, requestSource/i32, beginTimestamp/i64, expressionType, _UNIQUE_KEY_QUERY, "
    "proxyFrowardClientId, suspendTimeoutMillis/i64"
)
"""Names, and what stands behind them if that is no text, by ascending length in the order of their numbers."""

NAMES_OF_MEMBERS: Final[list[str]]
NAMES_OF_MEMBERS, _names_of_known = (
    [each.split("/")[0] for each in some.split(", ")] for some in (_MEMBERS, _KNOWN_FIELDS)
)
NUMBER_OF_FIELD: Final[dict[str, int]] = {name: number for number, name in enumerate(_names_of_known)}


cdef int list_names() except -1:
    """Fill in the tables of names."""
    cdef int number = 0, group, length
    cdef bytes name
    assert len(NAMES_OF_MEMBERS) == MEMBERS and len(_names_of_known) == KNOWN_FIELDS
    for group, some in enumerate((_MEMBERS, _KNOWN_FIELDS)):
        found = [each.partition("/") for each in some.split(", ")]
        for length in range(LONGEST_NAME + 2):
            first_by_length[group][length] = number + sum(len(each[0]) < length for each in found)
        for each, _, kind in found:
            name = each.encode()
            names[number].head = int.from_bytes(name[:8], "big")
            names[number].tail = int.from_bytes(name[max(len(name) - 8, 0) :], "big")
            names[number].middle = int.from_bytes(name[8:16], "big")
            names[number].what = WHAT_OF_KIND[kind]
            number += 1
    return 0


list_names()


cdef inline int find_name(const uint8_t *at, int64_t length, const uint8_t *stop, int group) noexcept:
    """The number of the known name that stands there, before ``stop``, or UNKNOWN."""
    cdef int number, i
    cdef int64_t head = 0
    cdef Name *name
    if length < 1 or length > LONGEST_NAME:
        return UNKNOWN
    if stop - at >= 8:
        head = load_i64(at)
        if length < 8:
            head = <int64_t>(<uint64_t>head >> (64 - 8 * length))
    else:
        for i in range(<int>length):
            head = head << 8 | at[i]
    for number in range(first_by_length[group][length], first_by_length[group][length + 1]):
        name = &names[number]
        if name.head == head and (
            length <= 8
            or (load_i64(at + length - 8) == name.tail and (length <= 16 or load_i64(at + 8) == name.middle))
        ):
            return number if group == OF_HEADER else number - MEMBERS
    return UNKNOWN


cdef int number_of_odd(const Text *name, int group) noexcept:
    """The number of a name with escapes, or UNKNOWN."""
    cdef uint8_t written[3 * 6 * LONGEST_NAME]  # An escape of a character has six.
    if name.length > 6 * LONGEST_NAME:
        return UNKNOWN
    return find_name(written, unescape(name, written), written + sizeof(written), group)


cdef inline int number_of(const Value *name, const uint8_t *stop, int group) noexcept:
    """The number of a name that was read, or UNKNOWN."""
    if name.kind == A_TEXT:
        return find_name(name.text.start, name.text.length, stop, group)
    return number_of_odd(&name.text, group)


# --- A header ---


cdef int next_field(FieldWalk *fields, Value *name, Value *value) except -2:
    """Read the next field: 1 where there is one, 0 at the end, −1 where there is no JSON."""
    cdef int found
    if fields.is_binary:
        return next_binary_field(&fields.walk, name, value)
    found = next_member(&fields.walk, name)
    if found > 0 and not read_value(&fields.walk, value):
        return -1
    return found


cdef void take_odd_field(Field *field, const Value *name, Head *head) noexcept:
    """Note what is odd about a field, and keep it if it can be."""
    cdef int known = field.known
    if name.kind != A_TEXT:
        head.oddities |= ODD_TEXT
    if field.value.kind == AN_OBJECT or field.value.kind == AN_ARRAY:
        head.oddities |= NESTED
    if known == UNKNOWN:
        head.oddities |= FOREIGN if name.kind == A_TEXT else FOREIGN | HIDDEN
    else:
        head.oddities |= oddity_of(&field.value, names[MEMBERS + known].what)
        if head.fields_met >> known & 1:
            head.oddities |= AGAIN
            head.fields[head.places[known]] = field[0]
            return
    if head.count == MOST_FIELDS:
        head.oddities |= HIDDEN
        return
    if known != UNKNOWN:
        head.fields_met |= <uint64_t>1 << known
        head.places[known] = <int8_t>head.count
    head.count += 1


cdef int read_fields(FieldWalk *fields, Head *head, bint is_plain) except -2:
    """Read the fields of a request: 0, or −1 where there is no JSON, 1 where something is odd and nothing may be."""
    cdef Value name
    cdef Field more  # than are kept
    cdef Field *field = head.fields
    cdef uint64_t met = 0
    cdef int found, known
    head.fields_met, head.count = 0, 0
    while True:
        found = next_field(fields, &name, &field.value)
        if found <= 0:
            head.fields_met = met
            return found
        known = field.known = number_of(&name, fields.walk.stop, OF_REQUEST)
        field.name = name.text
        if known != UNKNOWN and name.kind == A_TEXT and not met >> known & 1 and head.count < MOST_FIELDS and (
            oddity_of(&field.value, names[MEMBERS + known].what) == 0
        ):
            met |= <uint64_t>1 << known
            head.places[known] = <int8_t>head.count
            head.count += 1
        elif is_plain:
            head.oddities |= FOREIGN
            return 1
        else:
            head.fields_met = met
            take_odd_field(field, &name, head)
            met = head.fields_met
        field = &head.fields[head.count] if head.count < MOST_FIELDS else &more


cdef int take_member(int number, Value *value, Head *head) except -1:
    """Take what stands behind a name of a header's own members."""
    cdef bint is_right = True
    cdef What what = names[number].what
    if number == LANGUAGE and value.kind != A_TEXT and value.kind != AN_ODD_TEXT and value.kind != A_NULL:
        head.oddities |= MISFIT
        what = AN_I32  # languages have numbers too
    if what == AN_I32:
        if not value.is_integer:
            read_odd_integer(value)
            head.oddities |= MISFIT
        is_right = value.is_integer and is_i32(value.integer)
        if not is_right:
            value.is_integer, value.integer = True, 0
            head.oddities |= MISFIT
    elif number == REMARK:
        is_right = value.kind == A_TEXT or value.kind == AN_ODD_TEXT or value.kind == A_NULL
        head.oddities |= oddity_of(value, what)
    elif number == EXT_FIELDS:
        head.oddities |= MISFIT
        head.fields_met = head.count = 0
    else:
        head.oddities |= oddity_of(value, what)
    if not is_right and head.wrong == MEMBERS:
        head.wrong = number
    head.members[number] = value[0]
    return 0


cdef int read_head(const uint8_t *at, const uint8_t *stop, Head *head, bint is_plain) except -1:
    """Read a header of JSON: how that ended, one of `Reading`. With ``is_plain`` it ends at the first oddity."""
    cdef Value name, value
    cdef Walk walk
    cdef FieldWalk fields
    cdef const uint8_t *start
    cdef int found, number
    head.oddities, head.met, head.wrong, head.fields_met, head.count = 0, 0, MEMBERS, 0, 0
    if not enter(&walk, skip_blanks(at, stop), stop):
        return NO_OBJECT
    while True:
        found = next_member(&walk, &name)
        if found == 0:
            return READ if skip_blanks(walk.at, stop) == stop else FOLLOWED
        if found < 0:
            return MALFORMED
        number = number_of(&name, stop, OF_HEADER)
        if name.kind != A_TEXT:
            head.oddities |= ODD_TEXT
        if number == UNKNOWN:
            head.oddities |= FOREIGN
        elif head.met >> number & 1:
            head.oddities |= AGAIN
        if head.oddities and is_plain:
            return ODD
        if number == EXT_FIELDS and enter(&fields.walk, walk.at, stop):
            head.members[EXT_FIELDS].kind, head.members[EXT_FIELDS].text.start = AN_OBJECT, walk.at
            fields.is_binary = False
            found = read_fields(&fields, head, is_plain)
            if found != 0:
                return MALFORMED if found < 0 else ODD
            walk.at = fields.walk.at
            head.members[EXT_FIELDS].text.length = walk.at - head.members[EXT_FIELDS].text.start
        else:
            start = walk.at
            if not read_value(&walk, &value):
                return MALFORMED
            if number == EXT_FIELDS and value.kind != A_NULL:  # no object: kept as it came, with its quotes
                value.kind, value.text.start, value.text.length = AN_ARRAY, start, walk.at - start
            if number != UNKNOWN:
                take_member(number, &value, head)
        if number != UNKNOWN:
            head.met |= 1 << number
        if head.oddities and is_plain:
            return ODD


# --- A binary header ---


cdef enum:
    FIXED = 17  # Bytes: code, language, version, opaque, flag and the length of the remark.


cdef const uint8_t *advance(what, const uint8_t *at, int64_t length, const uint8_t *stop) except NULL:
    """The place ``length`` bytes on, if that is neither backwards nor beyond ``stop``."""
    if not 0 <= length <= stop - at:
        raise BadCommand(f"binary header: {what} takes {length} bytes, but {stop - at} are left for it")
    return at + length


cdef void take_raw_text(const uint8_t *at, const uint8_t *stop, Value *value) noexcept:
    """Take any bytes as a text; plain ones are read as in JSON."""
    cdef const uint8_t *end = at
    value.text.start, value.text.length = at, stop - at
    value.is_integer = at < stop and read_integer(at, stop, &value.integer) == stop
    while end < stop and end[0] < 128:
        end += 1
    value.kind = A_TEXT if end == stop else A_RAW_TEXT


cdef int next_binary_field(Walk *walk, Value *name, Value *value) except -2:
    """Read the next field that has a key and a value: those without are absent, as in Java."""
    cdef const uint8_t *at = walk.at
    cdef const uint8_t *end
    while at < walk.stop:
        end = advance("the length of an extFields key", at, 2, walk.stop)
        at, end = end, advance("an extFields key", end, load_i16(at), walk.stop)
        take_raw_text(at, end, name)
        if walk.stop - end < 4 or not 0 <= load_i32(end) <= walk.stop - end - 4:
            what = f"the value of {quote(text_of(name))}"
            at = advance(f"the length of {what}", end, 4, walk.stop)
            advance(what, at, load_i32(end), walk.stop)
        at = end + 4
        end = at + load_i32(end)
        take_raw_text(at, end, value)
        at = end
        if name.text.length and value.text.length:
            walk.at = at
            return 1
    walk.at = at
    return 0


cdef inline void take_number(Head *head, int number, int64_t integer) noexcept:
    head.members[number].kind, head.members[number].is_integer, head.members[number].integer = A_NUMBER, True, integer
    head.met |= 1 << number


cdef int read_binary_head(const uint8_t *at, const uint8_t *stop, Head *head) except -1:
    """Read a binary header; raises BadCommand where a length is negative, or reaches beyond what holds it."""
    cdef const uint8_t *end
    cdef FieldWalk fields
    cdef int64_t length
    if stop - at < FIXED + 4:
        raise BadCommand(f"a binary header of {stop - at} bytes, expected at least {FIXED + 4}")
    head.oddities, head.met, head.wrong, head.fields_met, head.count = 0, 0, MEMBERS, 0, 0
    take_number(head, CODE, load_i16(at))
    take_number(head, LANGUAGE, <int8_t>at[2])
    take_number(head, VERSION, load_i16(at + 3))
    take_number(head, OPAQUE, load_i32(at + 5))
    take_number(head, FLAG, load_i32(at + 9))
    length = load_i32(at + 13)
    end = advance("remark", at + FIXED, length, stop - 4)
    take_raw_text(at + FIXED, end, &head.members[REMARK])
    if length > 0:
        head.met |= 1 << REMARK
    length = load_i32(end)
    if length > 0:
        fields.is_binary = True
        fields.walk.at = end + 4
        fields.walk.stop = advance("extFields", end + 4, length, stop)
        head.members[EXT_FIELDS].kind = AN_OBJECT
        head.members[EXT_FIELDS].text.start, head.members[EXT_FIELDS].text.length = end + 4, length
        head.met |= 1 << EXT_FIELDS
        read_fields(&fields, head, False)
    return 0
