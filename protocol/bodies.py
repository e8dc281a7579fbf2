"""The JSON bodies of requests and responses: one struct each, named and spelled as in RocketMQ.

What we send is compact, has quoted integer keys and, where a map's keys are MessageQueues, those objects as bare keys:
the one form that all clients accept. What we read may be anything Java's fastjson accepts. Members that clients
dereference (`filterServerTable`, `enableActingMaster`) are always written; optional ones stay `UNSET` and are not. The
configuration of topics and groups (codes 21, 201, 351, 352) is `storage.layout.store_config`'s.
Source: remoting-protocol §4.
"""

import json
import time
from collections.abc import Iterable
from typing import Any, Final, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from protocol.errors import BadCommand, ProtocolError
from protocol.fastjson import parse_fastjson
from protocol.header_fields import I32, I64

Body = TypeVar("Body")

_encode: Final = msgspec.json.Encoder().encode

# How Java declares the enums of a heartbeat: C++ clients send a member's number.
_ORDINALS: Final = {
    "consumeType": ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP"),
    "messageModel": ("BROADCASTING", "CLUSTERING"),
    "consumeFromWhere": (
        "CONSUME_FROM_LAST_OFFSET",
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
        "CONSUME_FROM_MIN_OFFSET",
        "CONSUME_FROM_MAX_OFFSET",
        "CONSUME_FROM_FIRST_OFFSET",
        "CONSUME_FROM_TIMESTAMP",
    ),
}


def encode_json(value: object) -> bytes:
    """Encode a struct below, or plain values, as compact JSON: integer keys in quotes, `?` for a lone surrogate."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        # A directory's name that is no UTF-8, most likely.
        return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _plain(value: object) -> Any:
    """A value in what the standard library encodes."""
    return msgspec.to_builtins(value, str_keys=True)


def decode_json(data: bytes, kind: type[Body]) -> Body:
    """Decode a body as `kind`, as leniently as a Java peer: unknown members, nulls and bare keys are no errors.

    Raises `BadCommand` naming the kind and what is wrong.
    """
    body = decode_plain_json(data, kind)
    return decode_odd_json(data, kind) if body is None else body


def decode_plain_json(data: bytes, kind: type[Body]) -> Body | None:
    """A body that is plain JSON of this kind, None for any other."""
    try:
        return msgspec.json.decode(data, type=kind, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def decode_odd_json(data: bytes, kind: type[Body]) -> Body:
    """A body that is not; it takes up to two microseconds a byte, a hundred times as long. Raises as `decode_json`."""
    try:
        return msgspec.convert(_as_java_reads(parse_fastjson(data)), kind, strict=False)
    except (msgspec.ValidationError, ProtocolError, RecursionError) as error:
        raise BadCommand(f"the body is no {kind.__name__}: {error}") from error


def _as_java_reads(value: Any) -> Any:
    """Return a value without members that are null, and with the names of enum members for their numbers."""
    if isinstance(value, dict):
        return {name: _as_java_reads(_named(name, inner)) for name, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_as_java_reads(inner) for inner in value if inner is not None]
    return value


def _named(member: str, value: object) -> object:
    names = _ORDINALS.get(member, ())
    return names[value] if type(value) is int and 0 <= value < len(names) else value


class _Body(msgspec.Struct, rename="camel"):
    """What all bodies have in common."""


# ---------------------------------------------------------------------- maps by queue


class MessageQueue(msgspec.Struct, frozen=True, rename="camel"):
    """One queue of a topic at a broker."""

    broker_name: str
    queue_id: I32
    topic: str


def encode_message_queue_map(entries: Iterable[tuple[MessageQueue, object]]) -> bytes:
    """Encode a map whose keys are queues, each key a bare object: no JSON, but what Java writes and 5.4+ requires."""
    return b"{%b}" % b",".join([b"%b:%b" % (encode_json(queue), encode_json(value)) for queue, value in entries])


def message_queue_map(entries: Iterable[tuple[MessageQueue, object]]) -> msgspec.Raw:
    """The text as a member of a struct."""
    return msgspec.Raw(encode_message_queue_map(entries))


class TopicOffset(_Body):
    """First and next offset of a queue; store time of its last message in ms, 0 for none."""

    last_update_timestamp: int
    max_offset: int
    min_offset: int


class TopicStatsTable(_Body):
    """Code 202; `offset_table` by `message_queue_map` of `TopicOffset`."""

    offset_table: msgspec.Raw
    topic_put_tps: float = 0.0


class TopicOffsets(_Body):
    """Code 202 as it is read: its map by the compact JSON of a `MessageQueue`."""

    offset_table: dict[str, TopicOffset]

    def by_queue(self) -> dict[int, TopicOffset]:
        """The map by queue id. Raises `BadCommand` for a key that names no queue."""
        try:
            queues = [msgspec.json.decode(key, type=MessageQueue) for key in self.offset_table]
        except msgspec.DecodeError as error:
            raise BadCommand(f"a key of the body names no queue: {error}") from error
        return {queue.queue_id: each for queue, each in zip(queues, self.offset_table.values(), strict=True)}


class OffsetWrapper(_Body):
    """How far a group is in one queue; `last_timestamp` is the store time in ms of the last message it consumed.

    A `pull_offset` below `consumer_offset` would print as a negative number in flight.
    """

    broker_offset: int
    consumer_offset: int
    last_timestamp: int
    pull_offset: int


class ConsumeStats(_Body):
    """Code 208; `offset_table` by `message_queue_map` of `OffsetWrapper`."""

    offset_table: msgspec.Raw
    consume_tps: float = 0.0


class ConsumeStatsList(_Body):
    """Code 317: per group, its statistics per topic."""

    broker_addr: str
    consume_stats_list: list[dict[str, list[ConsumeStats]]]
    total_diff: int = 0
    total_inflight_diff: int = 0


# ---------------------------------------------------------------------- routes, clusters, lists


class BrokerData(_Body):
    """One broker name and the addresses behind it, `host:port` by broker id in digits."""

    cluster: str
    broker_name: str
    broker_addrs: dict[str, str] = {}
    enable_acting_master: bool = False
    zone_name: str | UnsetType = UNSET


class QueueData(_Body):
    """How many queues of a topic a broker has; `perm` is 4 to read and 2 to write."""

    broker_name: str
    perm: int
    read_queue_nums: int
    write_queue_nums: int
    topic_sys_flag: int = 0


class TopicRouteData(_Body):
    """Code 105."""

    broker_datas: list[BrokerData] = []
    queue_datas: list[QueueData] = []
    filter_server_table: dict[str, list[str]] = {}
    order_topic_conf: str | UnsetType = UNSET
    topic_queue_mapping_by_broker: dict[str, Any] | UnsetType = UNSET


class ClusterInfo(_Body):
    """Code 106: brokers by name, and the names of the brokers of each cluster."""

    broker_addr_table: dict[str, BrokerData]
    cluster_addr_table: dict[str, list[str]]


class TopicList(_Body, omit_defaults=True):
    """Codes 206, 224, 304, 305, 311–313, 343; `broker_addr` for 304 alone."""

    topic_list: list[str]
    broker_addr: str | None = None


class TopicQueues(_Body):
    """How many queues a topic has: what our client reads of its configuration in code 21, with its attributes."""

    read_queue_nums: I32 = 0
    write_queue_nums: I32 = 0
    attributes: dict[str, str] | None = None


class TopicConfigTable(_Body):
    """Code 21 as our client reads it."""

    topic_config_table: dict[str, TopicQueues]


class SubscriptionGroupTable(_Body):
    """Code 201 as our client reads it: groups by name."""

    subscription_group_table: dict[str, Any]


class ConsumerOffsetTable(_Body):
    """Code 43 as our client reads it: the committed offset by queue id, by `topic@group`."""

    offset_table: dict[str, dict[I32, I64]]


class GroupList(_Body):
    """Code 300."""

    group_list: list[str]


class KVTable(_Body):
    """Codes 28 and 219; all values are texts."""

    table: dict[str, str]


# ---------------------------------------------------------------------- clients


class SubscriptionData(_Body):
    """What a group wants of a topic; `code_set` are the hashes of the tags in `tags_set`.

    `sub_version` grows, in ms; as in RocketMQ it is the time of reading where a client leaves it out.
    """

    topic: str
    sub_string: str = "*"
    class_filter_mode: bool = False
    code_set: list[int] = []
    expression_type: str = "TAG"
    filter_class_source: str | UnsetType = UNSET
    sub_version: I64 = msgspec.field(default_factory=lambda: time.time_ns() // 1_000_000)
    tags_set: list[str] = []


class QuerySubscriptionResponseBody(_Body):
    """Code 345."""

    group: str
    topic: str | None
    subscription_data: SubscriptionData | UnsetType = UNSET


class ConsumerData(_Body):
    """One consumer group in a heartbeat."""

    group_name: str
    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = "CLUSTERING"
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"
    subscription_data_set: list[SubscriptionData] = []
    unit_mode: bool = False


class ProducerData(_Body):
    """One producer group in a heartbeat."""

    group_name: str


class HeartbeatData(_Body):
    """Code 34's request; with `without_sub` it leaves out subscriptions that it has reported before."""

    client_id: str = msgspec.field(name="clientID")
    producer_data_set: list[ProducerData] = []
    consumer_data_set: list[ConsumerData] = []
    heartbeat_fingerprint: I32 = 0
    without_sub: bool = False


class CheckClientRequestBody(_Body):
    """Code 46's request."""

    client_id: str | None = None
    group: str | None = None
    subscription_data: SubscriptionData | None = None
    namespace: str | None = None


class LockBatchRequestBody(_Body):
    """The request of codes 41 and 42."""

    consumer_group: str
    client_id: str
    mq_set: list[MessageQueue] = []
    only_this_broker: bool = False


class LockBatchResponseBody(_Body):
    """Code 41: the queues that were granted."""

    lock_ok_mq_set: list[MessageQueue] = msgspec.field(name="lockOKMQSet")


class QueryAssignmentRequestBody(_Body):
    """The request of code 400: a member asks for its share of a topic's queues."""

    topic: str
    consumer_group: str
    message_model: str
    client_id: str | None = None
    strategy_name: str | None = None


class MessageQueueAssignment(_Body):
    """One queue of code 400, and how its messages are to be got."""

    message_queue: MessageQueue
    mode: str = "PULL"


class QueryAssignmentResponseBody(_Body):
    """Code 400."""

    message_queue_assignments: list[MessageQueueAssignment] | UnsetType = UNSET


class GetConsumerListByGroupResponseBody(_Body):
    """Code 38: the client ids of a group."""

    consumer_id_list: list[str]


class ConnectedClient(_Body):
    """One client of a group; `client_addr` is `ip:port`, `language` a name of `LanguageCode`."""

    client_addr: str
    client_id: str
    language: str
    version: int


class ConsumerConnection(_Body):
    """Code 203; subscriptions by topic."""

    connection_set: list[ConnectedClient]
    consume_from_where: str
    consume_type: str
    message_model: str
    subscription_table: dict[str, SubscriptionData]


class ProducerConnection(_Body):
    """Code 204."""

    connection_set: list[ConnectedClient]


class ProducerInfo(_Body):
    """One client of a producer group; its last heartbeat in ms."""

    client_id: str
    language: str
    last_update_timestamp: int
    version: int
    remote_ip: str = msgspec.field(name="remoteIP")


class ProducerTableInfo(_Body):
    """Code 328: clients by producer group."""

    data: dict[str, list[ProducerInfo]]


# ---------------------------------------------------------------------- queues, statistics, the broker itself


class ConsumeQueueData(_Body):
    """One unit of a consume queue; `eval` says whether the filter of the group in the request lets it pass."""

    physic_offset: int
    physic_size: int
    tags_code: int
    eval: bool = False
    bit_map: str | UnsetType = UNSET
    extend_data_json: str | UnsetType = UNSET
    msg: str | UnsetType = UNSET


class QueryConsumeQueueResponseBody(_Body):
    """Code 321."""

    max_queue_index: int
    min_queue_index: int
    queue_data: list[ConsumeQueueData]
    filter_data: str | UnsetType = UNSET
    subscription_data: SubscriptionData | UnsetType = UNSET


class QueueTimeSpan(_Body):
    """Times of a queue in ms: of its first and last message, of the last one consumed, and how late that is."""

    message_queue: MessageQueue
    min_time_stamp: int
    max_time_stamp: int
    consume_time_stamp: int
    delay_time: int


class QueryConsumeTimeSpanBody(_Body):
    """Code 303."""

    consume_time_span_set: list[QueueTimeSpan]


class BrokerStatsItem(_Body):
    """A statistic over one span of time: total, per second, and average per event."""

    avgpt: float = 0.0
    sum: int = 0
    tps: float = 0.0


class BrokerStatsData(_Body):
    """Code 315."""

    stats_day: BrokerStatsItem
    stats_hour: BrokerStatsItem
    stats_minute: BrokerStatsItem


class HAClientRuntimeInfo(_Body):
    """How a slave reads from its master: nothing, for us."""

    last_read_timestamp: int = 0
    last_write_timestamp: int = 0
    master_flush_offset: int = 0
    max_offset: int = 0
    transferred_byte_in_second: int = 0


class HARuntimeInfo(_Body):
    """Code 907."""

    master_commit_log_max_offset: int
    master: bool = True
    in_sync_slave_nums: int = 0
    ha_connection_info: list[Any] = []
    ha_client_runtime_info: HAClientRuntimeInfo = msgspec.field(default_factory=HAClientRuntimeInfo)
