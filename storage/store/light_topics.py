"""Light topics by their parent: the topic whose messages a broker also put into light queues (`%LMQ%…`).

A lite topic of RocketMQ 5.5 names its parent (`%LMQ%$PARENT$NAME`, `LiteUtil`); of any other light queue the parent is
the topic of a message that is in it, and unknown once all of them have expired.
"""

from typing import Final, NamedTuple

from protocol.message import decode_message
from protocol.system_topics import LIGHT_PREFIX, origin_of
from storage.queue.queue import Queue
from storage.store.message_store import MessageStore

SEPARATOR: Final = "$"
"""Stands before the parent's name in a lite topic's, and between the two."""


class LightTopic(NamedTuple):
    """A light topic: its parent, None where that is not known, and how many messages it has."""

    topic: str
    parent: str | None
    messages: int

    @property
    def is_expired(self) -> bool:
        """Whether the log has none of its messages any more."""
        return self.messages == 0


def light_names(store: MessageStore) -> list[str]:
    """Return the names of all light topics, sorted. Raises StoreError where it is not known which there are."""
    return [name for name in store.queues.all_topics() if name.startswith(LIGHT_PREFIX)]


def light_topic(store: MessageStore, name: str) -> LightTopic:
    """Look at one light topic; waits. Raises StoreError, and BeingSearched, where its queue cannot be read."""
    queue = store.queues.queue(name, 0)
    messages = 0 if queue is None else queue.max_offset - queue.min_offset
    parent = named_parent(name)
    if parent is None and queue is not None and messages:
        parent = _parent_in(store, queue)
    return LightTopic(name, parent, messages)


def named_parent(name: str) -> str | None:
    """Return the parent that the name of a light topic has in it; None for one that has none."""
    rest = name.removeprefix(LIGHT_PREFIX)
    parent, separator, lite = rest[1:].partition(SEPARATOR)
    return parent if rest.startswith(SEPARATOR) and separator and parent and lite else None


def _parent_in(store: MessageStore, queue: Queue) -> str | None:
    """The topic of the last message in a light queue, by where it was sent to."""
    place = queue.message_in_log(queue.max_offset - 1)
    record = None if place is None else store.record_at(place)
    if record is None:
        return None
    message = decode_message(record, check_crc=False)
    return origin_of(message).topic or message.topic
