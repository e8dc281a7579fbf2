"""Filters on retry topics: the one that the group has on the topic from which a message came decides."""

import pytest

from protocol.properties import encode_properties
from storage.filter.base import MessageFilter
from storage.filter.expression import ExpressionFilter
from storage.filter.retry import RetryFilter, group_of_retry_filter
from storage.filter.sql92 import parse
from storage.queue.consume_queue_ext import ConsumeQueueExtUnit

REGISTERED: dict[str, MessageFilter] = {"A": ExpressionFilter(parse("a > 5")), "B": ExpressionFilter(parse("b = 'x'"))}


def test_a_message_is_chosen_as_in_the_topic_it_came_from() -> None:
    for properties, is_delivered in [
        ({"RETRY_TOPIC": "A", "a": "6"}, True),
        ({"RETRY_TOPIC": "A", "a": "5"}, False),
        ({"RETRY_TOPIC": "A"}, False),
        ({"RETRY_TOPIC": "A", "a": "none"}, False),
        ({"RETRY_TOPIC": "B", "b": "x", "a": "1"}, True),
        ({"RETRY_TOPIC": "B", "a": "6"}, False),
        ({"RETRY_TOPIC": "C", "a": "1"}, True),
        ({"a": "1"}, True),
        ({}, True),
    ]:
        chosen = RetryFilter(REGISTERED.get)
        assert chosen.matches_commit_log(encode_properties(properties)) is is_delivered


def test_no_bitmap_rules_a_message_out() -> None:
    chosen = RetryFilter(REGISTERED.get)
    assert chosen.matches_consume_queue_entry(5, ConsumeQueueExtUnit(34, 5, 2000, bytes(14)))
    assert chosen.matches_consume_queue_entry(None, None)
    assert (chosen.matches_everything, chosen.needs_properties) == (False, True)


@pytest.mark.parametrize(
    ("topic", "group"),
    [
        ("%RETRY%CG", "CG"),
        ("%RETRY%CG_Topic", "CG_Topic"),
        ("%RETRY%CG+Topic", "CG"),
        ("%RETRY%CG+Topic+More", "CG+Topic+More"),
        ("%RETRY%", ""),
        ("%DLQ%CG", None),
        ("Topic", None),
    ],
)
def test_a_retry_topic_is_filtered_for_the_group_that_a_broker_reads_in_its_name(topic: str, group: str | None) -> None:
    """As RocketMQ's KeyBuilder takes it apart."""
    assert group_of_retry_filter(topic) == group
