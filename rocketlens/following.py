"""The messages that come to a topic of a store, as a broker writes them."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from protocol.errors import BeingSearched
from protocol.message import Message, decode_message
from rocketlens.arguments import MOST_PULLED, Subscription, filter_of, pulled

if TYPE_CHECKING:
    from storage.filter.base import MessageFilter
    from storage.store.message_store import MessageStore

Key = TypeVar("Key")

POLL_SECONDS: Final = 0.015
"""Seconds between two looks at the end of a store's log, as a server looks."""

WATCH_SECONDS: Final = 1.0
"""Seconds between two looks at what else changes in a store."""


@dataclass(slots=True)
class StoreFollowing:
    """Follows one topic of a store; `places` are the queue offsets to go on at, by queue id."""

    store: "MessageStore"
    topic: str
    places: dict[int, int]
    wanted: Subscription
    filter: "MessageFilter" = field(init=False)

    def __post_init__(self) -> None:
        """Compile the filter once, for all queues and looks."""
        self.filter = filter_of(self.wanted)

    def looks(self) -> Iterator[list[Message]]:
        """What each look finds: the messages that came, in the order in which they were stored; endless.

        Raises StoreError where the store cannot be read any more.
        """
        follower = self.store.follower()
        next_watch = 0.0
        while True:
            arrivals = follower.poll()
            is_due = time.monotonic() >= next_watch
            if is_due:
                follower.watch()
                next_watch = time.monotonic() + WATCH_SECONDS
            queue_ids = () if arrivals is None and not is_due else self.store.queues.queue_ids(self.topic)
            yield sorted((message for queue_id in queue_ids for message in self._new(queue_id)), key=stored_order)

    def _new(self, queue_id: int) -> Iterator[Message]:
        """What came to a queue since it was last read."""
        from storage.query.get_message import TRANSFER_BYTES, get_message

        while True:
            place, queues = self.places.get(queue_id, 0), self.store.queues
            try:
                result = get_message(queues, self.topic, queue_id, place, MOST_PULLED, TRANSFER_BYTES, self.filter)
            except BeingSearched:  # damaged units: the next look gets what was found instead
                return
            yield from pulled(map(decode_message, result.records), self.topic, place, self.wanted)[0]
            self.places[queue_id] = result.next_begin_offset
            if result.next_begin_offset == place:
                return


def in_turn(followed: Mapping[Key, Iterator[list[Message]]]) -> Iterator[tuple[Key, list[Message]]]:
    """Look at several that are followed again and again, and give what comes by its key; endless."""
    while True:
        pieces = [(key, piece) for key, looks in followed.items() if (piece := next(looks))]
        yield from pieces
        if not pieces:
            time.sleep(POLL_SECONDS)


def stored_order(message: Message) -> tuple[int, int]:
    """The order in which messages were stored."""
    return message.store_timestamp, message.physical_offset
