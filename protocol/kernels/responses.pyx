"""Write the header of a command, in JSON or in binary, as a Java peer writes it: the one writer there is.

An answer for many requests is encoded once, as a template without its opaque and perhaps without other numbers; all
templates are made from the result of :func:`encode_head`. A header is read twice, to count its bytes and to write them;
its values cannot change meanwhile, since no Python code runs.
"""

cimport cython
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from protocol.kernels.json_members cimport find_plain_end
from protocol.kernels.memory cimport Text, store_i16, store_i32

import re

from protocol.codes import VERSION_5_3_3 as _VERSION
from protocol.errors import BadCommand, FrameTooLarge, quote
from protocol.header_fields import well_formed

cdef extern from *:
    object new_bytes "PyBytes_FromStringAndSize" (const char *content, Py_ssize_t size)
    const char *utf8_of "PyUnicode_AsUTF8AndSize" (object text, Py_ssize_t *size) except NULL

cdef enum:
    OPAQUE_POSITION = 5
    OPAQUE_SIZE = 4
    LONGEST_KEY = 0x7FFF  # The largest length that an i16 holds; Java writes the low 16 bits of a longer one.
    LONGEST_HEADER = 0xFFFFFF
    RESPONSE = 1  # flag

OPAQUE: str = '"opaque":'
_LONGEST_OPAQUE = 11


cdef struct Writer:
    uint8_t *at  # NULL as long as bytes are counted only.
    int64_t length


cdef inline void put(Writer *writer, const void *content, int64_t length) noexcept:
    if writer.at != NULL:
        memcpy(writer.at + writer.length, content, length)
    writer.length += length


cdef inline void put_number(Writer *writer, int64_t number) noexcept:
    cdef uint8_t[LONGEST_NUMBER] room
    cdef Text digits = digits_of(number, room)
    put(writer, digits.start, digits.length)


# --- JSON ---


cdef void put_escaped(Writer *writer, uint8_t byte) noexcept:
    """Write a byte that JSON requires to be escaped in a text."""
    cdef uint8_t[6] escape
    cdef uint8_t digit = byte & 0xF
    escape[0], escape[1] = c"\\", byte
    if byte == c"\n":
        escape[1] = c"n"
    elif byte == c"\t":
        escape[1] = c"t"
    elif byte == c"\r":
        escape[1] = c"r"
    elif byte == c"\b":
        escape[1] = c"b"
    elif byte == c"\f":
        escape[1] = c"f"
    elif byte < c" ":
        escape[1], escape[2], escape[3], escape[4] = c"u", c"0", c"0", c"0" + (byte >> 4)
        escape[5] = c"0" + digit if digit < 10 else c"a" + digit - 10
        put(writer, escape, 6)
        return
    put(writer, escape, 2)


cdef int put_json(Writer *writer, object text) except -1:
    """Write a text in quotes. Raises UnicodeEncodeError for halves of characters, ahead of anything else."""
    cdef Py_ssize_t length
    cdef const uint8_t *at = <const uint8_t *>utf8_of(text, &length)
    cdef const uint8_t *stop = at + length
    cdef const uint8_t *end
    put(writer, b'"', 1)
    while at < stop:
        end = find_plain_end(at, stop)
        while end < stop and end[0] >= 0x80:
            end = find_plain_end(end + 1, stop)
        put(writer, at, end - at)
        if end < stop:
            put_escaped(writer, end[0])
            end += 1
        at = end
    put(writer, b'"', 1)
    return 0


cdef int put_json_header(
    Writer *writer, int64_t code, int64_t flag, int64_t opaque, object remark, dict fields, int64_t version
) except -1:
    """Write a header as a Java peer does: compact, members in the order of their names, none that is null."""
    cdef bint is_first = True
    put(writer, b'{"code":', 8)
    put_number(writer, code)
    if fields is not None:
        put(writer, b',"extFields":{', 14)
        for name, text in fields.items():
            if not is_first:
                put(writer, b",", 1)
            is_first = False
            put_json(writer, name)
            put(writer, b":", 1)
            put_json(writer, text)
        put(writer, b"}", 1)
    put(writer, b',"flag":', 8)
    put_number(writer, flag)
    put(writer, b',"language":"JAVA","opaque":', 28)
    put_number(writer, opaque)
    if remark is not None:
        put(writer, b',"remark":', 10)
        put_json(writer, remark)
    put(writer, b',"serializeTypeCurrentRPC":"JSON","version":', 44)
    put_number(writer, version)
    put(writer, b"}", 1)
    return 0


# --- Binary ---


cdef inline void put_i32(Writer *writer, int64_t value) noexcept:
    cdef uint8_t[4] stored
    store_i32(stored, <int32_t>value)
    put(writer, stored, 4)


cdef inline void put_i16(Writer *writer, int64_t value) noexcept:
    cdef uint8_t[2] stored
    store_i16(stored, <int>value)
    put(writer, stored, 2)


cdef int put_text(Writer *writer, object text) except -1:
    cdef Py_ssize_t length
    cdef const char *content = utf8_of(text, &length)
    put_i32(writer, length)
    put(writer, content, length)
    return 0


cdef int put_binary_header(
    Writer *writer, int64_t code, int64_t flag, int64_t opaque, object remark, dict fields, int64_t version
) except -1:
    """Write a header as heads.pyx reads it, with language JAVA."""
    cdef int64_t fields_at
    cdef Py_ssize_t length
    cdef const char *content
    put_i16(writer, code)
    put(writer, b"\0", 1)
    put_i16(writer, version)
    put_i32(writer, opaque)
    put_i32(writer, flag)
    put_text(writer, "" if remark is None else remark)
    fields_at = writer.length
    put_i32(writer, 0)
    if fields is not None:
        for name, text in fields.items():
            content = utf8_of(name, &length)
            if length > LONGEST_KEY:
                raise BadCommand(f"extFields key {quote(name)}: {length} bytes, more than {LONGEST_KEY}")
            put_i16(writer, length)
            put(writer, content, length)
            put_text(writer, text)
    if writer.at != NULL:
        store_i32(writer.at + fields_at, <int32_t>(writer.length - fields_at - 4))
    return 0


cdef inline bint is_i32(int64_t value) noexcept:
    return -INT32_MAX - 1 <= value <= INT32_MAX


cdef inline bint is_i16(int64_t value) noexcept:
    return -0x8000 <= value <= 0x7FFF


# --- Both ---


cdef int put_header(
    Writer *writer, int serialize_type, int64_t code, int64_t flag, int64_t opaque, object remark, dict fields,
    int64_t version,
) except -1:
    if serialize_type == 0:
        return put_json_header(writer, code, flag, opaque, remark, fields, version)
    return put_binary_header(writer, code, flag, opaque, remark, fields, version)


cdef bytes write_command(
    int serialize_type, int64_t code, int64_t flag, int64_t opaque, object remark, dict fields, int64_t version,
    int64_t body_length,
):
    """Prefix and header of a command. Raises UnicodeEncodeError for halves of characters."""
    cdef Writer writer
    cdef bytes written
    cdef int64_t length
    writer.at, writer.length = NULL, 0
    put_header(&writer, serialize_type, code, flag, opaque, remark, fields, version)
    length = writer.length
    if length > LONGEST_HEADER:
        raise FrameTooLarge(length, LONGEST_HEADER)
    if PREFIX - LENGTH + length + body_length > INT32_MAX:
        raise FrameTooLarge(PREFIX - LENGTH + length + body_length, INT32_MAX)
    written = new_bytes(NULL, PREFIX + length)
    writer.at, writer.length = write_prefix(<uint8_t *><char *>written, serialize_type << 24, length, body_length), 0
    put_header(&writer, serialize_type, code, flag, opaque, remark, fields, version)
    return written


def encode_head(
    int serialize_type, int64_t code, int64_t flag, int64_t opaque, remark: str | None,
    ext_fields: Mapping[str, str] | None, int64_t version, int64_t body_length,
) -> bytes:
    """Prefix and header of a command whose body has so many bytes, in JSON (0) or in binary (1).

    Halves of characters become `?`. Raises `BadCommand` for what the binary form cannot hold, and `FrameTooLarge`.
    """
    if serialize_type and not (is_i16(code) and is_i16(version) and is_i32(opaque) and is_i32(flag)):
        raise BadCommand(
            f"code {code}, version {version}, opaque {opaque}, flag {flag}: too large for a binary header"
        )
    fields = ext_fields if ext_fields is None or type(ext_fields) is dict else dict(ext_fields)
    try:
        return write_command(serialize_type, code, flag, opaque, remark, fields, version, body_length)
    except UnicodeEncodeError:
        remark = None if remark is None else well_formed(remark)
        fields = None if fields is None else {well_formed(name): well_formed(text) for name, text in fields.items()}
        return write_command(serialize_type, code, flag, opaque, remark, fields, version, body_length)


cdef list cut_header(bytes header, names):
    """A JSON header in pieces: the numbers between them are those right behind each of some names.

    Within a text a quote is escaped: a name with quotes around it, or one before the number, stands nowhere else.
    """
    pieces, start = [], 0
    for name in names:
        found = re.compile(re.escape(name.encode()) + rb"(-?[0-9]+)").search(header, start)
        pieces.append(header[start : found.start(1)])
        start = found.end()
    return [*pieces, header[start:]]


@cython.final
cdef class ResponseTemplate:
    """A response in one of the two forms, encoded once for many requests."""

    def __cinit__(self, int serialize_type, response: Any, names: Iterable[str] = (OPAQUE,)) -> None:
        """Encode a response; its `names` stand right before the numbers that are left open, in JSON: the opaque's.

        Raises `BadCommand` for what the binary form cannot hold, and `FrameTooLarge`.
        """
        cdef bytes header, part
        cdef int number
        self.body = response.body
        header = encode_head(
            serialize_type, response.code, RESPONSE, 0, response.remark, response.ext_fields, _VERSION,
            len(self.body),
        )[PREFIX:]
        if serialize_type:
            self._parts = header[:OPAQUE_POSITION], header[OPAQUE_POSITION + OPAQUE_SIZE:]
        else:
            self._parts = tuple(cut_header(header, names))
        self.numbers, self.word = len(self._parts) - 1, serialize_type << 24
        if self.numbers > MOST_NUMBERS:
            raise ValueError(f"a header with {self.numbers} numbers")
        for number, part in enumerate(self._parts):
            self.parts[number].start, self.parts[number].length = <const uint8_t *><char *>part, len(part)
            self.fixed_length += len(part)
        self.size = (
            PREFIX + self.fixed_length + _LONGEST_OPAQUE + LONGEST_NUMBER * (self.numbers - 1) + len(self.body)
        )

    def head(self, int32_t opaque) -> bytes:
        """Prefix and header of the answer to a request; raises ValueError where other numbers are open, too."""
        cdef uint8_t[LONGEST_NUMBER] room
        cdef Text number
        cdef bytes written
        if self.numbers != 1:
            raise ValueError(f"a header with {self.numbers} numbers")
        if self.word:
            store_i32(room, opaque)
            number.start, number.length = room, OPAQUE_SIZE
        else:
            number = digits_of(opaque, room)
        written = new_bytes(NULL, head_length(self, &number))
        write_head(<uint8_t *><char *>written, self, &number, len(written), len(self.body))
        return written
