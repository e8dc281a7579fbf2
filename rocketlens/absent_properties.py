"""Why a SQL92 expression chose nothing: often a property that it asks for is one that no message has."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from protocol.errors import ConfigError
from protocol.message import Message
from storage.amounts import counted

if TYPE_CHECKING:
    from rocketlens.source import Source

MOST_LOOKED_AT: Final = 4096
"""Messages that are looked at, of each queue the newest ones."""

LEAST_OF_QUEUE: Final = 32


def note_of_some(messages: Iterable[Message], sql: str) -> str:
    """Say which properties of an expression none of some messages has; "" where each is in some message."""
    some = list(messages)
    missing = set(_names(sql)).difference(*(message.properties for message in some))
    if not (some and missing):
        return ""
    return f"none of the first {counted(len(some), 'message')} there has {_named(missing)}"


def note_of_properties(source: "Source", topic: str, sql: str) -> str:
    """Say which properties of an expression no message of a topic has; "" where each is in some message.

    Of a topic with more than `MOST_LOOKED_AT` messages the newest of each queue are looked at, which is said.
    """
    missing, looked, is_all = set(_names(sql)), 0, True
    try:
        listed = source.queues(topic)
    except ConfigError:  # a source that has no queues, as a store at a URL
        return ""
    queues = [queue for queue in listed if queue.max_offset > queue.min_offset or queue.problem]
    share = max(MOST_LOOKED_AT // max(len(queues), 1), LEAST_OF_QUEUE)
    for queue in queues:
        place = max(queue.min_offset, queue.max_offset - share)
        is_all = is_all and place == queue.min_offset and not queue.problem
        while missing and not queue.problem and place < queue.max_offset and looked < 2 * MOST_LOOKED_AT:
            found = source.pull(topic, queue.queue_id, place)
            missing.difference_update(*(message.properties for message in found))
            looked += len(found)
            is_all = is_all and not found.notes
            if found.next_offset <= place:
                is_all = False
                break
            place = found.next_offset
        is_all = is_all and place >= queue.max_offset
    if not missing or not looked:
        return ""
    whose = f"no message of topic {topic}"
    if not is_all:
        whose = f"none of {counted(looked, 'message')} of topic {topic} that were looked at"
    return f"{whose} has {_named(missing)}"


def _names(sql: str) -> frozenset[str]:
    from storage.filter.sql92 import parse

    return parse(sql).names


def _named(properties: set[str]) -> str:
    return f"{'property' if len(properties) == 1 else 'properties'} {', '.join(sorted(properties))}"
