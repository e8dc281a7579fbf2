"""Everything that happened to one message, in order of time, as `rocketlens life` shows it."""

from collections.abc import Container
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import msgspec
from msgspec import Meta

from broker.service.served_life import served_life
from broker.web.api.answer_lines import NamedMessage, VerdictLine, named_message, verdict_line
from broker.web.api.endpoint import Parameters, Topic
from broker.web.api.errors import bad_parameter
from broker.web.api.message_lines import MessageLine, line_of
from broker.web.api.request_context import RequestContext
from protocol.errors import ConfigError
from protocol.trace import Trace
from storage.life.message_life import Event, MessageLife, Story
from storage.life.verdicts import GroupVerdict


class LifeQuestion(Parameters):
    """`topic` is the one that the message was sent to; without it every topic is searched."""

    unique_key: Annotated[
        str, Meta(min_length=1, max_length=4096, description="The id that the client made when it sent the message.")
    ]
    topic: Topic | None = None


class LifeProgress(msgspec.Struct, rename="camel", kw_only=True):
    """How far a consumer group has come in the queue of a record; `passage` (in words `text`) is what it did with it.

    `until_timestamp` is when a record that is popped comes back.
    """

    group: str
    next_offset: int
    has_passed: bool
    passage: str
    text: str
    until_timestamp: int | None


class LifeEvent(msgspec.Struct, rename="camel", kw_only=True):
    """One thing that happened: a record that was stored, at its `stage`, or a client's trace."""

    timestamp: int
    stage: str | None
    note: str
    until_timestamp: int | None
    groups: list[LifeProgress]
    message: MessageLine | None
    trace: Trace | None
    message_number: int | None


class LifeAnswer(msgspec.Struct, rename="camel", kw_only=True):
    """Events in order of time, and the verdict on the message for each group that consumed or skipped it.

    `messages` are those that the key names, mostly one; events and verdicts have their numbers.
    `incomplete` says what may be missing, `notes` what is not read, `left_out` counts what may not be seen.
    `similar_topics` are those that may be meant instead of a topic that the store does not have.
    """

    events: list[LifeEvent]
    verdicts: list[VerdictLine]
    messages: list[NamedMessage]
    incomplete: str | None
    notes: list[str]
    left_out: int
    similar_topics: list[str]


@dataclass(frozen=True)
class SeenLife(MessageLife):
    """What of a life an account may see: the verdicts are those of all of it, for groups that may be seen."""

    seen_stories: tuple[Story, ...] = ()
    seen_verdicts: tuple[GroupVerdict, ...] = ()
    left_out: int = 0
    """Events that may not be seen."""

    @cached_property
    def stories(self) -> tuple[Story, ...]:
        """The messages of which some record may be seen."""
        return self.seen_stories

    @property
    def verdicts(self) -> tuple[GroupVerdict, ...]:
        """The verdicts that may be seen."""
        return self.seen_verdicts


def seen_life(context: RequestContext, unique_key: str, topic: str | None) -> SeenLife:
    """What of the life of the messages with a unique key may be seen. Raises `ApiError`."""
    if topic is not None:
        context.require_right(topic)
    context.refuse_tier("life")
    try:
        found = served_life(context.service, unique_key, topic, may_see_group=context.may_see_group, mask=context.mask)
    except ConfigError as error:
        raise bad_parameter("uniqueKey", str(error)) from None
    context.check()
    read = {event.number for event in found.events if event.message and context.may_read_message(event.message)}
    seen = tuple(event for event in found.events if _may_see(context, event, read))
    return SeenLife(
        seen,
        found.incomplete,
        found.transactions,
        found.notes,
        seen_stories=tuple(each for each in found.stories if each.number in read),
        seen_verdicts=tuple(
            each for each in found.verdicts if each.number in read and context.may_see_group(each.group)
        ),
        left_out=len(found.events) - len(seen),
    )


def message_life(context: RequestContext, question: LifeQuestion) -> LifeAnswer:
    """Where a message waited, was delivered, retried and given up, who has passed it, and what clients reported."""
    found = seen_life(context, question.unique_key, question.topic)
    is_empty = not found.events and not found.left_out
    return LifeAnswer(
        events=[_event(event) for event in found.events],
        verdicts=list(map(verdict_line, found.verdicts)),
        messages=list(map(named_message, found.stories)),
        incomplete=found.incomplete,
        notes=list(found.notes),
        left_out=found.left_out,
        similar_topics=[] if not is_empty or question.topic is None else context.similar_topics(question.topic),
    )


def _may_see(context: RequestContext, event: Event, read: Container[int | None]) -> bool:
    """Whether an event may be shown; `read` are the numbers of the messages of which some record may be.

    A consumer's trace names no topic, so it may if any of the records may, and if the account may see the group.
    """
    if event.message is not None:
        return context.may_read_message(event.message)
    trace = event.trace
    assert trace is not None
    if context.account is None:
        return True
    if trace.topic is not None:
        return context.may_read(trace.topic)
    return event.number in read and (trace.group is None or context.may_see_group(trace.group))


def _event(event: Event) -> LifeEvent:
    groups = [
        LifeProgress(
            group=each.group,
            next_offset=each.next_offset,
            has_passed=each.has_passed,
            passage=each.passage.value,
            text=each.text,
            until_timestamp=each.until_timestamp,
        )
        for each in event.groups
    ]
    return LifeEvent(
        timestamp=event.timestamp,
        stage=None if event.stage is None else event.stage.value,
        note=event.note,
        until_timestamp=event.until_timestamp,
        groups=groups,
        message=None if event.message is None else line_of(event.message),
        trace=event.trace,
        message_number=event.number,
    )
