"""How many messages of a topic pass a filter: counted as a consumer's pulls would meet them, piece by piece.

An answer covers as much as there was time for, and says how much that was; its cursor goes on, and a client that adds
the answers up has counted all of them.
"""

from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from broker.web.api.cursors import decode_cursor, encode_cursor
from broker.web.api.endpoint import Cursor, Milliseconds, QueueId, Time, TimedParameters, Topic
from broker.web.api.errors import bad_parameter
from broker.web.api.filters import Choice, Sql, Tag, choice_of
from broker.web.api.queue_spans import Span, queues_of, span_between
from broker.web.api.request_context import RequestContext
from protocol.errors import CorruptRecord
from protocol.message import decode_message
from protocol.question import LARGEST
from protocol.sys_flag import SysFlag
from storage.filter.absent_properties import note_of_some
from storage.query.get_message import get_message
from storage.queue.queue_record import batch_in

MESSAGES_AT_ONCE: Final = 32
BYTES_AT_ONCE: Final = 1 << 20


class PreviewQuestion(TimedParameters):
    """A filter on a topic or one of its queues, on messages stored between two times: `tag` or `sql` is needed."""

    topic: Topic
    queue_id: QueueId | None = None
    begin: Time = 0
    end: Time = LARGEST
    tag: Tag | None = None
    sql: Sql | None = None
    milliseconds: Milliseconds = 1000
    cursor: Cursor | None = None


class PreviewAnswer(msgspec.Struct, rename="camel", kw_only=True):
    """`passed` of the `looked_at` messages of this answer; there are `total`, `before` were looked at in others.

    `note` says what of an expression is not read, and where nothing passed which of its properties the first messages
    lack. A message that cannot be read does not pass.
    """

    passed: int
    looked_at: int
    before: int
    total: int
    note: str | None
    cursor: str | None


class PreviewPlace(NamedTuple):
    """Where a count goes on: queue id, queue offset."""

    queue_id: int
    queue_offset: int


def filter_preview(context: RequestContext, question: PreviewQuestion) -> PreviewAnswer:
    """How many of a topic's messages a consumer with a filter would get."""
    context.allow(question.milliseconds)
    choice = choice_of(question.tag, question.sql, context.mask)
    if choice is None:
        raise bad_parameter("tag", "a filter is needed: tag or sql")
    place = PreviewPlace(-1, 0) if question.cursor is None else decode_cursor(question.cursor, PreviewPlace)
    passed = looked_at = before = total = 0
    first: Span | None = None
    stopped: PreviewPlace | None = None
    for queue in queues_of(context, question.topic, question.queue_id):
        span = span_between(queue, question.begin, question.end)
        total += len(span)
        if queue.queue_id < place.queue_id:
            before += len(span)
            continue
        if queue.queue_id == place.queue_id:
            before += max(min(place.queue_offset, span.end) - span.first, 0)
            span = Span(queue, max(span.first, min(place.queue_offset, span.end)), span.end)
        if stopped is None:
            count, offset = _count(context, span, choice, is_first=not looked_at)
            first = first or span
            passed += count
            looked_at += offset - span.first
            stopped = PreviewPlace(queue.queue_id, offset) if offset < span.end else None
    lacking = "" if passed or before or first is None else _lacking(context, first, question.sql)
    return PreviewAnswer(
        passed=passed,
        looked_at=looked_at,
        before=before,
        total=total,
        note="; ".join(filter(None, (choice.note, lacking))) or None,
        cursor=None if stopped is None else encode_cursor(stopped),
    )


def _lacking(context: RequestContext, span: Span, sql: str | None) -> str:
    """Name the properties of an expression that none of the first messages has; "" if there are none."""
    if sql is None:
        return ""
    queues, queue = context.store.snapshot.queues, span.queue
    found = get_message(queues, queue.topic, queue.queue_id, span.first, MESSAGES_AT_ONCE, BYTES_AT_ONCE)
    with suppress(CorruptRecord):
        messages = [decode_message(record, check_crc=False) for record in found.records]
        return note_of_some(filter(context.may_read_message, messages), sql)
    return ""


def _count(context: RequestContext, span: Span, choice: Choice, *, is_first: bool) -> tuple[int, int]:
    """How many messages of a span pass, and up to which queue offset was looked; one step is always made."""
    snapshot = context.store.snapshot
    passed, offset = 0, span.first
    while offset < span.end and (not context.is_time_up or (is_first and offset == span.first)):
        result = get_message(
            snapshot.queues,
            span.queue.topic,
            span.queue.queue_id,
            offset,
            min(MESSAGES_AT_ONCE, span.end - offset),
            BYTES_AT_ONCE,
            choice.stages,
        )
        passed += sum(_passes(context, record, span, choice) for record in result.records)
        offset = max(result.next_begin_offset, offset + 1)
    return passed, min(offset, span.end)


def _passes(context: RequestContext, record: memoryview, span: Span, choice: Choice) -> int:
    """How many messages of a record a consumer gets: none, one, or those of a batch."""
    try:
        message = decode_message(record, check_crc=False)
        if message.queue_offset >= span.end or not choice.delivers(message) or not context.may_read_message(message):
            return 0
    except CorruptRecord:
        return 0
    return batch_in(record, message.queue_offset)[1] if message.sys_flag & SysFlag.INNER_BATCH else 1
