"""The JSON header of a command, with all that Java peers and those in other languages write; see json_members.pxd.

What is converted as the peer wrote it stays a text: the fields of a request, until it is known which request it is.
"""

from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT32_MAX, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp

from protocol.kernels.java_string cimport Character, decode_sequence
from protocol.kernels.json_members cimport (
    A_NULL,
    A_NUMBER,
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
    read_name,
    read_plain,
    read_unit,
    skip_blanks,
)
from protocol.kernels.memory cimport Text

import json
import re

from protocol.errors import BadCommand
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


cdef object odd_text(const Text *text):
    """A text with escapes, or with bytes that are no UTF-8."""
    # Nothing takes more bytes in UTF-8 than here, but for malformed bytes: three for each.
    cdef bytes written = new_bytes(NULL, 3 * text.length)
    cdef uint8_t *start = <uint8_t *><char *>written
    cdef uint8_t *to = start
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
    return text_from_utf8(<char *>start, to - start, NULL)


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
    return text_from_utf8(<const char *>value.text.start, value.text.length, NULL)


cdef object odd_integer(const Value *value):
    """A number that is not in its shortest form, or None: whole numbers may have a fraction of zero and an exponent."""
    if value.kind != A_NUMBER and value.kind != A_TEXT and value.kind != AN_ODD_TEXT:
        return None
    found = _ODD_INTEGER.fullmatch(text_of(value))
    if found is None:
        return None
    if found[2] is None and found[3] is None:
        return int(found[1]) if len(found[1]) <= _LONGEST_INTEGER else None
    number = float(found[0])
    return int(number) if abs(number) <= _EXACT and number.is_integer() else None


# --- The members of a header ---


cdef class _Members:
    """What a header says, as far as it was read."""

    cdef object code
    cdef object flag
    cdef object opaque
    cdef object version
    cdef object language
    cdef object remark
    cdef object fields
    cdef str wrong

    def __cinit__(self):
        self.flag = self.opaque = self.version = 0
        self.fields = {}


cdef inline bint is_called(const Text *name, const char *wanted, int64_t length) noexcept:
    return name.length == length and memcmp(name.start, wanted, length) == 0


cdef object read_i32(Walk *walk, _Members members, str name):
    """Read a 32-bit integer, or note what is wrong with it; None where that is no JSON."""
    cdef Value value
    if not read_value(walk, &value):
        return None
    if value.is_integer:
        if -INT32_MAX - 1 <= value.integer <= INT32_MAX:
            return value.integer
    else:
        number = odd_integer(&value)
        if number is not None and -INT32_MAX - 1 <= number <= INT32_MAX:
            return number
    if members.wrong is None:
        members.wrong = f"{name} is no 32-bit integer"
    return 0


cdef bint read_language(Walk *walk, _Members members) except -1:
    """Read a language, by its name or its number."""
    cdef Value value
    if walk.at < walk.stop and walk.at[0] != c'"' and walk.at[0] != c"n":
        members.language = read_i32(walk, members, "language")
        return members.language is not None
    if not read_value(walk, &value):
        return False
    members.language = text_of(&value)
    return True


cdef bint read_remark(Walk *walk, _Members members) except -1:
    cdef Value value
    if not read_value(walk, &value):
        return False
    if value.kind == A_TEXT or value.kind == AN_ODD_TEXT or value.kind == A_NULL:
        members.remark = text_of(&value)
    elif members.wrong is None:
        members.wrong = "remark is no text"
    return True


cdef bint read_fields(Walk *walk, _Members members) except -1:
    """Read an object whose members are the fields of a request, those that are null left out."""
    cdef const uint8_t *start = walk.at
    cdef Value name, value
    cdef Walk inner
    cdef dict fields = {}
    cdef bint is_deep = False
    cdef int found
    if not enter(&inner, start, walk.stop):
        return False
    while True:
        found = next_member(&inner, &name)
        if found <= 0:
            break
        if not read_value(&inner, &value):
            return False
        key = name_of(&name)
        try:
            text = text_of(&value)
        except RecursionError:
            is_deep = True
            continue
        if text is not None:
            fields[key] = text
        else:
            fields.pop(key, None)
    walk.at = inner.at
    if found < 0:
        return False
    members.fields = start[:walk.at - start] if is_deep else fields
    return True


cdef bint read_ext_fields(Walk *walk, _Members members) except -1:
    """Read the value of `extFields`, which may be something else than an object."""
    cdef Value value
    cdef const uint8_t *start = walk.at
    if start < walk.stop and start[0] == c"{":
        return read_fields(walk, members)
    if not read_value(walk, &value):
        return False
    members.fields = {} if value.kind == A_NULL else start[:walk.at - start]
    return True


cdef bint read_member(Walk *walk, const Text *name, _Members members) except -1:
    """Read the value of a member; whether it is JSON."""
    cdef Value value
    if is_called(name, "code", 4):
        members.code = read_i32(walk, members, "code")
        return members.code is not None
    if is_called(name, "flag", 4):
        members.flag = read_i32(walk, members, "flag")
        return members.flag is not None
    if is_called(name, "opaque", 6):
        number = read_i32(walk, members, "opaque")
        members.opaque = 0 if number is None else number
        return number is not None
    if is_called(name, "version", 7):
        members.version = read_i32(walk, members, "version")
        return members.version is not None
    if is_called(name, "language", 8):
        return read_language(walk, members)
    if is_called(name, "remark", 6):
        return read_remark(walk, members)
    if is_called(name, "extFields", 9):
        return read_ext_fields(walk, members)
    return read_value(walk, &value)


cdef object read_members(const uint8_t *at, const uint8_t *stop, _Members members):
    """Read a header; the place of what is no JSON, None where all is."""
    cdef Value name
    cdef Walk walk
    cdef Text known
    cdef bytes utf8
    cdef int found
    if not enter(&walk, skip_blanks(at, stop), stop):
        return "the header is no object"
    while True:
        found = next_member(&walk, &name)
        if found <= 0:
            break
        known = name.text
        if name.kind == AN_ODD_TEXT:
            utf8 = odd_text(&name.text).encode()
            known.start, known.length = <const uint8_t *><char *>utf8, len(utf8)
        if not read_member(&walk, &known, members):
            found = -1
            break
    if found < 0:
        return "malformed JSON"
    return "something follows the object" if skip_blanks(walk.at, stop) != stop else None


def read_json_header(header, body, make):
    cdef _Members members = _Members()
    cdef const uint8_t *at
    cdef Py_buffer export
    if type(header) is bytes:
        at = <const uint8_t *><char *><bytes>header
        malformed = read_members(at, at + len(<bytes>header), members)
    else:
        PyObject_GetBuffer(header, &export, PyBUF_SIMPLE)
        try:
            at = <const uint8_t *>export.buf
            malformed = read_members(at, at + export.len, members)
        finally:
            PyBuffer_Release(&export)
    if malformed is not None:
        raise BadCommand(f"the header is no command: {malformed}")
    if members.wrong is None and members.code is None:
        members.wrong = "code is missing"
    if members.wrong is not None:
        raise BadCommand(f"the header is no command: {members.wrong}", members.opaque)
    return make(
        members.code, members.flag, members.opaque, members.version, members.language, members.remark,
        members.fields, 0, body,
    )
