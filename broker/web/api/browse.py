"""Messages of a topic or of one of its queues in the order of the log, between two times, through a filter.

The queues are walked side by side, each with its units; the record that lies next in the log is next in the list, and
a batch in one record is its messages, which come together whatever the limit. An answer ends at its limit or when its
time is over, and its cursor is the physical offset where the next one goes on.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from heapq import heapify, heappop, heapreplace
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from broker.web.api.bodies import Charset, checked_charset
from broker.web.api.cursors import decode_cursor, encode_cursor
from broker.web.api.endpoint import (
    Cursor,
    Limit,
    Milliseconds,
    Offset,
    QueueId,
    Time,
    TimedParameters,
    Topic,
)
from broker.web.api.filters import Choice, Sql, Tag, choice_of
from broker.web.api.message_lines import MessageLine, line_of
from broker.web.api.queue_spans import Span, SpanPart, offset_behind, parts_of, queues_of, span_between
from broker.web.api.request_context import RequestContext
from protocol.errors import StoreError
from protocol.message import Message, decode_message
from protocol.question import LARGEST
from storage.log.absence import explain_absence
from storage.queue.queue import ConsumeQueueEntry, SourceQueue
from storage.queue.unit_reader import LOST, entries_before, entries_between

ROOM_OF_MESSAGE: Final = 256
"""Bytes that a message takes in an answer besides those of its record."""


class BrowseQuestion(TimedParameters):
    """Messages of a topic, or of one queue, stored between two times; of one queue from a queue offset on.

    `order` newest: from the last of them back.
    """

    topic: Topic
    queue_id: QueueId | None = None
    offset: Annotated[Offset, Meta(description="Of one queue: the queue offset to begin at.")] | None = None
    begin: Time = 0
    end: Time = LARGEST
    tag: Tag | None = None
    sql: Sql | None = None
    order: Annotated[
        Literal["oldest", "newest"], Meta(description="newest: from the last message between the times back.")
    ] = "oldest"
    limit: Limit = 50
    milliseconds: Milliseconds = 1000
    cursor: Cursor | None = None
    charset: Charset | None = None


class BrowseAnswer(msgspec.Struct, rename="camel", kw_only=True):
    """Messages in order. `total` are those between the times, `looked_at` those that this answer went through.

    `unreadable` of these cannot be read, `left_out` may not be seen by this account. `cursor` is there when there may
    be more.
    """

    messages: list[MessageLine]
    total: int
    looked_at: int
    unreadable: int
    left_out: int
    note: str | None
    cursor: str | None


def browse(context: RequestContext, question: BrowseQuestion) -> BrowseAnswer:
    """Messages of a topic by queue and by time, those that pass a filter if there is one."""
    context.allow(question.milliseconds)
    choice = choice_of(question.tag, question.sql, context.mask)
    is_backward = question.order == "newest"
    parts, total = browsed_parts(context, question)
    charset = checked_charset(question.charset)
    walk = Walk(context, choice, question.limit)
    walk.run(parts, is_backward=is_backward)
    return BrowseAnswer(
        messages=walk.lines(charset),
        total=total,
        looked_at=walk.looked_at,
        unreadable=walk.unreadable,
        left_out=walk.left_out,
        note=None if choice is None else choice.note,
        cursor=None if walk.stopped_at is None else encode_cursor(walk.stopped_at),
    )


def browsed_parts(
    context: RequestContext, question: BrowseQuestion, likely: Mapping[int, int] | None = None
) -> tuple[list[SpanPart], int]:
    """The parts of queues that are left behind a question's cursor, and how many messages lie between its times.

    `likely` are the queue offsets at which they begin, by queue id, unless the queues have changed.
    """
    is_backward = question.order == "newest"
    start = None if question.cursor is None else decode_cursor(question.cursor, int)
    spans, total = [], 0
    for queue in queues_of(context, question.topic, question.queue_id):
        context.check()
        span = _from_offset(span_between(queue, question.begin, question.end), question)
        total += len(span)
        spans.append(span)
    parts = parts_of(context, spans)
    if start is not None:
        parts = [_from_place(part, start, likely or {}, is_backward=is_backward) for part in parts]
    return parts, total


def _from_offset(span: Span, question: BrowseQuestion) -> Span:
    """The part of a span from the queue offset of the question on, or up to it when the newest come first."""
    if question.offset is None:
        return span
    if question.order == "newest":
        return Span(span.queue, span.first, max(min(span.end, question.offset + 1), span.first))
    return Span(span.queue, min(max(span.first, question.offset), span.end), span.end)


def _from_place(part: SpanPart, place: int, likely: Mapping[int, int], *, is_backward: bool) -> SpanPart:
    """Return the rest of a part from a place on; when walking backward, up to the place."""
    physical_offset = place - part.base
    if is_backward:
        return replace(part, end=offset_behind(part.queue, physical_offset + 1, part.first, part.end))
    hint = likely.get(part.queue.queue_id)
    return replace(part, first=offset_behind(part.queue, physical_offset, part.first, part.end, hint))


class Walk:
    """One walk over parts of queues; `stopped_at` is the place of the message that it did not look at.

    `found` are the messages, masked, each with the damage of its record. `reached` has the queue offset in each part
    that it came to.
    """

    def __init__(
        self, context: RequestContext, choice: Choice | None, limit: int, maximum_bytes: int = LARGEST
    ) -> None:
        """Walk until `limit` messages are found, or records of about `maximum_bytes`."""
        self._context, self._choice, self._limit, self._bytes_left = context, choice, limit, maximum_bytes
        self.found: list[tuple[Message, str | None]] = []
        self.looked_at = self.unreadable = self.left_out = 0
        self.stopped_at: int | None = None
        self.reached: list[int] = []

    def lines(self, charset: str | None) -> list[MessageLine]:
        """The lines about the messages that were found."""
        return [line_of(message, damage=damage, charset=charset) for message, damage in self.found]

    def run(self, parts: list[SpanPart], *, is_backward: bool) -> None:
        """Walk until there is no room, no time, or no message."""
        self.reached = [part.first if is_backward else part.end for part in parts]
        sign = -1 if is_backward else 1
        walks = [(_backward if is_backward else _forward)(part) for part in parts]
        heads = [
            (sign * (entry.physical_offset + parts[number].base), number, entry)
            for number, walk in enumerate(walks)
            if (entry := next(walk, None)) is not None
        ]
        heapify(heads)
        while heads:
            _, number, entry = heads[0]
            is_over = self.looked_at and self._context.is_time_up  # one message may take a mask long
            if is_over or len(self.found) >= self._limit or self._bytes_left <= 0:
                self.stopped_at = entry.physical_offset + parts[number].base
                for _, part, left in heads:
                    self.reached[part] = left.queue_offset
                return
            self._look_at(parts[number], entry, is_backward=is_backward)
            following = next(walks[number], None)
            if following is None:
                heappop(heads)
            else:
                heapreplace(heads, (sign * (following.physical_offset + parts[number].base), number, following))

    def _look_at(self, part: SpanPart, entry: ConsumeQueueEntry, *, is_backward: bool) -> None:
        first = max(entry.queue_offset, part.first)
        count = max(min(entry.queue_offset + entry.batch_size, part.end) - first, 1)
        self.looked_at += count
        if entry.size == LOST:
            self.unreadable += count
            return
        choice = self._choice
        code = entry.valid_tags_code
        if choice is not None and not choice.stages.matches_consume_queue_entry(code, entry.extension):
            return
        record, damage = _read(part.queue, entry)
        if record is None:
            self.unreadable += count
            return
        if not self._context.may_read_message(record):
            self.left_out += count
            return
        messages = _apart(record, part) if part.queue.has_batches else [record]
        for message in reversed(messages) if is_backward else messages:
            if choice is None or choice.delivers(message):
                shown = self._context.mask.message(message)
                self.found.append((shown, damage))
                self._bytes_left -= message.total_size + ROOM_OF_MESSAGE


def _apart(record: Message, part: SpanPart) -> list[Message]:
    """Return the messages of a batch that lie in a part of its queue; the record itself if it cannot be taken apart."""
    try:
        messages = record.inner_messages()
    except StoreError:
        return [record]
    return [each for each in messages if part.first <= each.queue_offset < part.end]


def _read(queue: SourceQueue, entry: ConsumeQueueEntry) -> tuple[Message | None, str | None]:
    """The message of an entry, and what is wrong with its record."""
    log, physical_offset = queue.log, entry.physical_offset
    record, damage = log.record_at(physical_offset), None
    if record is None:
        record, damage = log.damaged_record_at(physical_offset), explain_absence(log, physical_offset)
    if record is None or not queue.name.owns(record):
        return None, None
    try:
        return decode_message(record, physical_offset=physical_offset, check_crc=False), damage
    except StoreError:
        return None, None


def _forward(span: SpanPart) -> Iterator[ConsumeQueueEntry]:
    """Yield the entries of a part in order; several in a row that point to one record count once."""
    last = -1
    for entry in entries_between(span.queue, span.first, span.end):
        if entry.size == LOST:
            yield replace(entry, physical_offset=max(last, 0))
        elif entry.physical_offset != last:
            last = entry.physical_offset
            yield entry


def _backward(span: SpanPart) -> Iterator[ConsumeQueueEntry]:
    """Yield the entries of a part from its end to its beginning, as `_forward` does."""
    last = -1
    for entry in entries_before(span.queue, span.first, span.end):
        if entry.size == LOST:
            yield replace(entry, physical_offset=last if last >= 0 else span.queue.log.end)
        elif entry.physical_offset != last:
            last = entry.physical_offset
            yield entry
