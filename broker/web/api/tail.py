"""New messages of a topic: an answer waits until one of its queues has grown, as a pull does.

The wait is the port's own (:class:`LongPolling`), a held pull for each queue, so no thread is held and nothing is asked
again and again. A cursor has the next offset of each queue. A client that is far behind, because it was slow or had
paused, goes on with the newest messages, and learns how many it did not see.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from broker.service.long_polling import QueueKey
from broker.web.api.bodies import Charset, checked_charset
from broker.web.api.browse import Walk
from broker.web.api.cursors import decode_cursor, encode_cursor
from broker.web.api.endpoint import Awaited, Cursor, Limit, Milliseconds, Parameters, QueueId, Topic
from broker.web.api.errors import ApiError
from broker.web.api.filters import Sql, Tag, choice_of
from broker.web.api.message_lines import MessageLine
from broker.web.api.queue_spans import Span, SpanPart, parts_of, queues_of
from broker.web.api.request_context import RequestContext
from protocol.codes import ResponseCode
from protocol.command import Response
from protocol.errors import BeingSearched, StoreError
from storage.files.waiting import Lookup
from storage.queue.queue import Queue
from storage.queue.queue_store import QueueStore

MOST_QUEUES: Final = 256
"""Queues of a topic that are followed together: so many offsets fit into a cursor."""

MOST_BEHIND: Final = 2000
"""Messages that a client may be behind; one that is further behind goes on with the newest."""


class TailQuestion(Parameters):
    """A topic or one of its queues; without a cursor from now on.

    With a cursor the answer waits until there are messages, up to `wait` milliseconds.
    """

    topic: Topic
    queue_id: QueueId | None = None
    tag: Tag | None = None
    sql: Sql | None = None
    charset: Charset | None = None
    limit: Limit = 50
    wait: Annotated[int, Meta(ge=0, le=10_000, description="Milliseconds to wait for a message.")] = 0
    milliseconds: Milliseconds = 1000
    cursor: Cursor | None = None


class TailAnswer(msgspec.Struct, rename="camel", kw_only=True):
    """Messages that were stored since, the oldest first; the cursor goes on behind them.

    This answer went through `looked_at` messages; `skipped` are those that it passed over because they were too many.
    `unreadable` cannot be read, `left_out` may not be seen by this account.
    """

    messages: list[MessageLine]
    looked_at: int
    skipped: int
    unreadable: int
    left_out: int
    note: str | None
    cursor: str


@dataclass(frozen=True, slots=True)
class GrowthQuestion:
    """A held pull that ends when a queue has a message at an offset."""

    queue_key: QueueKey
    queue_offset: int
    queues: Callable[[], QueueStore]

    @property
    def sameness(self) -> Hashable:
        """Equal for all that wait for the same offset."""
        return "tail", self.queue_offset

    def look(self) -> Lookup[Response | None]:
        """An answer when the queue has grown, or cannot be read any more: the look-up says why."""
        try:
            queue = self.queues().queue(*self.queue_key)
            has_grown = queue is None or queue.max_offset > self.queue_offset
        except (StoreError, BeingSearched):
            has_grown = True
        return Response(ResponseCode.SUCCESS) if has_grown else None
        yield  # a look-up is a generator

    def give_up(self) -> Response:
        """The answer when the time is up."""
        return Response(ResponseCode.PULL_NOT_FOUND)


def growth_questions(context: RequestContext, question: TailQuestion) -> Awaited:
    """Return a held pull for each queue; none if there are messages already, or the request has no cursor."""
    if question.cursor is None or not question.wait:
        return Awaited()
    ends = _places(question.cursor)
    queues = _queues(context, question)
    if any(queue.max_offset > ends.get(queue.queue_id, queue.min_offset) for queue in queues):
        return Awaited()
    questions = [
        GrowthQuestion((question.topic, queue.queue_id), queue.max_offset, lambda: context.store.queues)
        for queue in queues
    ]
    return Awaited(questions, question.wait / 1000)


def tail(context: RequestContext, question: TailQuestion) -> TailAnswer:
    """Messages of a topic as they are stored."""
    context.allow(question.milliseconds)
    choice = choice_of(question.tag, question.sql, context.mask)
    queues = _queues(context, question)
    ends = {queue.queue_id: queue.max_offset for queue in queues}
    starts = ends if question.cursor is None else _places(question.cursor)
    spans = [
        Span(queue, min(max(starts.get(queue.queue_id, 0), queue.min_offset), end), end)
        for queue, end in ((queue, ends[queue.queue_id]) for queue in queues)
    ]
    spans, skipped = _newest(spans, question.limit)
    parts = parts_of(context, spans)
    charset = checked_charset(question.charset)
    walk = Walk(context, choice, question.limit)
    walk.run(parts, is_backward=False)
    return TailAnswer(
        messages=walk.lines(charset),
        looked_at=walk.looked_at,
        skipped=skipped,
        unreadable=walk.unreadable,
        left_out=walk.left_out,
        note=None if choice is None else choice.note,
        cursor=encode_cursor(sorted(_reached(spans, parts, walk.reached).items())),
    )


def _queues(context: RequestContext, question: TailQuestion) -> list[Queue]:
    queues = queues_of(context, question.topic, question.queue_id)
    if len(queues) > MOST_QUEUES:
        text = f"topic {question.topic} has {len(queues)} queues, more than {MOST_QUEUES} to follow together: name one"
        raise ApiError(400, "too_many_queues", text, "queueId")
    return queues


def _places(cursor: str) -> dict[int, int]:
    return dict(decode_cursor(cursor, list[tuple[int, int]]))


def _newest(spans: list[Span], limit: int) -> tuple[list[Span], int]:
    """Cut the spans to the newest messages, `MOST_BEHIND` at most; also return how many were skipped."""
    if sum(map(len, spans)) <= MOST_BEHIND:
        return spans, 0
    kept = [Span(span.queue, max(span.first, span.end - limit), span.end) for span in spans]
    return kept, sum(map(len, spans)) - sum(map(len, kept))


def _reached(spans: list[Span], parts: list[SpanPart], reached: list[int]) -> dict[int, int]:
    """Where to go on, by queue id: in the first part of a queue that was not walked to its end."""
    places = {span.queue.queue_id: span.end for span in spans}
    for part, offset in reversed(list(zip(parts, reached, strict=True))):
        if offset < part.end:
            places[part.queue.queue_id] = offset
    return places
