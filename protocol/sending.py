"""Requests of a producer: one message, SEND_MESSAGE_V2, or a batch of them, SEND_BATCH_MESSAGE.

A batch is one request whose body holds a head, the body and the properties of each message; topic, queue and sysFlag
are the request's, so that all its messages have these in common. A broker answers with the offset message ids in order,
separated by commas. Source: remoting-protocol §3.4, store-format §2.9; SendMessageRequestHeaderV2 and MessageDecoder of
RocketMQ 5.5.1.
"""

from dataclasses import dataclass
from typing import Final

from protocol.codes import RequestCode, ResponseCode
from protocol.message_layout import INNER_HEAD, PROPERTIES_LENGTH
from protocol.system_topics import DEFAULT_TOPIC

MOST_PROPERTIES: Final = 32_767
"""Bytes of a message's properties: their length is a short."""

STORED: Final = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
    }
)
"""How a broker answers that has a message in its log; it may not be on disk, or on a slave, yet."""

BUSY: Final = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.FLOW_CONTROL, ResponseCode.SERVICE_NOT_AVAILABLE})
"""How one answers that has stored nothing, and may later: it has too much to do, or its disk is full."""

_DEFAULT_QUEUES: Final = "4"


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """What a producer says of one message; `properties` are encoded, `body` is compressed as `sys_flag` says."""

    topic: str
    flag: int
    sys_flag: int
    properties: bytes
    body: bytes
    reconsume_times: int = 0


def packed(message: OutgoingMessage) -> bytes:
    """A message as one of a batch: its head, body and properties."""
    size = INNER_HEAD.size + len(message.body) + PROPERTIES_LENGTH.size + len(message.properties)
    head = INNER_HEAD.pack(size, 0, 0, message.flag, len(message.body))
    return b"".join((head, message.body, PROPERTIES_LENGTH.pack(len(message.properties)), message.properties))


def packed_size(messages: bytes | memoryview) -> int:
    """The bytes of the first of some messages that are packed."""
    size, *_ = INNER_HEAD.unpack_from(messages)
    return int(size)


def properties_of_packed(message: bytes | memoryview) -> bytes:
    """The properties of a message that is packed."""
    *_, length = INNER_HEAD.unpack_from(message)
    return bytes(message[INNER_HEAD.size + length + PROPERTIES_LENGTH.size :])


def send_request(
    group: str,
    topic: str,
    sys_flag: int,
    messages: bytes | memoryview,
    count: int,
    queue_id: int,
    born_timestamp: int,
    broker_name: str,
    reconsume_times: int = 0,
) -> tuple[RequestCode, dict[str, str], bytes]:
    """The code, header fields and body of the request that sends so many packed messages of one topic and sysFlag.

    `born_timestamp` in ms. Properties that are no UTF-8 are sent as Java would read them.
    """
    is_batch = count > 1
    *_, flag, length = INNER_HEAD.unpack_from(messages)
    fields = {
        "a": group,
        "b": topic,
        "c": DEFAULT_TOPIC,
        "d": _DEFAULT_QUEUES,
        "e": str(queue_id),
        "f": str(sys_flag),
        "g": str(born_timestamp),
        "h": "0" if is_batch else str(flag),
        "i": "" if is_batch else properties_of_packed(messages).decode("utf-8", "replace"),
        "j": str(reconsume_times),
        "k": "false",
        "m": "true" if is_batch else "false",
        "n": broker_name,
    }
    if is_batch:
        return RequestCode.SEND_BATCH_MESSAGE, fields, bytes(messages)
    return RequestCode.SEND_MESSAGE_V2, fields, bytes(messages[INNER_HEAD.size : INNER_HEAD.size + length])
