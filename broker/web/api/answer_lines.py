"""Lines of lists that the API and assistants have alike; they are made of values, and load nothing of a store."""

from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:  # the list of tools loads nothing of a store
    from storage.doctor.finding import Finding
    from storage.life.message_life import Story
    from storage.life.pending import PendingTopic
    from storage.life.verdicts import GroupVerdict


class FindingLine(msgspec.Struct, rename="camel", kw_only=True):
    """One finding of an examination: its kind, how it is known, where it is, what is there, and how to fix it."""

    severity: Literal["error", "warning", "info"]
    check: str
    kind: str
    known: str
    place: str
    found: str
    meaning: str
    remedy: str
    physical_offset: int | None


def finding_line(finding: "Finding") -> FindingLine:
    """A finding as answers have it."""
    return FindingLine(
        severity=finding.severity.value,
        check=finding.check,
        kind=finding.kind.value,
        known=finding.known.value,
        place=finding.where,
        found=finding.what,
        meaning=finding.meaning,
        remedy=finding.remedy,
        physical_offset=finding.physical_offset if finding.physical_offset >= 0 else None,
    )


class VerdictLine(msgspec.Struct, rename="camel", kw_only=True):
    """How the message ended for a consumer group, or how far it is; `text` says so in words behind the group's name.

    `is_certain`: more than the group's offset says so. `until_timestamp` is when a message that is popped comes back.
    """

    group: str
    ending: str
    retries: int
    text: str
    is_certain: bool
    until_timestamp: int | None
    message_number: int


def verdict_line(verdict: "GroupVerdict") -> VerdictLine:
    """A verdict as answers have it."""
    return VerdictLine(
        group=verdict.group,
        ending=verdict.ending.value,
        retries=verdict.retries,
        text=verdict.text,
        is_certain=verdict.is_certain,
        until_timestamp=verdict.until_timestamp,
        message_number=verdict.number,
    )


class NamedMessage(msgspec.Struct, rename="camel", kw_only=True):
    """One of the messages that the unique key names; `topic` is the one it was sent to, null if that is not known.

    `transaction` says how its transaction ended.
    """

    number: int
    topic: str | None
    born_timestamp: int
    transaction: str | None


def named_message(story: "Story") -> NamedMessage:
    """One of the messages that are named so, as answers have it."""
    return NamedMessage(
        number=story.number, topic=story.topic, born_timestamp=story.born_timestamp, transaction=story.transaction
    )


class PendingTopicLine(msgspec.Struct, rename="camel", kw_only=True):
    """The messages that wait for one topic; `bytes` are those of the waiting and overdue ones."""

    topic: str
    waiting: int
    overdue: int
    cancelled: int
    rolled: int
    cancel_requests: int
    popped: int
    bytes: int
    first_due_timestamp: int | None
    last_due_timestamp: int | None


def pending_topic_line(topic: "PendingTopic") -> PendingTopicLine:
    """What waits for a topic, as answers have it."""
    return PendingTopicLine(
        topic=topic.topic,
        waiting=topic.waiting,
        overdue=topic.overdue,
        cancelled=topic.cancelled,
        rolled=topic.rolled,
        cancel_requests=topic.cancel_requests,
        popped=topic.popped,
        bytes=topic.size,
        first_due_timestamp=topic.first_due,
        last_due_timestamp=topic.last_due,
    )


class QueueLine(msgspec.Struct, rename="camel", kw_only=True):
    """A queue: offsets of its first message and behind its last; when they were stored (ms), or None."""

    queue_id: int
    min_offset: int
    max_offset: int
    first_timestamp: int | None
    last_timestamp: int | None
    problem: str | None = None
