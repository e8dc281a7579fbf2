"""Consumer groups: how far each is behind in each of its topics, and the messages that groups gave up."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from broker.web.api.cursors import decode_cursor, encode_cursor
from broker.web.api.endpoint import Cursor, Limit, Milliseconds, Parameters, Topic
from broker.web.api.request_context import RequestContext
from broker.web.api.topics import count_messages, group_progress
from protocol.errors import BeingSearched, RocketLensError, StoreError
from protocol.system_topics import DEAD_LETTER_PREFIX
from storage.store.group_progress import TopicProgress

Part = Annotated[str, Meta(max_length=255, description="Groups whose name holds this text, in any case.")]

NO_TOPIC: Final = ""
"""The topic, in a cursor, of a group that has committed no offset; it comes first."""


class GroupsQuestion(Parameters):
    """A search for groups by a part of their name; `behind`: only those with messages left to consume, or perhaps."""

    contains: Part = ""
    topic: Topic | None = None
    behind: Annotated[bool, Meta(description="Leave out where a group has consumed everything.")] = False
    popped: Annotated[
        bool, Meta(description="Count the messages that groups popped and did not acknowledge, by the broker's notes.")
    ] = False
    limit: Limit = 100
    milliseconds: Milliseconds = 1000
    cursor: Cursor | None = None


class GroupProgressLine(msgspec.Struct, rename="camel", kw_only=True):
    """A group in one of its topics: the queues in which it has committed offsets, and the messages it has not consumed.

    `lag` is null where it is not known: a queue cannot be read, or the group is ahead of one (`is_ahead`). `popped` are
    messages that it popped and did not acknowledge, null where they are not known or were not asked for. A group that
    has committed nothing has no topic.
    """

    group: str
    topic: str | None
    queues: int
    lag: int | None
    popped: int | None
    is_ahead: bool


class GroupsAnswer(msgspec.Struct, rename="camel", kw_only=True):
    """Groups by name, and the topics of each by name. `groups_problem` says why it is not known which there are."""

    groups: list[GroupProgressLine]
    cursor: str | None
    groups_problem: str | None = None


class DeadLettersQuestion(Parameters):
    """A search for groups that have dead letters, by a part of their name."""

    contains: Part = ""
    limit: Limit = 100
    milliseconds: Milliseconds = 1000
    cursor: Cursor | None = None


class DeadLettersLine(msgspec.Struct, rename="camel", kw_only=True):
    """The dead letters of a group, which are under `topic`, and when the last was stored (ms).

    `messages` is null where `problem` says why they cannot be counted.
    """

    group: str
    topic: str
    messages: int | None
    last_timestamp: int | None
    problem: str | None = None


class DeadLettersAnswer(msgspec.Struct, rename="camel", kw_only=True):
    """Groups by name; `total` of them have a dead-letter topic."""

    groups: list[DeadLettersLine]
    total: int
    cursor: str | None


def groups(context: RequestContext, question: GroupsQuestion) -> GroupsAnswer:
    """How far consumer groups have come in each of their topics."""
    context.allow(question.milliseconds)
    try:
        pairs = _pairs(context, question)
    except RocketLensError as error:
        return GroupsAnswer(groups=[], cursor=None, groups_problem=str(error))
    if question.cursor is not None:
        after = decode_cursor(question.cursor, tuple[str, str])
        pairs = [pair for pair in pairs if pair > after]
    popped = context.service.popped.wait(context.check) if question.popped and pairs else None
    lines: list[GroupProgressLine] = []
    done = 0
    for group, topic in pairs:
        if len(lines) == question.limit or (done and context.is_time_up):
            break
        out = None if popped is None else popped.get(group, {}).get(topic, {})
        progress = TopicProgress(group, None) if topic == NO_TOPIC else group_progress(context, group, topic, out)
        if not question.behind or progress.lag != 0:
            lines.append(_line(progress))
        done += 1
    return GroupsAnswer(groups=lines, cursor=encode_cursor(pairs[done - 1]) if done < len(pairs) else None)


def _pairs(context: RequestContext, question: GroupsQuestion) -> list[tuple[str, str]]:
    """The groups and topics that may be seen, sorted. Raises RocketLensError where they are not known."""
    part = question.contains.lower()
    return [
        (group, topic)
        for group, topic in seen_pairs(context)
        if part in group.lower() and question.topic in (None, topic)
    ]


def seen_pairs(context: RequestContext) -> list[tuple[str, str]]:
    """The groups and topics that may be seen, sorted; those without an offset in `NO_TOPIC`. Raises RocketLensError."""
    service = context.service
    pairs = service.offsets.pairs()
    idle = {*context.store.config.subscription_groups, *service.clients.consumer_groups()}
    pairs += [(group, NO_TOPIC) for group in idle.difference(group for group, _ in pairs)]
    return sorted(
        (group, topic)
        for group, topic in pairs
        if context.may_see_group(group) and (topic == NO_TOPIC or context.may_read(topic))
    )


def _line(progress: TopicProgress) -> GroupProgressLine:
    return GroupProgressLine(
        group=progress.group,
        topic=progress.topic,
        queues=len(progress.queues),
        lag=progress.lag if progress.queues else 0,
        popped=progress.popped,
        is_ahead=any(queue.is_ahead for queue in progress.queues),
    )


def dead_letters(context: RequestContext, question: DeadLettersQuestion) -> DeadLettersAnswer:
    """How many messages were given up for each consumer group."""
    context.allow(question.milliseconds)
    part = question.contains.lower()
    topics = [name for name in context.topics() if name.startswith(DEAD_LETTER_PREFIX)]
    topics = [name for name in topics if part in name.removeprefix(DEAD_LETTER_PREFIX).lower()]
    after = "" if question.cursor is None else decode_cursor(question.cursor, str)
    left = [name for name in topics if name > after]
    lines: list[DeadLettersLine] = []
    for topic in left[: question.limit]:
        if lines and context.is_time_up:
            break
        lines.append(_dead_letters_in(context, topic))
    return DeadLettersAnswer(
        groups=lines,
        total=len(topics),
        cursor=encode_cursor(lines[-1].topic) if len(lines) < len(left) else None,
    )


def _dead_letters_in(context: RequestContext, topic: str) -> DeadLettersLine:
    group = topic.removeprefix(DEAD_LETTER_PREFIX)
    try:
        messages, last = count_messages(context, topic)
    except (StoreError, BeingSearched) as error:
        return DeadLettersLine(group=group, topic=topic, messages=None, last_timestamp=None, problem=str(error))
    return DeadLettersLine(group=group, topic=topic, messages=messages, last_timestamp=last)
