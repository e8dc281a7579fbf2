"""Records built from their fields, as a broker would store them."""

from collections.abc import Mapping
from typing import Final

from protocol.checksum import body_crc as crc_of_body
from protocol.host_address import HostAddress
from protocol.message_layout import (
    PROPERTIES_LENGTH,
    V1_MAGIC,
    V1_TOPIC_LENGTH,
    V2_MAGIC,
    V2_TOPIC_LENGTH,
    fixed_struct,
)
from protocol.properties import encode_properties
from protocol.sys_flag import SysFlag

V1_TOPIC_CHARACTERS: Final = 127
"""UTF-16 units that a topic may have before a broker writes V2."""

_BORN_V6: Final = int(SysFlag.BORN_HOST_V6)
_STORE_V6: Final = int(SysFlag.STORE_HOST_V6)
_NOWHERE: Final = HostAddress("127.0.0.1", 0)


def encode_message(
    *,
    topic: str,
    body: bytes | memoryview = b"",
    properties: Mapping[str, str] | bytes | memoryview = b"",
    queue_id: int = 0,
    queue_offset: int = 0,
    physical_offset: int = 0,
    flag: int = 0,
    sys_flag: int = 0,
    born_timestamp: int = 0,
    born_host: HostAddress = _NOWHERE,
    store_timestamp: int = 0,
    store_host: HostAddress = _NOWHERE,
    reconsume_times: int = 0,
    prepared_transaction_offset: int = 0,
    magic: int | None = None,
    body_crc: int | None = None,
) -> bytes:
    """The record that a broker would store.

    The host bits of `sys_flag` follow the hosts; without `magic` the version follows the topic's length, and without
    `body_crc` it is computed. Raises `ValueError` for a topic or properties longer than their length fields can say.
    """
    topic_bytes = topic.encode("utf-8", "replace")
    if magic is None:
        magic = V2_MAGIC if len(topic.encode("utf-16-le", "surrogatepass")) // 2 > V1_TOPIC_CHARACTERS else V1_MAGIC
    topic_length = V2_TOPIC_LENGTH if magic == V2_MAGIC else V1_TOPIC_LENGTH
    block = encode_properties(properties) if isinstance(properties, Mapping) else bytes(properties)
    _check_length("topic", topic_bytes, (1 << 8 * topic_length.size - 1) - 1)
    _check_length("properties", block, 0x7FFF)
    sys_flag = _with_bit(sys_flag, _BORN_V6, born_host.is_ipv6)
    sys_flag = _with_bit(sys_flag, _STORE_V6, store_host.is_ipv6)
    fixed = fixed_struct(sys_flag)
    total_size = fixed.size + len(body) + topic_length.size + len(topic_bytes) + PROPERTIES_LENGTH.size + len(block)
    head = fixed.pack(
        total_size, magic, crc_of_body(body) if body_crc is None else body_crc, queue_id, flag, queue_offset,
        physical_offset, sys_flag, born_timestamp, born_host.raw_ip, born_host.port, store_timestamp,
        store_host.raw_ip, store_host.port, reconsume_times, prepared_transaction_offset, len(body),
    )  # fmt: skip
    return b"".join(
        (head, body, topic_length.pack(len(topic_bytes)), topic_bytes, PROPERTIES_LENGTH.pack(len(block)), block)
    )


def _with_bit(flags: int, bit: int, is_set: bool) -> int:
    return flags | bit if is_set else flags & ~bit


def _check_length(what: str, data: bytes, limit: int) -> None:
    if len(data) > limit:
        raise ValueError(f"{what} of {len(data)} bytes: at most {limit} fit the record's length field")
