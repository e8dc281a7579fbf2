"""The byte layout of CommitLog records: where each part of a stored message is, and how long it may be.

All records begin alike. A BLANK, which fills a segment up to its end, has nothing more than this:

RECORD_START
offset  size  type   field       meaning
0       4     i32    total_size  of the record; of a BLANK, all that is left of the segment
4       4     u32    magic       V1_MAGIC, V2_MAGIC or BLANK_MAGIC

A record is a fixed part, whose host fields are 8 or 20 bytes long as sysFlag says, then body, topic and properties,
each behind its signed length. With two IPv4 hosts, the fixed part is

V4_V4_FIXED
offset  size  type   field                        meaning
0       4     i32    total_size                   the whole record, this field included
4       4     u32    magic                        V1_MAGIC or V2_MAGIC
8       4     i32    body_crc                     CRC-32 of the body as stored, without the top bit
12      4     i32    queue_id
16      4     i32    flag                         the application's own
20      8     i64    queue_offset                 0 for prepared and rolled-back messages
28      8     i64    physical_offset              the record's own place in the commit log
36      4     i32    sys_flag                     `protocol.sys_flag`
40      8     i64    born_timestamp               the client's clock, ms
48      4     bytes  born_ip                      16 bytes if sysFlag has BORN_HOST_V6
52      4     i32    born_port
56      8     i64    store_timestamp              the broker's clock, ms
64      4     bytes  store_ip                     16 bytes if sysFlag has STORE_HOST_V6
68      4     i32    store_port
72      4     i32    reconsume_times
76      8     i64    prepared_transaction_offset  commit and rollback: where the half message starts
84      4     i32    body_length                  ≤ 0: no body

and behind it follow body; topic length (i8 in V1, i16 in V2) and topic; properties length (i16) and properties. A
negative body or properties length counts as 0, a negative topic length makes the record invalid; so it is in the Java
broker's own check. The body of an inner batch, and of a client's batch request, is a row of sub-messages, each

INNER_HEAD
offset  size  type   field        meaning
0       4     i32    total_size   not looked at: the lengths decide, as in the Java client
4       4     i32    magic        0
8       4     i32    body_crc     0
12      4     i32    flag
16      4     i32    body_length

then body, properties length (i16), properties. Source: store-format §2.1, §2.2, §2.8, §2.9.
"""

from struct import Struct
from typing import Final, NamedTuple

from protocol.errors import CorruptRecord, TruncatedFile
from protocol.sys_flag import SysFlag

V1_MAGIC: Final = 0xDAA320A7
V2_MAGIC: Final = 0xDAA320AB
BLANK_MAGIC: Final = 0xCBD43194

V4_V4_FIXED: Final = Struct(">iIiiiqqiq4siq4siiqi")
V6_V4_FIXED: Final = Struct(">iIiiiqqiq16siq4siiqi")
V4_V6_FIXED: Final = Struct(">iIiiiqqiq4siq16siiqi")
V6_V6_FIXED: Final = Struct(">iIiiiqqiq16siq16siiqi")
INNER_HEAD: Final = Struct(">iiiii")

RECORD_START: Final = Struct(">iI")
INT: Final = Struct(">i")
V1_TOPIC_LENGTH: Final = Struct(">b")
V2_TOPIC_LENGTH: Final = Struct(">h")
PROPERTIES_LENGTH: Final = Struct(">h")

PHYSICAL_OFFSET_POSITION: Final = 28
SYS_FLAG_POSITION: Final = 36
BORN_HOST_POSITION: Final = 48
MINIMUM_SIZE: Final = V4_V4_FIXED.size + V1_TOPIC_LENGTH.size + PROPERTIES_LENGTH.size

_FIXED: Final = (V4_V4_FIXED, V6_V4_FIXED, V4_V6_FIXED, V6_V6_FIXED)
RECORD: Final = "record"  # in place of the path in errors about bytes whose file only the caller knows
# bits 4 and 5 of sysFlag, shifted down, number the four host combinations
_HOST_BITS: Final = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
_HOST_SHIFT: Final = 4


def fixed_struct(sys_flag: int) -> Struct:
    """The layout of the fixed part for the host sizes that `sys_flag` names."""
    return _FIXED[(sys_flag & _HOST_BITS) >> _HOST_SHIFT]


class PartPlaces(NamedTuple):
    """Positions inside one record; each length belongs to the bytes that start at the position beside it."""

    fixed: Struct
    body: int
    body_length: int
    topic_length_field: int
    topic: int
    topic_length: int
    properties: int
    properties_length: int
    total_size: int


def locate(record: bytes | memoryview, physical_offset: int | None = None) -> PartPlaces:
    """Find the parts of the record at the start of `record`, which may go on behind it.

    Raises `TruncatedFile` when `record` ends before the record does, and `CorruptRecord` when magic or lengths are none
    of a message; `physical_offset` only serves the error's text. Contents are not looked at.
    """
    total_size = _checked_size(record, physical_offset)
    (sys_flag,) = INT.unpack_from(record, SYS_FLAG_POSITION)
    fixed = fixed_struct(sys_flag)
    topic_length_struct = V1_TOPIC_LENGTH if record[7] == V1_MAGIC & 0xFF else V2_TOPIC_LENGTH
    if fixed.size + topic_length_struct.size + PROPERTIES_LENGTH.size > total_size:
        raise _wrong_length(physical_offset, "total size", "room for all fields", total_size)
    body = fixed.size
    (body_length,) = INT.unpack_from(record, body - INT.size)
    body_length = max(body_length, 0)
    topic_length_field = body + body_length
    topic = topic_length_field + topic_length_struct.size
    if topic + PROPERTIES_LENGTH.size > total_size:
        raise _wrong_length(physical_offset, "body length", f"at most {total_size - body}", body_length)
    (topic_length,) = topic_length_struct.unpack_from(record, topic_length_field)
    properties = topic + topic_length + PROPERTIES_LENGTH.size
    if topic_length < 0 or properties > total_size:
        raise _wrong_length(physical_offset, "topic length", f"0 to {total_size - topic}", topic_length)
    (properties_length,) = PROPERTIES_LENGTH.unpack_from(record, properties - PROPERTIES_LENGTH.size)
    properties_length = max(properties_length, 0)
    if properties + properties_length != total_size:
        raise _wrong_length(physical_offset, "properties length", str(total_size - properties), properties_length)
    return PartPlaces(
        fixed, body, body_length, topic_length_field, topic, topic_length, properties, properties_length, total_size
    )


def _checked_size(record: bytes | memoryview, physical_offset: int | None) -> int:
    """The record's total size, once its magic is a message's and all of it is there."""
    available = len(record)
    if available < RECORD_START.size:
        raise TruncatedFile(RECORD, physical_offset, expected=MINIMUM_SIZE, found=available, what="record of")
    total_size, magic = RECORD_START.unpack_from(record)
    if magic not in (V1_MAGIC, V2_MAGIC):
        raise CorruptRecord(RECORD, physical_offset, expected=V1_MAGIC, found=magic, what="magic")
    if total_size < MINIMUM_SIZE:
        raise _wrong_length(physical_offset, "total size", f"at least {MINIMUM_SIZE}", total_size)
    if total_size > available:
        raise TruncatedFile(RECORD, physical_offset, expected=total_size, found=available, what="record of")
    return int(total_size)


def _wrong_length(physical_offset: int | None, what: str, expected: str, found: int) -> CorruptRecord:
    return CorruptRecord(RECORD, physical_offset, expected=expected, found=found, what=what)
