"""The typed header of each request of the read side: one struct a request, named and spelled as in RocketMQ.

A field without a default is mandatory; integers are range-checked as Java's int and long. Fields that any request may
carry besides (`ns`, `nsd`, `bname`, `lo`, `oway`, credentials) are not listed: `ext_fields_of` has all of them. Bodies
are in `protocol.bodies`. Source: remoting-protocol §3.4, §4.20, §7 and the header classes of 5.5.0.
"""

from enum import StrEnum

import msgspec

from protocol.header_fields import I32, I64


class BoundaryType(StrEnum):
    """Which of several messages a time means: the first at or after it, or the last at or before it."""

    LOWER = "LOWER"
    UPPER = "UPPER"


class RequestHeader(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """What all headers have in common."""


class EmptyRequestHeader(RequestHeader, frozen=True):
    """For requests without fields of their own: 26, 28, 34, 41, 42, 46, 106, 206, 304, 305, 319, 328, 907 and more."""


# ---------------------------------------------------------------------- messages


class QueryMessageRequestHeader(RequestHeader, frozen=True):
    """QUERY_MESSAGE: times in ms; `index_type` K, U or T; `last_key` as the client's paging token has it."""

    topic: str
    key: str
    max_num: I32
    begin_timestamp: I64
    end_timestamp: I64
    index_type: str | None = None
    last_key: str | None = None
    unique_key_query: bool = msgspec.field(default=False, name="_UNIQUE_KEY_QUERY")


class ViewMessageRequestHeader(RequestHeader, frozen=True):
    """VIEW_MESSAGE_BY_ID: `offset` is a physical offset."""

    offset: I64
    topic: str | None = None


class PullMessageRequestHeader(RequestHeader, frozen=True):
    """PULL_MESSAGE and LITE_PULL_MESSAGE; the meaning of `sys_flag` is in remoting-protocol §3.4."""

    consumer_group: str
    topic: str
    queue_id: I32
    queue_offset: I64
    max_msg_nums: I32
    sys_flag: I32
    commit_offset: I64
    suspend_timeout_millis: I64
    sub_version: I64
    subscription: str | None = None
    expression_type: str | None = None
    max_msg_bytes: I32 | None = None
    lite_topic: str | None = None
    request_source: I32 | None = None
    # sic
    proxy_froward_client_id: str | None = None


class QueryConsumeQueueRequestHeader(RequestHeader, frozen=True):
    """QUERY_CONSUME_QUEUE: `count` entries from queue offset `index`; Java marks nothing as mandatory."""

    topic: str
    queue_id: I32 = 0
    index: I64 = 0
    count: I32 = 0
    consumer_group: str | None = None


# ---------------------------------------------------------------------- offsets of queues and consumers


class GetMaxOffsetRequestHeader(RequestHeader, frozen=True):
    """GET_MAX_OFFSET: the next offset to be written."""

    topic: str
    queue_id: I32
    committed: bool = True


class GetMinOffsetRequestHeader(RequestHeader, frozen=True):
    """GET_MIN_OFFSET."""

    topic: str
    queue_id: I32


class SearchOffsetRequestHeader(RequestHeader, frozen=True):
    """SEARCH_OFFSET_BY_TIMESTAMP: `timestamp` in ms."""

    topic: str
    queue_id: I32
    timestamp: I64
    boundary_type: BoundaryType = BoundaryType.LOWER
    lite_topic: str | None = None


class GetEarliestMsgStoretimeRequestHeader(RequestHeader, frozen=True):
    """GET_EARLIEST_MSG_STORETIME."""

    topic: str
    queue_id: I32


class QueryConsumerOffsetRequestHeader(RequestHeader, frozen=True):
    """QUERY_CONSUMER_OFFSET."""

    consumer_group: str
    topic: str
    queue_id: I32
    set_zero_if_not_found: bool | None = None


class UpdateConsumerOffsetRequestHeader(RequestHeader, frozen=True):
    """UPDATE_CONSUMER_OFFSET; some clients send a negative `commit_offset`, which means none."""

    consumer_group: str
    topic: str
    queue_id: I32
    commit_offset: I64


# ---------------------------------------------------------------------- topics and routes


class GetRouteInfoRequestHeader(RequestHeader, frozen=True):
    """GET_ROUTEINFO_BY_TOPIC."""

    topic: str
    accept_standard_json_only: bool | None = None


class GetTopicStatsInfoRequestHeader(RequestHeader, frozen=True):
    """GET_TOPIC_STATS_INFO."""

    topic: str


class GetTopicConfigRequestHeader(RequestHeader, frozen=True):
    """GET_TOPIC_CONFIG."""

    topic: str


class GetAllTopicConfigRequestHeader(RequestHeader, frozen=True):
    """GET_ALL_TOPIC_CONFIG: a page from `topic_seq` on; older clients send nothing at all and mean everything."""

    topic_seq: I32 = 0
    data_version: str | None = None
    max_topic_num: I32 | None = None


class GetTopicsByClusterRequestHeader(RequestHeader, frozen=True):
    """GET_TOPICS_BY_CLUSTER."""

    cluster: str


class QueryTopicConsumeByWhoRequestHeader(RequestHeader, frozen=True):
    """QUERY_TOPIC_CONSUME_BY_WHO."""

    topic: str


class QueryTopicsByConsumerRequestHeader(RequestHeader, frozen=True):
    """QUERY_TOPICS_BY_CONSUMER."""

    group: str


# ---------------------------------------------------------------------- groups, consumers and producers


class GetConsumerListByGroupRequestHeader(RequestHeader, frozen=True):
    """GET_CONSUMER_LIST_BY_GROUP."""

    consumer_group: str


class GetConsumerConnectionListRequestHeader(RequestHeader, frozen=True):
    """GET_CONSUMER_CONNECTION_LIST."""

    consumer_group: str


class GetProducerConnectionListRequestHeader(RequestHeader, frozen=True):
    """GET_PRODUCER_CONNECTION_LIST."""

    producer_group: str


class GetConsumeStatsRequestHeader(RequestHeader, frozen=True):
    """GET_CONSUME_STATS: of one `topic`, of those in `topic_list` (joined by `;`, which wins), or of all."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


class GetConsumeStatsInBrokerHeader(RequestHeader, frozen=True):
    """GET_BROKER_CONSUME_STATS: of the groups that consume orderly, or of the others."""

    is_order: bool


class QueryConsumeTimeSpanRequestHeader(RequestHeader, frozen=True):
    """QUERY_CONSUME_TIME_SPAN."""

    topic: str
    group: str


class QuerySubscriptionByConsumerRequestHeader(RequestHeader, frozen=True):
    """QUERY_SUBSCRIPTION_BY_CONSUMER."""

    group: str
    topic: str | None = None


class GetAllSubscriptionGroupRequestHeader(RequestHeader, frozen=True):
    """GET_ALL_SUBSCRIPTIONGROUP_CONFIG: a page from `group_seq` on; older clients send nothing and mean everything."""

    group_seq: I32 = 0
    data_version: str | None = None
    max_group_num: I32 | None = None


class GetSubscriptionGroupConfigRequestHeader(RequestHeader, frozen=True):
    """GET_SUBSCRIPTIONGROUP_CONFIG."""

    group: str


class UnregisterClientRequestHeader(RequestHeader, frozen=True):
    """UNREGISTER_CLIENT."""

    client_id: str = msgspec.field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class GetConsumerRunningInfoRequestHeader(RequestHeader, frozen=True):
    """GET_CONSUMER_RUNNING_INFO."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeMessageDirectlyResultRequestHeader(RequestHeader, frozen=True):
    """CONSUME_MESSAGE_DIRECTLY."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: I32 | None = None
    group_sys_flag: I32 | None = None


# ---------------------------------------------------------------------- broker and name server


class ViewBrokerStatsDataRequestHeader(RequestHeader, frozen=True):
    """VIEW_BROKER_STATS_DATA: for example TOPIC_PUT_NUMS of a topic, GROUP_GET_NUMS of `topic@group`."""

    stats_name: str
    stats_key: str


class GetKVConfigRequestHeader(RequestHeader, frozen=True):
    """GET_KV_CONFIG."""

    namespace: str
    key: str


class GetKVListByNamespaceRequestHeader(RequestHeader, frozen=True):
    """GET_KVLIST_BY_NAMESPACE."""

    namespace: str
