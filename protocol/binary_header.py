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

from collections.abc import Mapping
from struct import Struct, error
from typing import Final, NamedTuple

from protocol.codes import LanguageCode
from protocol.errors import BadCommand, quote
from protocol.java_hash import decode_java

FIXED: Final = Struct(">hbhiii")
KEY_LENGTH: Final = Struct(">h")
INT: Final = Struct(">i")
LONGEST_KEY: Final = 0x7FFF
"""Bytes of a key that its i16 length can tell; Java writes a longer one's low 16 bits."""


class BinaryHeader(NamedTuple):
    """The parts of a binary header; `remark` None when it has none."""

    code: int
    language: int
    version: int
    opaque: int
    flag: int
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
    return BinaryHeader(code, language, version, opaque, flag, remark, ext_fields)


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


def encode_binary_header(
    code: int, version: int, opaque: int, flag: int, remark: str | None, ext_fields: Mapping[str, str] | None
) -> bytes:
    """Encode a binary header with language JAVA.

    Raises `BadCommand` for a key of more than `LONGEST_KEY` bytes and for numbers that do not fit their fields (request
    codes above 32,767 exist in the JSON form only).
    """
    remark_bytes = _encode_text(remark or "")
    fields = b"".join([_encode_field(key, value) for key, value in (ext_fields or {}).items()])
    try:
        fixed = FIXED.pack(code, LanguageCode.JAVA, version, opaque, flag, len(remark_bytes))
    except error as cause:
        raise BadCommand(
            f"code {code}, version {version}, opaque {opaque}, flag {flag}: too large for a binary header"
        ) from cause
    return fixed + remark_bytes + INT.pack(len(fields)) + fields


def _encode_field(key: str, value: str) -> bytes:
    key_bytes, value_bytes = _encode_text(key), _encode_text(value)
    if len(key_bytes) > LONGEST_KEY:
        raise BadCommand(f"extFields key {quote(key)}: {len(key_bytes)} bytes, more than {LONGEST_KEY}")
    return KEY_LENGTH.pack(len(key_bytes)) + key_bytes + INT.pack(len(value_bytes)) + value_bytes


def _encode_text(text: str) -> bytes:
    """UTF-8 with `?` for a lone surrogate, as Java writes it."""
    return text.encode("utf-8", "replace")
