"""A stored message as clients of RocketMQ 5 get it: what `GrpcConverter` of the official proxy 5.5.0 makes of it.

The body is as it is stored, compressed or not; clients decompress it. One thing differs: the time at which a message
with TIMER_DELAY_SEC was to be delivered is counted from when it was stored, where the proxy counts from now.
"""

import hashlib
import ipaddress
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from google.protobuf.timestamp_pb2 import Timestamp

from broker.grpc.messages.definition_pb2 import (
    DeadLetterQueue,
    Digest,
    DigestType,
    Encoding,
    MessageType,
    SystemProperties,
)
from broker.grpc.messages.definition_pb2 import Message as GrpcMessage
from broker.grpc.resources import resource_of
from protocol import properties as names
from protocol.header_fields import well_formed
from protocol.host_address import KEPT
from protocol.message import Message
from protocol.question import LARGEST
from protocol.sys_flag import SysFlag

BORN_HOST: Final = "__BORNHOST"
LITE_TOPIC: Final = "__LITE_TOPIC"
PRIORITY: Final = "_SYS_MSG_PRIORITY_"
TRACE_CONTEXT: Final = "TRACE_CONTEXT"
POP_CK: Final = "POP_CK"

_SYSTEM: Final = """
1ST_POP_TIME ARRIVE_TIME BORN_TIMESTAMP BUYER_ID CLUSTER CONSUME_START_TIME CORRECTION_FLAG CORRELATION_ID DELAY
DLQ_ORIGIN_MESSAGE_ID DLQ_ORIGIN_TOPIC DUP_INFO EXTEND_UNIQ_INFO INNER_MULTI_QUEUE_OFFSET INSTANCE_ID KEYS MAX_OFFSET
MAX_RECONSUME_TIMES MIN_OFFSET MQ2_FLAG MSG_REGION MSG_TYPE ORIGIN_GROUP ORIGIN_MESSAGE_ID PGROUP POP_CK POP_CK_OFFSET
PUSH_REPLY_TIME REAL_QID REAL_TOPIC RECONSUME_TIME REPLY_TO_CLIENT RETRY_TOPIC TAGS TIMER_DELAY_LEVEL TIMER_DELAY_MS
TIMER_DELAY_SEC TIMER_DELIVER_MS TIMER_DEL_UNIQKEY TIMER_DEQUEUE_MS TIMER_ENQUEUE_MS TIMER_OUT_MS TIMER_ROLL_TIMES
TRACE_ON TRANSFER_FLAG TRAN_MSG TRAN_PREPARED_QUEUE_OFFSET TTL UNIQ_KEY WAIT _SYS_MSG_PRIORITY_ __BORNHOST __CRC32#
__LITE_TOPIC
"""
SYSTEM: Final = frozenset(_SYSTEM.split())
"""The properties that are not the application's (`MessageConst.STRING_HASH_SET`)."""

DELAYS: Final = frozenset((names.DELAY, names.TIMER_DELIVER_MS, names.TIMER_DELAY_SEC, names.TIMER_DELAY_MS))


def message_of(stored: Message) -> GrpcMessage:
    """The message of a stored one."""
    properties = stored.properties
    body = bytes(stored.stored_body)
    digest = hashlib.md5(body, usedforsecurity=False).hexdigest().upper()
    # One constructor with all fields: each that is set by itself costs as much as five of these.
    fields: dict[str, Any] = {
        "keys": [well_formed(key) for key in _split(properties.get(names.KEYS))],
        "message_id": well_formed(stored.message_id),
        "body_digest": Digest(type=_MD5, checksum=digest),
        "body_encoding": _GZIP if stored.sys_flag & _COMPRESSED else _IDENTITY,
        "message_type": type_of(properties),
        "born_timestamp": timestamp_of(stored.born_timestamp),
        "born_host": well_formed(properties.get(BORN_HOST, "").strip() or _java_address(stored.born_host.ip)),
        "store_timestamp": timestamp_of(stored.store_timestamp),
        "store_host": f"{_java_address(stored.store_host.ip)}:{stored.store_host.port}",
        "queue_id": stored.queue_id,
        "queue_offset": stored.queue_offset,
        "delivery_attempt": _i32(stored.reconsume_times + 1),
    }
    for name, field in _TEXTS:
        if name in properties:
            fields[field] = well_formed(properties[name])
    delivery = _delivery(stored)
    if delivery is not None:
        fields["delivery_timestamp"] = timestamp_of(delivery)
    priority = _number(properties.get(PRIORITY))
    if priority is not None:
        fields["priority"] = _i32(priority)
    if names.DLQ_ORIGIN_TOPIC in properties and names.DLQ_ORIGIN_MESSAGE_ID in properties:
        origin = properties[names.DLQ_ORIGIN_TOPIC], properties[names.DLQ_ORIGIN_MESSAGE_ID]
        fields["dead_letter_queue"] = DeadLetterQueue(topic=well_formed(origin[0]), message_id=well_formed(origin[1]))
    return GrpcMessage(
        topic=resource_of(stored.topic),
        user_properties={
            well_formed(name): well_formed(value) for name, value in properties.items() if name not in SYSTEM
        },
        system_properties=SystemProperties(**fields),
        body=body,
    )


_MD5, _GZIP, _IDENTITY = DigestType.MD5, Encoding.GZIP, Encoding.IDENTITY
_COMPRESSED: Final = int(SysFlag.COMPRESSED)
_TRANSACTION, _DELAY, _FIFO = MessageType.TRANSACTION, MessageType.DELAY, MessageType.FIFO
_PRIORITY, _LITE, _NORMAL = MessageType.PRIORITY, MessageType.LITE, MessageType.NORMAL
# Looked up once: by the name of an enum each takes longer than a dict.

_TEXTS: Final = (
    (names.TAGS, "tag"),
    (names.SHARDING_KEY, "message_group"),
    (LITE_TOPIC, "lite_topic"),
    (POP_CK, "receipt_handle"),
    (TRACE_CONTEXT, "trace_context"),
)
"""Properties that are fields as they are."""


def type_of(properties: Mapping[str, str]) -> MessageType:
    """The type that a message's properties say (`TopicMessageType.parseFromMessageProperty`)."""
    if properties.get(names.TRAN_MSG, "").lower() == "true":
        return _TRANSACTION
    if not DELAYS.isdisjoint(properties):
        return _DELAY
    if names.SHARDING_KEY in properties:
        return _FIFO
    if PRIORITY in properties:
        return _PRIORITY
    return _LITE if LITE_TOPIC in properties else _NORMAL


def timestamp_of(milliseconds: int) -> Timestamp:
    """A time of a store."""
    seconds, rest = divmod(milliseconds, 1000)
    return Timestamp(seconds=seconds, nanos=rest * 1_000_000)


def milliseconds_of(timestamp: Timestamp, *, is_up: bool = True) -> int:
    """A time in ms, as stores have it: the first one not before it, or the last one not behind it."""
    nanos = timestamp.seconds * 1_000_000_000 + timestamp.nanos
    return min(max(-(-nanos // 1_000_000) if is_up else nanos // 1_000_000, 0), LARGEST)


def _split(keys: str | None) -> list[str]:
    """Keys as Java's `split(" ")` takes them apart: without the empty ones at the end."""
    if not keys:
        return []
    parts = keys.split(" ")
    while parts and not parts[-1]:
        parts.pop()
    return parts


def _delivery(stored: Message) -> int | None:
    """When a message was to be delivered, None where it does not say."""
    seconds = _number(stored.properties.get(names.TIMER_DELAY_SEC))
    if seconds is not None:
        return stored.store_timestamp + seconds * 1000
    return _number(stored.properties.get(names.TIMER_DELIVER_MS))


def _number(text: str | None) -> int | None:
    """A number of at most 15 digits; longer ones are no times."""
    if text is None:
        return None
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) <= 15 else None


def _i32(number: int) -> int:
    return min(max(number, -(2**31)), 2**31 - 1)


@lru_cache(KEPT)
def _java_address(ip: str) -> str:
    """An address as `getHostAddress` writes it: of IPv6 all eight groups, without zeros before them."""
    if ":" not in ip:
        return ip
    groups = ipaddress.IPv6Address(ip).exploded.split(":")
    return ":".join(f"{int(group, 16):x}" for group in groups)
