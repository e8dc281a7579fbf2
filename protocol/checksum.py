"""The two checksums of a stored message: of the body, and optionally of the whole record (store-format §2.6).

Both are CRC-32 (IEEE) without the top bit, so that they fit a non-negative Java int. The record's own checksum is the
property `__CRC32#`, written by brokers with `enabledAppendPropCRC`: always the last 20 bytes of a record, ten decimal
digits with the least significant first, over everything in front of them.
"""

import re
from typing import Final

from protocol.message_layout import locate
from protocol.properties import PROPERTY_CRC

try:
    from isal.isal_zlib import crc32 as crc32
except ImportError:  # not every platform has it; this one is 8 to 13 times slower
    from zlib import crc32 as crc32

CRC_MASK: Final = 0x7FFFFFFF
_DIGITS: Final = 10
_PREFIX: Final = PROPERTY_CRC.encode() + b"\x01"
PROPERTY_CRC_SIZE: Final = len(_PREFIX) + _DIGITS + 1
_PATTERN: Final = re.compile(re.escape(_PREFIX) + rb"([0-9]{%d})\x02" % _DIGITS)


def body_crc(body: bytes | memoryview) -> int:
    """The CRC that a record carries for `body`: over the bytes as stored, that is, compressed."""
    return crc32(body) & CRC_MASK


def property_crc(record: bytes | memoryview) -> int | None:
    """The checksum that the record at the start of `record` carries for itself, `None` if it has none.

    Raises `CorruptRecord` or `TruncatedFile` when there is no record.
    """
    places = locate(record)
    if places.properties_length < PROPERTY_CRC_SIZE:
        return None
    found = _PATTERN.fullmatch(bytes(record[places.total_size - PROPERTY_CRC_SIZE : places.total_size]))
    return int(found[1][::-1]) if found else None


def verify_property_crc(record: bytes | memoryview) -> bool:
    """Whether the record carries a checksum of itself and that is right; without one, `False`, as the broker has it."""
    carried = property_crc(record)
    return carried is not None and carried == _computed(record, locate(record).total_size)


def encode_property_crc(value: int) -> bytes:
    """The 20 bytes that carry `value` at the end of a record."""
    return _PREFIX + f"{value:0{_DIGITS}d}"[::-1].encode() + b"\x02"


def renew_property_crc(record: bytes) -> bytes:
    """`record`, exactly one record, with the checksum that it carries (if it does) made right again after an edit."""
    if property_crc(record) is None:
        return record
    return record[:-PROPERTY_CRC_SIZE] + encode_property_crc(_computed(record, len(record)))


def _computed(record: bytes | memoryview, total_size: int) -> int:
    return body_crc(record[: total_size - PROPERTY_CRC_SIZE])
