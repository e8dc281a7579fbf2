"""The messages of a queue that were stored between two times, by two binary searches; no message is read whole.

The broker's own search (:mod:`storage.queue._time_search`) gives the offset that a broker would give; here the same
times are asked of many queues and buckets, and all answers have to fit together. Times are taken to ascend within a
queue, as they do but for a clock that was set back. In place of a message that is lost counts the next that is not, be
its unit damaged or not.
"""

from bisect import bisect_left
from dataclasses import dataclass
from typing import Final

from broker.web.api.errors import ApiError, not_found
from broker.web.api.request_context import RequestContext
from protocol.question import LARGEST
from storage.queue.queue import Queue, SourceQueue
from storage.queue.queue_messages import entry_of
from storage.store.topic_catalog import queues_of_topic

MOST_QUEUES: Final = 1024
"""Queues of one topic that are looked at together."""


@dataclass(frozen=True, slots=True)
class Span:
    """Queue offsets from `first` up to but without `end`."""

    queue: Queue
    first: int
    end: int

    def __len__(self) -> int:
        """Messages in it."""
        return max(self.end - self.first, 0)


TIER_DISTANCE: Final = 1 << 62
"""Distance by which the places of a tier's messages lie below those of the log, so that they come first."""


@dataclass(frozen=True, slots=True)
class SpanPart:
    """Queue offsets from `first` up to but without `end` whose messages lie in one log, that of `queue`.

    `base` and a physical offset in that log are the place of a message among all that are browsed together.
    """

    queue: SourceQueue
    first: int
    end: int
    base: int = 0


def parts_of(context: RequestContext, spans: list[Span]) -> list[SpanPart]:
    """Split spans at the end of a tier, the older part first.

    Raises `ApiError` for several queues with parts in a tier, whose logs have no common order.
    """
    found: list[SpanPart] = []
    for span in spans:
        for part in span.queue.parts:
            if part.queue is not None:
                first = max(span.first, part.first)
                base = -TIER_DISTANCE if context.store.queues.is_in_tier(part.queue) else 0
                found.append(SpanPart(part.queue, first, max(first, min(span.end, part.stop)), base))
    if len(spans) > 1 and any(part.base and part.first < part.end for part in found):
        text = "older messages of the topic are in a tier, where each queue has a log of its own: name one queue"
        raise ApiError(400, "several_logs", text, "queueId")
    return found


def queues_of(context: RequestContext, topic: str, queue_id: int | None) -> list[Queue]:
    """The queues of a topic, or one of them. Raises `ApiError` where there is none, or where there are too many."""
    context.require_topic(topic)
    store = context.store
    if queue_id is not None:
        queue = store.queues.queue(topic, queue_id)
        if queue is None:
            if queue_id in queues_of_topic(store, topic):
                return []  # no message was ever stored in it
            raise not_found(f"topic {topic} has no queue {queue_id}", "queueId")
        return [queue]
    ids = store.queues.queue_ids(topic)
    if len(ids) > MOST_QUEUES:
        raise ApiError(
            400,
            "too_many_queues",
            f"topic {topic} has {len(ids)} queues, more than {MOST_QUEUES} together: name one",
            "queueId",
        )
    found: list[Queue] = []
    for each in ids:
        context.check()
        queue = store.queues.queue(topic, each)
        if queue is not None:
            found.append(queue)
    return found


def span_between(queue: Queue, begin: int, end: int) -> Span:
    """The messages of a queue that were stored from `begin` to `end` (ms, both inclusive)."""
    first, behind = queue.min_offset, queue.max_offset
    if begin > 0:
        first = offset_at(queue, begin, first, behind)
    if end < LARGEST:
        behind = offset_at(queue, end + 1, first, behind)
    return Span(queue, first, behind)


def offset_at(queue: Queue, timestamp: int, first: int, end: int) -> int:
    """Find the first queue offset in [first, end) whose message was stored at a time (ms) or later; else `end`."""
    return bisect_left(range(first, end), timestamp, key=lambda offset: _time_at(queue, offset)) + first


def offset_behind(queue: Queue, physical_offset: int, first: int, end: int, likely: int | None = None) -> int:
    """Find the first queue offset in [first, end) whose record starts at a physical offset or behind it.

    `likely` is looked at before others are: two reads in place of a search where it was the offset some time before.
    """

    def start_of(queue_offset: int) -> int:
        found = queue.message_in_log(queue_offset)
        if found is not None:
            return found
        entry = entry_of(queue, queue.sound_from(queue_offset))  # it is lost, or its unit leads to another message
        return LARGEST if entry is None else entry.physical_offset

    if likely is not None and first <= likely <= end:
        is_behind = likely == end or start_of(likely) >= physical_offset
        if is_behind and (likely == first or start_of(likely - 1) < physical_offset):
            return likely
    return bisect_left(range(first, end), physical_offset, key=start_of) + first


def _time_at(queue: Queue, queue_offset: int) -> int:
    timestamp = queue.store_timestamp_at(queue_offset)
    if timestamp < 0:
        timestamp = queue.store_timestamp_at(queue.sound_from(queue_offset + 1))
    return LARGEST if timestamp < 0 else timestamp
