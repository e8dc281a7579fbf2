"""Limits of what clients report: the length of names, and the number of entries in one request.

Clients of RocketMQ refuse longer names themselves, by Java's `String.length()`: groups of more than 255 (4.x) or 120
characters (5.x), topics of more than 127. The name of a group's retry topic contains the group, and that of popped
messages the topic too. Brokers check neither; longer names, which no RocketMQ client sends, are refused only here.
"""

from collections.abc import Sequence
from typing import Final

from protocol.bodies import ConsumerData, HeartbeatData, LockBatchRequestBody, SubscriptionData
from protocol.errors import BadCommand, quote
from protocol.system_topics import RETRY_PREFIX

LONGEST_GROUP: Final = 255
LONGEST_CLIENT_ID: Final = 255
LONGEST_TOPIC: Final = 127
JOINING_PREFIXES: Final = (RETRY_PREFIX, "%DLQ%", "%LMQ%")
LONGEST_JOINED_TOPIC: Final = len(RETRY_PREFIX) + LONGEST_GROUP + 1 + LONGEST_TOPIC
"""Characters of `%RETRY%`, the group and, for popped messages, `+` or `_` and the topic; other names are shorter."""
LONGEST_WORD: Final = 63
"""Characters of a text that names one of a few: a type of expressions, a way to consume."""

MOST_GROUPS: Final = 1024
"""Groups of either kind in one heartbeat."""
MOST_SUBSCRIPTIONS: Final = 4096
"""Subscriptions of one group."""
MOST_SUBSCRIPTIONS_IN_ALL: Final = 8192
"""Subscriptions of all groups in one heartbeat."""
MOST_QUEUES: Final = 16_384
"""Queues that one request locks or unlocks."""


def check_length(field: str, text: str, longest: int) -> None:
    """Raise `BadCommand` for a text of too many characters; `field` is its name on the wire."""
    if len(text) > longest:
        raise BadCommand(f"{field}: {quote(text)}, longer than {longest} characters")


def check_group(field: str, group: str) -> None:
    """Raise `BadCommand` for the name of a group that is too long."""
    check_length(field, group, LONGEST_GROUP)


def check_topic(field: str, topic: str) -> None:
    """Raise `BadCommand` for the name of a topic that is too long."""
    if len(topic) > LONGEST_TOPIC:
        check_length(field, topic, LONGEST_JOINED_TOPIC if topic.startswith(JOINING_PREFIXES) else LONGEST_TOPIC)


def check_heartbeat(data: HeartbeatData) -> None:
    """Raise `BadCommand` for a text that is too long and for too many entries; it names the field, size and limit."""
    check_length("clientID", data.client_id, LONGEST_CLIENT_ID)
    _check_count("consumerDataSet", data.consumer_data_set, MOST_GROUPS)
    _check_count("producerDataSet", data.producer_data_set, MOST_GROUPS)
    for producer in data.producer_data_set:
        check_group("groupName", producer.group_name)
    count = 0
    for consumer in data.consumer_data_set:
        _check_consumer(consumer)
        count += len(consumer.subscription_data_set)
    if count > MOST_SUBSCRIPTIONS_IN_ALL:
        raise BadCommand(f"subscriptionDataSet: {count} of all groups together, more than {MOST_SUBSCRIPTIONS_IN_ALL}")


def _check_consumer(consumer: ConsumerData) -> None:
    check_group("groupName", consumer.group_name)
    check_length("consumeType", consumer.consume_type, LONGEST_WORD)
    check_length("messageModel", consumer.message_model, LONGEST_WORD)
    check_length("consumeFromWhere", consumer.consume_from_where, LONGEST_WORD)
    entries = consumer.subscription_data_set
    _check_count(f"subscriptionDataSet of group {consumer.group_name}", entries, MOST_SUBSCRIPTIONS)
    for subscription in entries:
        check_subscription(subscription)


def check_subscription(subscription: SubscriptionData) -> None:
    """Raise `BadCommand` for names that are too long; the length of expressions is checked by `kept_filters`."""
    check_topic("topic", subscription.topic)
    check_length("expressionType", subscription.expression_type, LONGEST_WORD)


def check_locks(body: LockBatchRequestBody) -> None:
    """Raise `BadCommand` for names that are too long and for too many queues."""
    check_group("consumerGroup", body.consumer_group)
    check_length("clientId", body.client_id, LONGEST_CLIENT_ID)
    _check_count("mqSet", body.mq_set, MOST_QUEUES)
    for broker_name, topic in {(queue.broker_name, queue.topic) for queue in body.mq_set}:
        check_length("brokerName", broker_name, LONGEST_GROUP)
        check_topic("topic", topic)


def _check_count(field: str, entries: Sequence[object], most: int) -> None:
    if len(entries) > most:
        raise BadCommand(f"{field}: {len(entries)} entries, more than {most}")


def is_long(group: str, topic: str) -> bool:
    """Whether the group or the topic has a name that is too long for any request."""
    return len(group) > LONGEST_GROUP or len(topic) > LONGEST_JOINED_TOPIC
