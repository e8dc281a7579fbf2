"""Expressions on retry topics: each message is chosen by the filter of the topic that it came from.

A message that a consumer could not work on goes to its group's retry topic, and says from which topic it came. A
broker with `filterSupportRetry` does not ask the expression with which the retry topic is pulled, but the one that the
group registered for that topic. Source: filters §3.5; recorded pulls in `golden/g2/g2-filters/pulls-retry.jsonl.xz`.
"""

from collections.abc import Callable

from protocol.properties import RETRY_TOPIC, property_value
from protocol.system_topics import POP_SEPARATORS, RETRY_PREFIX
from storage.filter.base import MessageFilter
from storage.queue.consume_queue_ext import ConsumeQueueExtUnit


def group_of_retry_filter(topic: str) -> str | None:
    """The consumer group whose filters a broker asks on a retry topic, None for other topics.

    Its rule for filters alone: whose retries a message is, :mod:`protocol.system_topics` says.
    """
    if not topic.startswith(RETRY_PREFIX):
        return None
    name = topic.removeprefix(RETRY_PREFIX)
    separator = POP_SEPARATORS[0]
    return name.partition(separator)[0] if name.count(separator) == 1 else name


class RetryFilter:
    """The `MessageFilter` of an expression on one group's retry topic.

    `registered` returns the filter that the group has on a topic. Where it returns None the message is delivered, and
    so is a message that does not say where it comes from (a broker fails at it, and consumers never get past it).
    """

    __slots__ = ("_registered",)
    matches_everything = False
    needs_properties = True
    choice = None

    def __init__(self, registered: Callable[[str], MessageFilter | None]) -> None:
        self._registered = registered

    def matches_consume_queue_entry(self, tags_code: int | None, extension: ConsumeQueueExtUnit | None) -> bool:
        """Any message may match: its bitmap speaks of filters on the retry topic."""
        return True

    def matches_commit_log(self, properties: bytes | memoryview) -> bool:
        """Whether the filter on the message's first topic lets it through."""
        topic = property_value(properties, RETRY_TOPIC)
        chosen = None if topic is None else self._registered(topic)
        return chosen is None or chosen.matches_commit_log(properties)
