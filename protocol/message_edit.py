"""Records changed on their way out: without a property, with another store host, with a body that is not compressed.

What is not changed keeps its bytes; lengths are corrected, and so is the record's checksum of itself where it carries
one. The only module that makes records differ from what the store holds, and alone for that reason.
"""

from typing import Final

from protocol.body_content import consumed
from protocol.checksum import body_crc, renew_property_crc
from protocol.compression import Budget
from protocol.host_address import HostAddress
from protocol.message_layout import (
    INT,
    PROPERTIES_LENGTH,
    SYS_FLAG_POSITION,
    fixed_struct,
    locate,
)
from protocol.properties import remove_property
from protocol.sys_flag import COMPRESSION_TYPE_MASK, SysFlag

_STORE_V6: Final = int(SysFlag.STORE_HOST_V6)
_COMPRESSED: Final = int(SysFlag.COMPRESSED) | COMPRESSION_TYPE_MASK


def without_property(record: bytes | memoryview, name: str) -> bytes:
    """The record without the property `name`; without `UNIQ_KEY` a Java client takes the offset message id for its id.

    Raises `CorruptRecord` or `TruncatedFile` when there is no record.
    """
    places = locate(record)
    block = remove_property(record[places.properties : places.total_size], name)
    if len(block) == places.properties_length:
        return bytes(record[: places.total_size])
    total_size = places.properties + len(block)
    length_field = places.properties - PROPERTIES_LENGTH.size
    parts = (INT.pack(total_size), record[INT.size : length_field], PROPERTIES_LENGTH.pack(len(block)), block)
    return renew_property_crc(b"".join(parts))


def with_store_host(record: bytes | memoryview, store_host: HostAddress) -> bytes:
    """The record with another store host, so that the offset message id a client computes leads there.

    Raises `CorruptRecord` or `TruncatedFile` when there is no record.
    """
    places = locate(record)
    (sys_flag,) = INT.unpack_from(record, SYS_FLAG_POSITION)
    fields = list(places.fixed.unpack_from(record))
    sys_flag = _with_bit(sys_flag, _STORE_V6, store_host.is_ipv6)
    fixed = fixed_struct(sys_flag)
    fields[0] = places.total_size - places.fixed.size + fixed.size
    fields[7] = sys_flag
    fields[12:14] = store_host.raw_ip, store_host.port
    return renew_property_crc(fixed.pack(*fields) + bytes(record[places.fixed.size : places.total_size]))


def with_plain_body(record: bytes | memoryview) -> bytes:
    """A record that is compressed as one that is not.

    Raises `CorruptRecord` or `TruncatedFile` when there is no record, or its body cannot be decompressed.
    """
    places = locate(record)
    fields = list(places.fixed.unpack_from(record))
    body = consumed(record[places.body : places.body + places.body_length], fields[7], Budget()).data
    rest = bytes(record[places.topic_length_field : places.total_size])
    fields[0], fields[2] = places.fixed.size + len(body) + len(rest), body_crc(body)
    fields[7], fields[-1] = fields[7] & ~_COMPRESSED, len(body)
    return renew_property_crc(b"".join((places.fixed.pack(*fields), body, rest)))


def _with_bit(flags: int, bit: int, is_set: bool) -> int:
    return flags | bit if is_set else flags & ~bit
