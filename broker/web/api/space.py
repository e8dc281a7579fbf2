"""What takes the disk, as `rocketlens space` shows it: the log is counted once for all clients that ask.

Counting reads the whole log, so only one store's is counted at a time, by half of the processors, and what came of it
is answered for an hour unless a client asks for another age. It ends when no client has asked for a while.
"""

import os
import threading
import time
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from broker.security.topic_rights import StoredOrigin, denied_resource
from broker.service.kept_work import KeptWorks, Report
from broker.web.api.endpoint import Limit, Parameters
from broker.web.api.message_lines import MessageLine, line_of
from broker.web.api.request_context import RequestContext
from protocol.mask import Mask
from protocol.system_topics import holds_its_own_alone
from storage.search.find import message_at
from storage.space.breakdown import COUNTED_BY, NameCount, count_fields, counts_are_masked, inexact_counts, name_counts
from storage.space.broker_settings import BrokerSettings
from storage.space.forecast import Forecast, make_forecast
from storage.space.measure import in_threads, measure, problems_of
from storage.space.tally import MOST_LARGEST, Tally

KEPT_SECONDS: Final = 3600
"""Seconds for which counts are answered before the log is counted anew, unless a client asks for another age."""

OLDEST_SECONDS: Final = 7 * 24 * 3600
"""The oldest counts that a client may ask for."""

TURN_SECONDS: Final = 0.2
"""Seconds after which a count that waits for another store's checks whether a client still asks for it."""


class SpaceQuestion(Parameters):
    """`limit` is the number of names of each kind, of the newest hours, and of the largest messages.

    `maximumAge`: what was counted longer ago, in seconds, is counted anew.
    """

    limit: Limit = 10
    maximum_age: Annotated[
        int, Meta(ge=0, le=OLDEST_SECONDS, description="Seconds: what was counted longer ago is counted anew.")
    ] = KEPT_SECONDS


class SpaceLine(msgspec.Struct, rename="camel", kw_only=True):
    """Messages of one name, and the bytes of their records: `mostBytes` are more where there are too many names.

    A line has what it is counted by: a `topic`, alone, with a `queueId` or with a `tag` (null: without a tag); a
    sender's address, `host`; or the beginning of an hour, `hourTimestamp`.
    """

    topic: str | None = None
    queue_id: int | None = None
    tag: str | None = None
    host: str | None = None
    hour_timestamp: int | None = None
    messages: int
    bytes: int
    most_bytes: int


class SpaceTable(msgspec.Struct, rename="camel", kw_only=True):
    """Lines, the most bytes first, hours from the newest on; `names` is how many of them there are in all."""

    lines: list[SpaceLine]
    names: int


class LargeMessage(msgspec.Struct, rename="camel", kw_only=True):
    """One of the largest messages. `message` is null where it cannot be read any more; `damage` says what is wrong."""

    bytes: int
    physical_offset: int
    message: MessageLine | None
    damage: str | None


class SpaceForecast(msgspec.Struct, rename="camel", kw_only=True):
    """How the log grows, and when the disk is full or messages expire; null for what cannot be said.

    `crowdedTimestamp`: from then on the broker deletes segments of any age. `expiryTimestamp`: from then on it may
    delete the oldest segment for its age. `keptBytes` is how long the log becomes until it is as old as it is kept.
    `assumed` names the broker's settings that are not known, for which a broker's defaults are taken.
    """

    bytes_per_day: int | None
    growth_hours: float
    disk: str
    disk_bytes: int
    disk_used_bytes: int
    disk_free_bytes: int
    full_timestamp: int | None
    crowded_timestamp: int | None
    expiry_timestamp: int | None
    kept_bytes: int | None
    log_bytes: int
    is_full_first: bool | None
    reserved_hours: int
    most_used_percent: int
    assumed: list[str]


class SpaceOutcome(msgspec.Struct, rename="camel", kw_only=True):
    """The counts of a log; `notes` say what was not counted, and what is not exact. Times are null without messages.

    `leftOut` counts the lines and messages that this account may not read, which are not among the first `limit` then.
    """

    messages: int
    bytes: int
    oldest_timestamp: int | None
    newest_timestamp: int | None
    topics: SpaceTable
    queues: SpaceTable
    tags: SpaceTable
    hosts: SpaceTable
    hours: SpaceTable
    largest: list[LargeMessage]
    forecast: SpaceForecast | None
    notes: list[str]
    left_out: int
    counted_timestamp: int
    seconds: float


class SpaceAnswer(msgspec.Struct, rename="camel", kw_only=True):
    """`running`: `countedBytes` of `totalBytes` are done, ask again. `done`: with an `outcome`. `failed`: a `problem`.

    While it runs, `outcome` is what was counted before, if anything was.
    """

    state: Literal["running", "done", "failed"]
    counted_bytes: int = 0
    total_bytes: int = 0
    seconds: float = 0.0
    outcome: SpaceOutcome | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class _Large:
    """A large message, and where it was sent to: its reader needs the right to that as well."""

    line: LargeMessage
    origin: StoredOrigin | None

    def may_be_read(self, context: RequestContext) -> bool:
        if context.account is None or context.account.is_unbounded:
            return True
        return self.origin is not None and denied_resource(context.account, self.origin) is None


@dataclass(frozen=True, slots=True)
class _Counted:
    """The counts of one store with all its names, without anything that holds its files open."""

    tally: Tally
    rows: dict[str, list[NameCount]]
    largest: list[_Large]
    forecast: Forecast | None
    notes: list[str]
    timestamp: int
    seconds: float


class SpaceCounts:
    """The counts of all stores; safe to use from several threads."""

    def __init__(self) -> None:
        self._works: KeptWorks[_Counted] = KeptWorks("space", "counting the log")
        self._turn = threading.Lock()
        """Held while one store is counted."""

    def close(self) -> None:
        """Give up what is under way."""
        self._works.close()

    def space(self, context: RequestContext, question: SpaceQuestion) -> SpaceAnswer:
        """What takes the disk, by topic, queue, tag, sender and hour; the largest messages, and how the log grows."""
        context.require_admin()
        context.refuse_tier("space")
        state = self._works.ask(context.service.broker_name, partial(self._count, context), question.maximum_age)
        if state.problem is not None:
            return SpaceAnswer(state="failed", problem=state.problem)
        outcome = None if state.outcome is None else _outcome(context, state.outcome, question.limit)
        if not state.is_running and outcome is not None:
            return SpaceAnswer(state="done", outcome=outcome)
        total = sum(segment.end - segment.base_offset for segment in context.store.commit_log.segments)
        return SpaceAnswer(
            state="running",
            counted_bytes=state.progress,
            total_bytes=max(total, state.progress),
            seconds=state.seconds,
            outcome=outcome,
        )

    def _count(self, context: RequestContext, report: Report) -> _Counted:
        """Count one store, after those whose turn came before."""
        while not self._turn.acquire(timeout=TURN_SECONDS):
            report(0)
        try:
            return _counted(context, report)
        finally:
            self._turn.release()


def _counted(context: RequestContext, report: Report) -> _Counted:
    started, done = time.monotonic(), 0

    def reached(progress: int) -> None:
        nonlocal done
        done = progress
        report(progress)

    # Half of the cores stay with the clients of the other port. Within a segment, too, it is to end when nobody asks.
    threads = max((os.cpu_count() or 2) // 2, 1)
    tally_all = partial(in_threads, threads=threads, check=lambda: report(done))
    log = context.store.commit_log
    tally = measure(log, tally_all, reached)
    mask = context.kept_mask
    return _Counted(
        tally=tally,
        rows={kind: [] if counts_are_masked(context.mask, kind) else name_counts(tally, kind) for kind in COUNTED_BY},
        largest=[_large(context, mask, size, offset) for size, offset in tally.largest_messages(MOST_LARGEST)],
        forecast=make_forecast(log, tally, BrokerSettings()),
        notes=[*problems_of(log, tally), *inexact_counts(tally)],
        timestamp=time.time_ns() // 1_000_000,
        seconds=time.monotonic() - started,
    )


def _large(context: RequestContext, mask: Mask, size: int, physical_offset: int) -> _Large:
    message, damage = message_at(context.store, physical_offset)
    line = None if message is None else line_of(mask.message(message), damage=damage)
    large = LargeMessage(bytes=size, physical_offset=physical_offset, message=line, damage=damage)
    return _Large(large, None if message is None else StoredOrigin.of(message, context.service.origins))


def _outcome(context: RequestContext, counted: _Counted, limit: int) -> SpaceOutcome:
    tally, forecast = counted.tally, counted.forecast
    rows = {kind: _readable(context, kind, counted.rows[kind]) for kind in COUNTED_BY}
    largest = [each for each in counted.largest if each.may_be_read(context)]
    left_out = sum(len(counted.rows[kind]) - len(rows[kind]) for kind in COUNTED_BY)
    return SpaceOutcome(
        messages=tally.messages,
        bytes=tally.size,
        oldest_timestamp=tally.oldest if tally.messages else None,
        newest_timestamp=tally.newest if tally.messages else None,
        topics=_table("topic", rows["topic"], limit),
        queues=_table("queue", rows["queue"], limit),
        tags=_table("tag", rows["tag"], limit),
        hosts=_table("host", rows["host"], limit),
        hours=_table("hour", rows["hour"], limit),
        largest=[each.line for each in largest[:limit]],
        forecast=None if forecast is None else msgspec.convert(forecast.fields(), SpaceForecast),
        notes=[*counted.notes, *(context.readable(each, ()) for each in context.store.config.notes_of_topics())],
        left_out=left_out + len(counted.largest) - len(largest),
        counted_timestamp=counted.timestamp,
        seconds=counted.seconds,
    )


def _readable(context: RequestContext, kind: str, rows: list[NameCount]) -> list[NameCount]:
    """The rows that may be seen.

    Hours are of all topics together. So are senders, whose addresses are in messages; and tags where a topic holds
    messages of others. Both are for accounts to which no topic is denied.
    """
    if context.account is None or kind == "hour" or (kind == "host" and context.account.reads_every_topic):
        return rows
    if kind == "host":
        return []
    seen = [row for row in rows if context.may_read(str(row.names[0]))]
    if kind != "tag" or context.account.reads_every_topic:
        return seen
    return [row for row in seen if holds_its_own_alone(str(row.names[0]))]


def _table(kind: str, rows: list[NameCount], limit: int) -> SpaceTable:
    return SpaceTable(
        lines=[msgspec.convert(count_fields(kind, row), SpaceLine) for row in rows[:limit]],
        names=len(rows),
    )
