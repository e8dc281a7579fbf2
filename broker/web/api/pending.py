"""The messages that wait, by the topic that they go to and by due time, as `rocketlens pending` shows them.

All of them are read once for all clients (:mod:`broker.service.kept_work`); lists are taken from what was read.
"""

import threading
import time
from functools import partial
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from broker.service.kept_work import KEPT_SECONDS, WAITED_SECONDS, KeptWorks, Report, WorkState
from broker.web.api.answer_lines import PendingTopicLine, pending_topic_line
from broker.web.api.cursors import decode_cursor, encode_cursor
from broker.web.api.endpoint import Cursor, Limit, MaximumAge, Time, TimedParameters, Topic
from broker.web.api.message_lines import MessageLine, line_of
from broker.web.api.request_context import RequestContext
from protocol.question import LARGEST
from storage.life.pending import BEGINNING, Pending, PendingMessage, PendingWindow


class PendingCursor(msgspec.Struct, frozen=True, array_like=True):
    """The last message of a list: its due time in ms, its physical offset, and its number."""

    due_timestamp: Annotated[int, Meta(ge=0, le=LARGEST)]
    physical_offset: Annotated[int, Meta(ge=0, le=LARGEST)]
    number: Annotated[int, Meta(ge=0, le=LARGEST)] = LARGEST


class PendingQuestion(TimedParameters):
    """Messages that go to `topic`, due between two times, which are included.

    `maximumAge`: what was read longer ago, in seconds, is read anew.
    """

    topic: Topic | None = None
    due_after: Time = 0
    due_before: Time = LARGEST
    limit: Limit = 50
    cursor: Cursor | None = None
    maximum_age: MaximumAge = int(KEPT_SECONDS)


class PendingLine(msgspec.Struct, rename="camel", kw_only=True):
    """One message that waits, as it is stored; its `state` is waiting, overdue, cancelled or popped.

    One that is popped comes back to `group`, which is null where it may not be seen.
    """

    state: str
    due_timestamp: int
    topic: str
    delay_level: int | None
    rolls: int
    group: str | None
    message: MessageLine


class PendingAnswer(msgspec.Struct, rename="camel", kw_only=True):
    """`running`: `readMessages` were read, or a page for another client is being read; ask again. `done`: `topics` and
    `messages` are what waits. `failed`: why. `topics` are counted for the first page only, and empty where a `cursor`
    is given.

    `logTimestamp` is when the last message was stored; timer messages that were due before `timersTimestamp` are
    delivered. `notes` say what is not known, `incomplete` what may be missing, `left_out` how many messages this
    account may not read: it needs the right to the topic in which they wait, too. `similar_topics` are those that may
    be meant instead of a topic that the store does not have.
    """

    state: Literal["running", "done", "failed"]
    read_messages: int = 0
    seconds: float = 0.0
    read_timestamp: int | None = None
    log_timestamp: int | None = None
    timers_timestamp: int | None = None
    topics: list[PendingTopicLine] = []
    messages: list[PendingLine] = []
    notes: list[str] = []
    incomplete: str | None = None
    problem: str | None = None
    left_out: int = 0
    similar_topics: list[str] = []
    cursor: str | None = None


class ReadPending:
    """The waiting messages of one store, with the time at which they were read."""

    def __init__(self, pending: Pending) -> None:
        self.pending = pending
        self.timestamp = time.time_ns() // 1_000_000
        self.lock = threading.Lock()
        """Held while something is read from the list."""


class WaitingMessages:
    """The waiting messages of all stores; safe to use from several threads."""

    def __init__(self) -> None:
        self._works: KeptWorks[ReadPending] = KeptWorks("pending", "reading what waits")

    def close(self) -> None:
        """Give up what is under way."""
        self._works.close()

    def read(self, context: RequestContext, maximum_age: float) -> WorkState[ReadPending]:
        """What waits in a store, read not longer than some seconds ago; or how far the reading is."""
        return self._works.ask(context.service.broker_name, partial(_read, context), maximum_age)

    def pending(self, context: RequestContext, question: PendingQuestion) -> PendingAnswer:
        """Messages that wait for a delay level or a point in time, counted by topic, and listed by due time."""
        require_waiting(context, question.topic)
        cursor = None if question.cursor is None else decode_cursor(question.cursor, PendingCursor)
        state = self.read(context, question.maximum_age)
        read = state.outcome
        if state.problem is not None:
            return PendingAnswer(state="failed", problem=state.problem)
        if state.is_running or read is None:
            return PendingAnswer(state="running", read_messages=state.progress, seconds=state.seconds)
        # A client that comes while another's page is being read asks again: it must not occupy a thread meanwhile.
        if not read.lock.acquire(timeout=WAITED_SECONDS):
            return PendingAnswer(state="running", read_messages=state.progress, seconds=state.seconds)
        try:
            return _answer(context, question, read, cursor)
        finally:
            read.lock.release()


def require_waiting(context: RequestContext, topic: str | None) -> None:
    """Raise `ApiError` where what waits for a topic, or for all, may not be seen, or is not in such a store."""
    if topic is None:
        context.require_admin()
    else:
        context.require_right(topic)
    if context.store.layout.is_tier_alone:
        context.refuse_tier("pending")


def _read(context: RequestContext, report: Report) -> ReadPending:
    return ReadPending(Pending(context.store, report))


def _answer(
    context: RequestContext, question: PendingQuestion, read: ReadPending, cursor: PendingCursor | None
) -> PendingAnswer:
    window = PendingWindow(question.topic, question.due_after, question.due_before)
    behind = BEGINNING if cursor is None else (cursor.due_timestamp, cursor.physical_offset, cursor.number)
    found, following = read.pending.page(window, question.limit, behind)
    seen = [each for each in found if context.may_read_message(each.message)]
    topics = read.pending.topics(window) if cursor is None else []
    is_empty = not topics and cursor is None and question.topic is not None
    as_of = read.pending.as_of
    return PendingAnswer(
        state="done",
        read_timestamp=read.timestamp,
        log_timestamp=as_of.log_timestamp,
        timers_timestamp=as_of.timers if as_of.timers_known else None,
        topics=[pending_topic_line(topic) for topic in topics if context.may_read(topic.topic)],
        messages=[_line(context, each) for each in seen],
        left_out=len(found) - len(seen),
        similar_topics=context.similar_topics(question.topic or "") if is_empty else [],
        notes=list(as_of.notes),
        incomplete=read.pending.incomplete,
        cursor=None if following is None else encode_cursor(PendingCursor(*following)),
    )


def _line(context: RequestContext, pending: PendingMessage) -> PendingLine:
    return PendingLine(
        state=pending.state.value,
        due_timestamp=pending.due_timestamp,
        topic=pending.topic,
        delay_level=pending.level,
        rolls=pending.rolls,
        group=pending.group if pending.group is None or context.may_see_group(pending.group) else None,
        message=line_of(context.mask.message(pending.message)),
    )
