"""How many messages of a topic were stored when: counted by queue offsets, not by reading messages.

In each queue the first message of each bucket is found by binary search over store times, and the numbers of the queues
are added up. A queue takes some microseconds a bucket; of a topic with a thousand queues an answer covers those that
there was time for, and its cursor goes on with the next.
"""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from broker.web.api.cursors import decode_cursor, encode_cursor
from broker.web.api.endpoint import Cursor, Milliseconds, QueueId, Time, TimedParameters, Topic
from broker.web.api.queue_spans import offset_at, queues_of
from broker.web.api.request_context import RequestContext
from storage.queue.queue import Queue

SECOND: Final = 1000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
WIDTHS: Final = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500),
    *(SECOND, 2 * SECOND, 5 * SECOND, 10 * SECOND, 15 * SECOND, 30 * SECOND),
    *(MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE),
    *(HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR),
    *(DAY, 2 * DAY, 7 * DAY, 14 * DAY, 30 * DAY, 90 * DAY, 365 * DAY, 3650 * DAY),
)
"""Widths of a bucket in ms: seconds, minutes, hours and days as people count them."""


class HistogramQuestion(TimedParameters):
    """A topic or one of its queues, between two times; without them from its first message to its last.

    `buckets` is how many at most; their width is a round one.
    """

    topic: Topic
    queue_id: QueueId | None = None
    begin: Time | None = None
    end: Time | None = None
    buckets: Annotated[int, Meta(ge=1, le=400, description="Maximum number of buckets; their width is round.")] = 80
    milliseconds: Milliseconds = 1000
    cursor: Cursor | None = None


class HistogramAnswer(msgspec.Struct, rename="camel", kw_only=True):
    """`counts[i]` messages were stored from `begin + i·width` ms on, for `width` ms, in `queues` queues of this answer.

    `before` and `after` are messages of these queues outside of all buckets. A cursor is there while queues are left.
    """

    begin: int
    width: int
    counts: list[int]
    before: int
    after: int
    queues: int
    queues_left: int
    cursor: str | None


def histogram(context: RequestContext, question: HistogramQuestion) -> HistogramAnswer:
    """How many messages of a topic were stored when."""
    context.allow(question.milliseconds)
    queues = queues_of(context, question.topic, question.queue_id)
    after = -1 if question.cursor is None else decode_cursor(question.cursor, int)
    begin, end = _range(context, queues, question)
    width = _width(begin, end, question.buckets)
    begin -= begin % width
    counts = [0] * max(-(-(end + 1 - begin) // width), 1)
    outside = [0, 0]
    done = 0
    left = [queue for queue in queues if queue.queue_id > after]
    for queue in left:
        if done and context.is_time_up:
            break
        _add(queue, begin, width, counts, outside)
        done += 1
    rest = len(left) - done
    return HistogramAnswer(
        begin=begin,
        width=width,
        counts=counts,
        before=outside[0],
        after=outside[1],
        queues=done,
        queues_left=rest,
        cursor=encode_cursor(left[done - 1].queue_id) if rest else None,
    )


def _range(context: RequestContext, queues: list[Queue], question: HistogramQuestion) -> tuple[int, int]:
    """Return begin and end (ms, both inclusive); by default the times of the first and last messages of the queues."""
    begin, end = question.begin, question.end
    if begin is None or end is None:
        firsts, lasts = [], []
        for queue in queues:
            context.check()
            if queue.max_offset > queue.min_offset:
                firsts.append(queue.store_timestamp_at(queue.min_offset))
                lasts.append(queue.store_timestamp_at(queue.max_offset - 1))
        known = [time for time in firsts + lasts if time >= 0]
        begin = min(known, default=0) if begin is None else begin
        end = max(known, default=begin) if end is None else end
    return min(begin, end), end


def _width(begin: int, end: int, buckets: int) -> int:
    """Choose the smallest round width with which the buckets reach from begin to end."""
    for width in WIDTHS:
        if (end - (begin - begin % width)) // width < buckets:
            return width
    return max(-(-(end + 1) // buckets), WIDTHS[-1])


def _add(queue: Queue, begin: int, width: int, counts: list[int], outside: list[int]) -> None:
    """Add the messages of one queue; ranges without any are not searched bucket by bucket."""
    first, end = queue.min_offset, queue.max_offset
    low = offset_at(queue, begin, first, end)
    high = offset_at(queue, begin + len(counts) * width, low, end)
    outside[0] += low - first
    outside[1] += end - high
    waiting = [(0, len(counts), low, high)]
    while waiting:
        left, right, low, high = waiting.pop()
        if low >= high:
            continue
        if right - left == 1:
            counts[left] += high - low
            continue
        middle = (left + right) // 2
        offset = offset_at(queue, begin + middle * width, low, high)
        waiting += [(left, middle, low, offset), (middle, right, offset, high)]
