"""The ROCKETMQ form of a command's header (serialize type 1): binary, where the other form is JSON.

FIXED
offset  size  type  field          meaning
0       2     i16   code
2       1     i8    language       ordinal, `LanguageCode`
3       2     i16   version
5       4     i32   opaque
9       4     i32   flag
13      4     i32   remark_length  0: no remark

then the remark; the length of all fields (i32, ≤ 0: none); and per field key length (i16), key, value length (i32),
value, all text UTF-8. A value of length 0 reads back as absent, as in Java. Bytes behind the fields are ignored.
Source: remoting-protocol §1.3 and RocketMQSerializable of 5.5.0.
"""

from struct import Struct
from typing import Final, NamedTuple

from protocol.errors import BadCommand, quote
from protocol.java_hash import decode_java

FIXED: Final = Struct(">hbhiii")
KEY_LENGTH: Final = Struct(">h")
INT: Final = Struct(">i")


class BinaryHeader(NamedTuple):
    """The parts of a binary header, in the order in which commands have them; `remark` None when it has none."""

    code: int
    flag: int
    opaque: int
    version: int
    language: int
    remark: str | None
    ext_fields: dict[str, str]


def decode_binary_header(data: bytes) -> BinaryHeader:
    """Decode a binary header.

    Raises `BadCommand` where a length is negative or reaches beyond what holds it (the header, or the block of fields).
    """
    if len(data) < FIXED.size + INT.size:
        raise BadCommand(f"a binary header of {len(data)} bytes, expected at least {FIXED.size + INT.size}")
    code, language, version, opaque, flag, remark_length = FIXED.unpack_from(data)
    position = _advance("remark", FIXED.size, remark_length, len(data) - INT.size)
    remark = decode_java(data[FIXED.size : position]) or None
    (fields_length,) = INT.unpack_from(data, position)
    position += INT.size
    ext_fields = {}
    if fields_length > 0:
        ext_fields = _decode_fields(data, position, _advance("extFields", position, fields_length, len(data)))
    return BinaryHeader(code, flag, opaque, version, language, remark, ext_fields)


def _decode_fields(data: bytes, position: int, end: int) -> dict[str, str]:
    """The fields between two positions, those with an empty key or value left out."""
    fields = {}
    while position < end:
        key, position = _decode_text(data, position, end, KEY_LENGTH, "an extFields key")
        value, position = _decode_text(data, position, end, INT, "the value of " + quote(key))
        if key and value:
            fields[key] = value
    return fields


def _decode_text(data: bytes, position: int, end: int, length_field: Struct, what: str) -> tuple[str, int]:
    start = _advance(f"the length of {what}", position, length_field.size, end)
    (length,) = length_field.unpack_from(data, position)
    stop = _advance(what, start, length, end)
    return decode_java(data[start:stop]), stop


def _advance(what: str, position: int, length: int, end: int) -> int:
    """The position `length` bytes on, if that is neither backwards nor beyond `end`."""
    if not 0 <= length <= end - position:
        raise BadCommand(f"binary header: {what} takes {length} bytes, but {end - position} are left for it")
    return position + length
