"""How far consumer groups have come in the queues of topics, for every surface that lists them.

A group's offset in a queue is the one that it reads next; how far it is behind is counted to the queue's end. Messages
that it has popped and not acknowledged count as consumed, and are counted by themselves where they are known.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from storage.store.extents import lag_of


class QueueProgress(NamedTuple):
    """How far a group has come in a queue: where it reads next, and where the queue ends, None if that is not known."""

    queue_id: int
    next_offset: int
    end_offset: int | None
    popped: int | None = None
    """Messages of the queue that the group popped and did not acknowledge; None where that is not known."""

    @property
    def lag(self) -> int | None:
        """How many messages it has not consumed, None if that is not known: also where it is ahead of the queue."""
        return lag_of(self.next_offset, self.end_offset)

    @property
    def is_ahead(self) -> bool:
        """Whether it has consumed more than there is: files of the queue are lost, or its offset is wrong."""
        return self.end_offset is not None and self.next_offset > self.end_offset


class TopicProgress(NamedTuple):
    """How far a group has come in a topic; a group that has committed nothing has no topic."""

    group: str
    topic: str | None
    queues: tuple[QueueProgress, ...] = ()

    @property
    def lag(self) -> int | None:
        """How many messages of the topic it has not consumed, None if that of a queue is not known."""
        each = [queue.lag for queue in self.queues]
        return None if None in each else sum(lag for lag in each if lag is not None)

    @property
    def popped(self) -> int | None:
        """How many messages of the topic it popped and did not acknowledge, None if that is not known."""
        each = [queue.popped for queue in self.queues]
        return None if not each or None in each else sum(count for count in each if count is not None)

    def as_map(self) -> dict[str, Any]:
        """Return it with its queues under the names that programs read."""
        queues = [
            {
                "queueId": each.queue_id,
                "nextOffset": each.next_offset,
                "endOffset": each.end_offset,
                "lag": each.lag,
                "popped": each.popped,
            }
            for each in self.queues
        ]
        topic = {"group": self.group, "topic": self.topic, "lag": self.lag, "popped": self.popped}
        return topic | {"queues": queues}


def topic_progress(
    group: str,
    topic: str,
    offsets: Mapping[int, int],
    ends: Mapping[int, int],
    popped: Mapping[int, int] | None = None,
) -> TopicProgress:
    """Return how far a group has come in a topic, by its offsets and the queues' ends, both by queue id.

    `ends` lacks queues whose end is not known; `popped` counts what the group popped, None where that is not known.
    """
    queues = (
        QueueProgress(queue_id, next_offset, ends.get(queue_id), None if popped is None else popped.get(queue_id, 0))
        for queue_id, next_offset in sorted(offsets.items())
    )
    return TopicProgress(group, topic, tuple(queues))
