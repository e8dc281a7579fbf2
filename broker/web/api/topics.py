"""Topics, their queues, and the groups that consume them."""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from broker.web.api.answer_lines import QueueLine
from broker.web.api.cursors import decode_cursor, encode_cursor
from broker.web.api.endpoint import Cursor, Limit, Milliseconds, Parameters, Topic
from broker.web.api.request_context import RequestContext
from protocol.errors import BeingSearched, RocketLensError, StoreError
from protocol.system_topics import kind_of
from storage.amounts import counted
from storage.store.extents import queue_extent
from storage.store.group_progress import TopicProgress, topic_progress
from storage.store.topic_catalog import queues_of_topic

NOT_ASKED: Final = "messages and lastTimestamp are null because they were not asked for: counts=true counts them"
NO_TIME: Final = (
    "messages and lastTimestamp of {} are null because there was no time to count them within {} ms: ask again, since "
    "queues that were opened once are counted faster"
)

MOST_OFFSETS: Final = 256
"""Queues of a topic for which a group's next offset is listed."""


class TopicsQuestion(Parameters):
    """Topics whose name holds a text; with `counts`, how many messages each has, as far as there is time to count."""

    contains: Annotated[str, Meta(max_length=255, description="Topics whose name holds this text, in any case.")] = ""
    counts: Annotated[
        bool, Meta(description="Count messages, and say when the last was stored; without it both are null.")
    ] = False
    limit: Limit = 100
    milliseconds: Milliseconds = 1000
    cursor: Cursor | None = None


class TopicLine(msgspec.Struct, rename="camel", kw_only=True):
    """A topic in a list; numbers are null where `messages_note` of the answer, or its own `problem`, says why."""

    topic: str
    kind: str
    queues: int | None
    messages: int | None = None
    last_timestamp: int | None = None
    problem: str | None = None


class TopicsAnswer(msgspec.Struct, rename="camel", kw_only=True):
    """Topics by name; `total` of them have such a name. `notes` say what of them is not read.

    `messages_note` says why messages of some are not counted.
    """

    topics: list[TopicLine]
    total: int
    cursor: str | None
    notes: list[str] = []
    messages_note: str | None = None


class TopicQuestion(Parameters):
    """A topic; its queues come in pieces, and so do the groups: `cursor` and `groupsCursor` go on with each.

    Without a cursor the messages of all queues are counted, as far as there is time.
    """

    topic: Topic
    milliseconds: Milliseconds = 1000
    limit: Annotated[int, Meta(ge=1, le=2048, description="Maximum number of queues in this answer.")] = 256
    cursor: Cursor | None = None
    groups_limit: Annotated[int, Meta(ge=1, le=500, description="Maximum number of groups in this answer.")] = 100
    groups_cursor: Cursor | None = None


class GroupLine(msgspec.Struct, rename="camel", kw_only=True):
    """A consumer group of the topic: what it has not consumed yet, and where it reads next by queue id.

    `offsets_left_out` queues have such an offset too. `lag` is null where a queue of them cannot be read, or the group
    is ahead of it.
    """

    group: str
    lag: int | None
    next_offsets: dict[str, int]
    offsets_left_out: int


class TopicAnswer(msgspec.Struct, rename="camel", kw_only=True):
    """A topic with its queues by id, and the groups that have committed offsets in it by name.

    `messages` are in `counted_queues` of its `queue_count` queues, listed here or not; both are None where a cursor was
    given. `groups_problem` says why it is not known which groups have, `notes` what of the topic is not read.
    """

    topic: str
    kind: str
    queue_count: int
    messages: int | None
    counted_queues: int | None
    queues: list[QueueLine]
    groups: list[GroupLine]
    group_count: int
    groups_cursor: str | None
    cursor: str | None
    groups_problem: str | None = None
    notes: list[str] = []


def topics(context: RequestContext, question: TopicsQuestion) -> TopicsAnswer:
    """The topics of the store."""
    context.allow(question.milliseconds)
    part = question.contains.lower()
    names = [name for name in context.topics() if part in name.lower()]
    after = None if question.cursor is None else decode_cursor(question.cursor, str)
    left = names if after is None else [name for name in names if name > after]
    page = left[: question.limit]
    lines = [TopicLine(topic=name, kind=kind_of(name), queues=_queue_count(context, name)) for name in page]
    messages_note = NOT_ASKED if lines else None
    if question.counts:
        for line in lines:
            if context.is_time_up:
                break
            _count(context, line)
        late = sum(line.messages is None and line.problem is None for line in lines)
        messages_note = NO_TIME.format(counted(late, "topic"), question.milliseconds) if late else None
    return TopicsAnswer(
        topics=lines,
        total=len(names),
        cursor=encode_cursor(page[-1]) if len(left) > len(page) else None,
        notes=context.store.config.notes_of_topics(page),
        messages_note=messages_note,
    )


def topic(context: RequestContext, question: TopicQuestion) -> TopicAnswer:
    """One topic: its queues, and how far consumer groups have come."""
    context.require_topic(question.topic)
    context.allow(question.milliseconds)
    ids = queues_of_topic(context.store, question.topic)
    is_first = question.cursor is None and question.groups_cursor is None
    messages, counted = _count_queues(context, question.topic, ids) if is_first else (None, None)
    after = -1 if question.cursor is None else decode_cursor(question.cursor, int)
    left = [queue_id for queue_id in ids if queue_id > after]
    page = left[: question.limit]
    groups, problem = _groups_of(context, question.topic)
    last = None if question.groups_cursor is None else decode_cursor(question.groups_cursor, str)
    rest = groups if last is None else [group for group in groups if group > last]
    shown = rest[: question.groups_limit]
    return TopicAnswer(
        topic=question.topic,
        kind=kind_of(question.topic),
        queue_count=len(ids),
        messages=messages,
        counted_queues=counted,
        queues=[_queue_line(context, question.topic, queue_id) for queue_id in page],
        groups=[_group_line(context, group, question.topic) for group in shown],
        group_count=len(groups),
        groups_cursor=encode_cursor(shown[-1]) if len(rest) > len(shown) else None,
        cursor=encode_cursor(page[-1]) if len(left) > len(page) else None,
        groups_problem=problem,
        notes=context.store.config.notes_of_topics((question.topic,)),
    )


def _count_queues(context: RequestContext, topic: str, ids: Sequence[int]) -> tuple[int, int]:
    """Count the messages of a topic's queues while there is time, and the queues that were counted.

    A queue that cannot be read counts without messages; its line says why.
    """
    messages = 0
    for done, queue_id in enumerate(ids):
        if done and context.is_time_up:
            return messages, done
        with contextlib.suppress(StoreError, BeingSearched):
            queue = context.store.queues.queue(topic, queue_id)
            messages += 0 if queue is None else queue.max_offset - queue.min_offset
    return messages, len(ids)


def _groups_of(context: RequestContext, topic: str) -> tuple[list[str], str | None]:
    """The groups with an offset in a topic that may be seen; none, and the reason, where that is not known."""
    try:
        return [group for group in context.service.offsets.groups_of(topic) if context.may_see_group(group)], None
    except RocketLensError as error:
        return [], str(error)


def _queue_count(context: RequestContext, topic: str) -> int | None:
    try:
        return len(queues_of_topic(context.store, topic))
    except StoreError:
        return None


def _count(context: RequestContext, line: TopicLine) -> None:
    """Set the number of messages of a topic and the time of the last one, or why these are not known."""
    try:
        line.messages, line.last_timestamp = count_messages(context, line.topic)
    except (StoreError, BeingSearched) as error:
        line.problem = str(error)


def count_messages(context: RequestContext, topic: str) -> tuple[int, int | None]:
    """Count the messages of a topic; also when the last was stored (ms), or None.

    Raises StoreError where a queue cannot be read, BeingSearched where its messages are being searched for.
    """
    messages, last = 0, -1
    for queue in context.store.queues.queues_of(topic):
        context.check()
        messages += queue.max_offset - queue.min_offset
        if queue.max_offset > queue.min_offset:
            last = max(last, queue.store_timestamp_at(queue.max_offset - 1))
    return messages, last if last >= 0 else None


def _queue_line(context: RequestContext, topic: str, queue_id: int) -> QueueLine:
    context.check()
    found = queue_extent(context.store, topic, queue_id)
    return QueueLine(
        queue_id=queue_id,
        min_offset=found.min_offset,
        max_offset=found.max_offset,
        first_timestamp=found.first_timestamp,
        last_timestamp=found.last_timestamp,
        problem=found.problem or None,
    )


def _group_line(context: RequestContext, group: str, topic: str) -> GroupLine:
    try:
        progress, is_known = group_progress(context, group, topic), True
    except RocketLensError:
        progress, is_known = TopicProgress(group, topic), False
    queues = progress.queues
    return GroupLine(
        group=group,
        lag=progress.lag if is_known else None,
        next_offsets={str(each.queue_id): each.next_offset for each in queues[:MOST_OFFSETS]},
        offsets_left_out=max(len(queues) - MOST_OFFSETS, 0),
    )


def group_progress(
    context: RequestContext, group: str, topic: str, popped: Mapping[int, int] | None = None
) -> TopicProgress:
    """Return how far a group has come in a topic, with what it popped, by queue id. Raises RocketLensError."""
    offsets = context.service.offsets.offsets_of(group, topic)
    ends: dict[int, int] = {}
    for queue_id in offsets:
        context.check()
        with contextlib.suppress(StoreError, BeingSearched):  # its end is not known, and so neither is the lag
            queue = context.store.queues.queue(topic, queue_id)
            ends[queue_id] = 0 if queue is None else queue.max_offset
    return topic_progress(group, topic, offsets, ends, popped)
