"""What each request needs: which right to which topic and group, an administrator, or no more than an account.

Consumers' and producers' requests are as rocketmq-acl 4.9.8 has them (PlainAccessValidator). That leaves requests of
tools open to every account, and would show any message to a client that guesses its offset; here a request about a
topic or a group needs a right to it, and one about all of them an administrator.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from broker.security.accounts import Permission
from broker.service.long_work import parse_body
from protocol.bodies import CheckClientRequestBody, HeartbeatData, LockBatchRequestBody
from protocol.bodies import QueryAssignmentRequestBody as AssignmentBody
from protocol.codes import OwnRequestCode
from protocol.codes import RequestCode as Code
from protocol.system_topics import RETRY_PREFIX
from storage.files.waiting import Lookup

Fields: TypeAlias = Mapping[str, str]

Named: TypeAlias = tuple[list[str], list[str]]
"""The topics and the groups that a body names."""


class Needs(NamedTuple):
    """Rights to topics and as groups, by name; `admin`: only an administrator may."""

    topics: Mapping[str, Permission]
    groups: Mapping[str, Permission]
    admin: bool = False


NOTHING = Needs({}, {})
ADMIN = Needs({}, {}, admin=True)

OPEN_TOPICS = frozenset({"TBW102", "RMQ_SYS_TRACE_TOPIC"})
"""Topics whose route every client may ask for, as clients do by themselves."""

SUB, ANY = Permission.SUB, Permission.ANY

FIELDS: dict[int, tuple[tuple[str, bool, Permission], ...]] = {
    Code.PULL_MESSAGE: (("topic", False, SUB), ("consumerGroup", True, SUB)),
    Code.LITE_PULL_MESSAGE: (("topic", False, SUB), ("consumerGroup", True, SUB)),
    Code.QUERY_MESSAGE: (("topic", False, SUB),),
    Code.VIEW_MESSAGE_BY_ID: (("topic", False, SUB),),
    Code.QUERY_CONSUMER_OFFSET: (("topic", False, SUB), ("consumerGroup", True, SUB)),
    Code.UPDATE_CONSUMER_OFFSET: (("topic", False, SUB), ("consumerGroup", True, SUB)),
    Code.GET_CONSUMER_LIST_BY_GROUP: (("consumerGroup", True, SUB),),
    Code.UNREGISTER_CLIENT: (("consumerGroup", True, SUB),),
    Code.SEARCH_OFFSET_BY_TIMESTAMP: (("topic", False, SUB),),
    Code.GET_MAX_OFFSET: (("topic", False, SUB),),
    Code.GET_MIN_OFFSET: (("topic", False, SUB),),
    Code.GET_EARLIEST_MSG_STORETIME: (("topic", False, SUB),),
    Code.QUERY_CONSUME_QUEUE: (("topic", False, SUB), ("consumerGroup", True, SUB)),
    Code.GET_TOPIC_STATS_INFO: (("topic", False, SUB),),
    Code.GET_TOPIC_CONFIG: (("topic", False, ANY),),
    Code.QUERY_TOPIC_CONSUME_BY_WHO: (("topic", False, SUB),),
    Code.QUERY_CONSUME_TIME_SPAN: (("topic", False, SUB), ("group", True, SUB)),
    Code.QUERY_TOPICS_BY_CONSUMER: (("group", True, SUB),),
    Code.QUERY_SUBSCRIPTION_BY_CONSUMER: (("topic", False, SUB), ("group", True, SUB)),
    Code.GET_SUBSCRIPTIONGROUP_CONFIG: (("group", True, SUB),),
    Code.GET_CONSUMER_CONNECTION_LIST: (("consumerGroup", True, SUB),),
    Code.GET_CONSUMER_RUNNING_INFO: (("consumerGroup", True, SUB),),
    Code.GET_PRODUCER_CONNECTION_LIST: (("producerGroup", True, ANY),),
    Code.GET_CONSUME_STATS: (("topic", False, SUB), ("consumerGroup", True, SUB)),
    Code.CONSUMER_SEND_MSG_BACK: (("group", True, SUB),),
    Code.SEND_MESSAGE: (("topic", False, Permission.PUB),),
    Code.SEND_MESSAGE_V2: (("b", False, Permission.PUB),),
    Code.SEND_BATCH_MESSAGE: (("b", False, Permission.PUB),),
}
"""Per code: name of a field, whether it names a group, the right that is needed to what it names."""

SIGNED_ALONE = frozenset({Code.GET_BROKER_CLUSTER_INFO, Code.GET_KV_CONFIG, Code.GET_KVLIST_BY_NAMESPACE})
"""Codes whose answers contain no more than addresses, which every tool requests first."""


def group_resource(group: str) -> str:
    """A group's name in a table of rights."""
    return group if group.startswith(RETRY_PREFIX) else RETRY_PREFIX + group


def needs_of(code: int, fields: Fields, body: bytes) -> Lookup[Needs]:
    """What a request needs. Raises `BadCommand` for a body that cannot be read.

    A missing field needs nothing: the handler checks which fields a request must have.
    """
    rows = FIELDS.get(code)
    if rows is not None:
        topics, groups = (
            {fields[name]: permission for name, is_group, permission in rows if is_group is wanted and fields.get(name)}
            for wanted in (False, True)
        )
        return Needs(topics, groups)
    if code == Code.GET_ROUTEINFO_BY_TOPIC:
        topic = fields.get("topic", "")
        return NOTHING if topic in OPEN_TOPICS else Needs({topic: ANY}, {})
    if code in SIGNED_ALONE:
        return NOTHING
    if code == OwnRequestCode.ASK_STORE and fields.get("question") == "notes" and fields.get("topic"):
        return Needs({fields["topic"]: SUB}, {})
    if code == OwnRequestCode.ASK_STORE and fields.get("question") == "topics":
        return NOTHING  # those that the account may read are given
    read_body = BODIES.get(code)
    if read_body is None:
        return ADMIN
    named_topics, named_groups = yield from read_body(body)
    return Needs(dict.fromkeys(named_topics, SUB), dict.fromkeys(named_groups, SUB))


def _heartbeat(body: bytes) -> Lookup[Named]:
    consumers = (yield from parse_body(body, HeartbeatData)).consumer_data_set
    topics = [subscription.topic for consumer in consumers for subscription in consumer.subscription_data_set]
    return topics, [consumer.group_name for consumer in consumers]


def _check_client(body: bytes) -> Lookup[Named]:
    subscription = (yield from parse_body(body, CheckClientRequestBody)).subscription_data if body else None
    return ([] if subscription is None else [subscription.topic]), []


def _lock(body: bytes) -> Lookup[Named]:
    decoded = yield from parse_body(body, LockBatchRequestBody)
    return [queue.topic for queue in decoded.mq_set], [decoded.consumer_group]


def _assignment(body: bytes) -> Lookup[Named]:
    decoded = yield from parse_body(body, AssignmentBody)
    return [decoded.topic], [decoded.consumer_group]


BODIES: dict[int, Callable[[bytes], Lookup[Named]]] = {
    Code.HEART_BEAT: _heartbeat,
    Code.CHECK_CLIENT_CONFIG: _check_client,
    Code.LOCK_BATCH_MQ: _lock,
    Code.UNLOCK_BATCH_MQ: _lock,
    Code.QUERY_ASSIGNMENT: _assignment,
}
