"""A stored message, decoded: the one record type of the commit log, which goes out to clients byte for byte.

The layout is in `protocol.message_layout`. Both versions (V1 and V2, which differ in the width of the topic's
length) and all combinations of IPv4 and IPv6 hosts are read; what the parts mean follows the Java client: store-format
§2, remoting-protocol §2.1 and §8.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from protocol import properties as names
from protocol.body_content import Content, consumed, unpack
from protocol.checksum import body_crc, property_crc, verify_property_crc
from protocol.compression import DECOMPRESSED_LIMIT, Budget
from protocol.errors import CorruptRecord, StoreError
from protocol.host_address import HostAddress
from protocol.java_hash import decode_java
from protocol.message_edit import with_store_host, without_property
from protocol.message_id import encode_message_id
from protocol.message_layout import (
    INNER_HEAD,
    MINIMUM_SIZE,
    PROPERTIES_LENGTH,
    RECORD,
    V1_MAGIC,
    V2_MAGIC,
    locate,
)
from protocol.sys_flag import OF_BATCH, CompressionType, SysFlag, has_inner_messages

if TYPE_CHECKING:
    from datetime import datetime

__all__ = [
    "MINIMUM_SIZE",
    "V1_MAGIC",
    "V2_MAGIC",
    "CompressionType",
    "HostAddress",
    "Message",
    "SysFlag",
    "decode_message",
    "decode_messages",
    "property_crc",
    "verify_property_crc",
    "with_store_host",
    "without_property",
]

MOST_INNER: Final = 32_767
"""Messages of an inner batch: a broker counts them in a short (store-format §5.8)."""

_COMPRESSED: Final = int(SysFlag.COMPRESSED)


@dataclass(frozen=True, slots=True, repr=False)
class Message:
    """A stored message: the 17 fields of its record, and what they say.

    `topic`, `queue_id` and `queue_offset` are its place in a queue, `physical_offset` and `total_size` (bytes) that of
    its record in the commit log. `born_timestamp` is the client's clock, `store_timestamp` the broker's, in ms since
    1970. `born_host` and `store_host` are IP address and port; `str()` of one is `ip:port`. `flag` is the application's
    own, `sys_flag` RocketMQ's (:class:`protocol.sys_flag.SysFlag`). `stored_body` and `properties_bytes` are as they
    are stored and, decoded from a memoryview, views of the same memory. A body or a property block of negative length
    decodes as empty. The messages of a batch have a common `budget` for what is packed in their bodies, and
    `record_properties`, those of its record, by which brokers judge it.
    """

    total_size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: HostAddress
    store_timestamp: int
    store_host: HostAddress
    reconsume_times: int
    prepared_transaction_offset: int
    stored_body: bytes | memoryview
    topic: str
    properties_bytes: bytes | memoryview
    budget: Budget | None = field(default=None, repr=False, compare=False)
    record_properties: bytes | memoryview | None = field(default=None, repr=False, compare=False)
    _properties: dict[str, str] | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def properties(self) -> dict[str, str]:
        """All properties by name, parsed once; not to be changed."""
        if self._properties is None:
            object.__setattr__(self, "_properties", names.parse_properties(self.properties_bytes))
        return self._properties  # type: ignore[return-value]

    @property
    def keys(self) -> list[str]:
        """The business keys, repeats included."""
        return names.split_keys(self.properties.get(names.KEYS, ""))

    @property
    def tags(self) -> str | None:
        """The tag; a message has at most one, whatever the name says."""
        return self.properties.get(names.TAGS)

    @property
    def unique_key(self) -> str | None:
        """The id that the producer gave the message."""
        return self.properties.get(names.UNIQ_KEY)

    @property
    def offset_message_id(self) -> str:
        """The id that encodes store host and physical offset: 32 or 56 upper-case hex digits."""
        return encode_message_id(self.store_host, self.physical_offset)

    @property
    def message_id(self) -> str:
        """What a Java client's `getMsgId()` returns: the unique key, without one the offset message id."""
        return self.unique_key or self.offset_message_id

    @property
    def body(self) -> bytes:
        """The body, decompressed if it is compressed; errors as :meth:`decoded_body`."""
        return bytes(self.decoded_body())

    @property
    def born_time(self) -> "datetime | None":
        """When the client sent the message, by its clock; None for what is outside the calendar."""
        return to_datetime(self.born_timestamp)

    @property
    def store_time(self) -> "datetime | None":
        """When the broker stored the message, by its clock; None for what is outside the calendar."""
        return to_datetime(self.store_timestamp)

    def content(self, budget: Budget | None = None) -> Content:
        """Return the content of the body: decompressed, and unpacked where an application packed it.

        Where that cannot be done within a budget, the content is what it could be made to, and has the reason.
        """
        budget = budget or self.budget or Budget()
        try:
            body = consumed(self.stored_body, self.sys_flag, budget, self.physical_offset)
        except StoreError as error:
            return Content(self.stored_body, error=str(error))
        content = unpack(body.data, budget=budget)
        return content._replace(packings=(*body.packings, *content.packings), note=body.note)

    def decoded_body(self, limit: int = DECOMPRESSED_LIMIT, *, budget: Budget | None = None) -> bytes | memoryview:
        """The body, decompressed if it is compressed; else `stored_body` itself, which is not copied.

        What is not compressed as its flag says is read as what it is (:func:`protocol.body_content.consumed`). Raises
        `CorruptRecord` for what is nothing known, and beyond a budget, or one of `limit` bytes.
        """
        if not self.sys_flag & _COMPRESSED:
            return self.stored_body
        budget = budget or self.budget or Budget(limit)
        return consumed(self.stored_body, self.sys_flag, budget, self.physical_offset).data

    def inner_messages(self, limit: int = DECOMPRESSED_LIMIT) -> list["Message"]:
        """The messages inside an inner batch as a Java consumer sees them; for any other message, itself alone.

        Number i has queue offset `queue_offset + i`, its own flag, body and properties, and the record's other fields;
        `total_size` is its size inside the body, and the sysFlag bits that speak of the whole body are cleared. Raises
        `CorruptRecord` when the body is no batch. What is packed in the messages is spent of one budget of `limit`
        bytes.
        """
        if not has_inner_messages(self.sys_flag):
            return [self]
        budget = self.budget or Budget(limit)
        return [
            replace(
                self,
                total_size=INNER_HEAD.size + len(body) + PROPERTIES_LENGTH.size + len(properties),
                body_crc=body_crc(body),
                flag=flag,
                queue_offset=self.queue_offset + number,
                sys_flag=self.sys_flag & ~OF_BATCH,
                stored_body=body,
                properties_bytes=properties,
                budget=budget,
                record_properties=self.properties_bytes,
            )
            for number, (flag, body, properties) in enumerate(_split_batch(self.decoded_body(budget=budget)))
        ]

    def detached(self) -> "Message":
        """Copy the message and its bytes, which then do not change when the store's files do."""
        # Not by `replace`, which looks at each field by name: every message that is found is copied.
        return Message(
            self.total_size,
            self.magic,
            self.body_crc,
            self.queue_id,
            self.flag,
            self.queue_offset,
            self.physical_offset,
            self.sys_flag,
            self.born_timestamp,
            self.born_host,
            self.store_timestamp,
            self.store_host,
            self.reconsume_times,
            self.prepared_transaction_offset,
            bytes(self.stored_body),
            self.topic,
            bytes(self.properties_bytes),
            self.budget,
            None if self.record_properties is None else bytes(self.record_properties),
        )

    def __repr__(self) -> str:
        place = f"queue {self.queue_id} offset {self.queue_offset}, physical offset {self.physical_offset}"
        return f"<Message {self.message_id} of {self.topic}: {place}>"


def to_datetime(timestamp: int) -> "datetime | None":
    """A timestamp in ms as a time in UTC; None for what is outside the calendar."""
    from datetime import UTC, datetime, timedelta  # imported here: few commands need it

    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=timestamp)
    except OverflowError:
        return None


def decode_message(
    record: bytes | memoryview, *, physical_offset: int | None = None, check_crc: bool = True
) -> Message:
    """Decode the record at the start of `record`; what follows it is ignored.

    With `physical_offset`, the record must say that it stands there. With `check_crc`, a body must have the CRC that
    the record carries. Raises `CorruptRecord`, or `TruncatedFile` when `record` ends before the record does.
    """
    places = locate(record, physical_offset)
    (
        total_size, magic, crc, queue_id, flag, queue_offset, own_offset, sys_flag, born_timestamp, born_ip, born_port,
        store_timestamp, store_ip, store_port, reconsume_times, prepared_transaction_offset, _body_length,
    ) = places.fixed.unpack_from(record)  # fmt: skip
    if physical_offset is not None and own_offset != physical_offset:
        raise CorruptRecord(
            RECORD, physical_offset, expected=physical_offset, found=own_offset, what="the record's own physical offset"
        )
    body = record[places.body : places.body + places.body_length]
    if check_crc and places.body_length and body_crc(body) != crc:
        raise CorruptRecord(RECORD, own_offset, expected=crc & 0xFFFFFFFF, found=body_crc(body), what="body CRC")
    return Message(
        total_size,
        magic,
        crc,
        queue_id,
        flag,
        queue_offset,
        own_offset,
        sys_flag,
        born_timestamp,
        HostAddress.from_raw(born_ip, born_port),
        store_timestamp,
        HostAddress.from_raw(store_ip, store_port),
        reconsume_times,
        prepared_transaction_offset,
        body,
        decode_java(record[places.topic : places.topic + places.topic_length]),
        record[places.properties : places.total_size],
    )


def decode_messages(body: bytes | memoryview, *, check_crc: bool = True) -> Iterator[Message]:
    """Decode records that follow one another, as in the body of a PULL or QUERY answer; errors as `decode_message`."""
    view = memoryview(body)
    position = 0
    while position < len(view):
        message = decode_message(view[position:], check_crc=check_crc)
        yield message
        position += message.total_size


def _split_batch(body: bytes | memoryview) -> Iterator[tuple[int, bytes | memoryview, bytes | memoryview]]:
    """Flag, body and properties of each sub-message."""
    position = count = 0
    while position < len(body):
        count += 1
        if count > MOST_INNER:
            raise CorruptRecord(RECORD, expected=f"at most {MOST_INNER}", found="more", what="sub-messages of a batch")
        start = position + INNER_HEAD.size
        if start > len(body):
            raise _broken_batch(position, len(body))
        *_ignored, flag, body_length = INNER_HEAD.unpack_from(body, position)
        end = start + body_length
        if body_length < 0 or end + PROPERTIES_LENGTH.size > len(body):
            raise _broken_batch(position, len(body))
        (properties_length,) = PROPERTIES_LENGTH.unpack_from(body, end)
        properties = end + PROPERTIES_LENGTH.size
        position = properties + properties_length
        if properties_length < 0 or position > len(body):
            raise _broken_batch(start, len(body))
        yield flag, body[start:end], body[properties:position]


def _broken_batch(position: int, size: int) -> CorruptRecord:
    return CorruptRecord(
        RECORD, expected=f"to end within the batch of {size} bytes", found="longer", what=f"sub-message at {position}"
    )
