"""Following a store that a broker writes: what came is in the store's snapshot within some tens of milliseconds.

Two things are done side by side. :meth:`StoreFollower.poll`, some fifty times a second, looks at the end of the log
alone, which costs next to nothing while nothing comes. :meth:`StoreFollower.watch`, once a second, looks at everything
else.

A broker writes a message into the log first and points at it from its queue a moment later, in the log's order. So
once the queue of the last message has its unit, all queues have theirs; until then they are looked at again and again.
"""

import time
from collections.abc import Callable, Set
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from storage.kernels.store_view import stay_alike
from storage.log.log_place import Watched
from storage.queue.queue_record import is_queued, queue_place
from storage.store._current_snapshot import CurrentSnapshot
from storage.store._log_follower import LogRewritten
from storage.store._log_growth import LogGrowth
from storage.store.snapshot import Snapshot, with_growth

QueueKey: TypeAlias = tuple[str, int]
"""Topic and queue id."""

EAGER_SECONDS = 1.0
"""For so long after a message its queue is looked at in each poll, then once in so long."""

MOST_RESTS = 16
"""After so many looks that found nothing, what other threads did to the snapshot is looked at, too."""

NEVER = -2
"""No physical offset of a last record, not even of one that is not known."""

UNQUEUED_SECONDS = 0.1
"""When no queue gets the last message, those of the messages before it have their units after so long."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Queues that may have got messages, None for all; ``more``: poll again at once."""

    queues: Set[QueueKey] | None
    more: bool = False


@dataclass(slots=True)
class _Lag:
    """Messages that have come to the log and perhaps not to their queues; ``last`` is the offset of the last one.

    ``queues`` are those concerned, None for all; they are looked at next at a time. ``seen`` are those of them of which
    messages were seen to come.
    """

    last: int
    since: float
    queues: set[QueueKey] | None = field(default_factory=set)
    seen: set[QueueKey] = field(default_factory=set)
    next_look: float = 0.0


class StoreFollower:
    """Keeps the snapshot of one store up to date; `poll` and `watch` may be called on two threads that may wait."""

    def __init__(self, current: CurrentSnapshot, renew: Callable[[], bool]) -> None:
        """``renew`` takes in what changed but for the log's growth, and says whether anything did."""
        self._current, self._renew = current, renew
        # What came before this was there may be on its way to its queues too.
        self._lag: _Lag | None = _Lag(current.end_follower.last_offset, time.monotonic(), None)
        self._last_noted = current.end_follower.last_offset

    def poll(self) -> Arrivals | None:
        """Take in what came to the log; queues that got messages since the last poll, or None. May raise StoreError."""
        watched = self._watched()
        if watched and not self._current.snapshot.is_cut and stay_alike(watched, 0, 1):
            return None
        arrivals: list[Arrivals] = []
        self._current.change(lambda snapshot: self._step(snapshot, arrivals))
        return arrivals[0] if arrivals else None

    def rest(self, seconds: float) -> None:
        """Wait so long, and while nothing comes to the log :data:`MOST_RESTS` times as long."""
        watched = self._watched()
        stay_alike(watched, seconds, MOST_RESTS if watched else 1)

    def _watched(self) -> list[Watched]:
        """The places that stay alike while nothing comes; none where something may have come."""
        end = self._current.end_follower
        if self._lag is not None or end.last_offset != self._last_noted:
            return []
        return end.watched(self._current.snapshot.commit_log)

    def watch(self) -> bool:
        """Take in what else changed; whether anything did. Raises StoreError where the store cannot be read."""
        return self._renew()

    def _step(self, snapshot: Snapshot, arrivals: list[Arrivals]) -> Snapshot | None:
        now = time.monotonic()
        growth = self._look(snapshot, now)
        if growth is not None:
            snapshot = with_growth(snapshot, growth)
        lag = self._lag
        if lag is None or (growth is None and now < lag.next_look):
            return None if growth is None else snapshot
        if growth is None:  # queues keep the ends that were found in a snapshot
            snapshot = replace(snapshot, queues=snapshot.queues.grown(snapshot.commit_log))
        record = None if lag.last < 0 else snapshot.commit_log.record_at(lag.last)
        if _is_new_queue_there(snapshot, lag, record):
            snapshot = replace(snapshot, queues=snapshot.queues.refresh())
        arrivals.append(Arrivals(lag.queues, growth is not None and growth.more))
        lag.next_look = now + (0 if now - lag.since < EAGER_SECONDS else EAGER_SECONDS)
        if record is None or self._has_come(record, lag, snapshot, now):
            self._lag = None
        return snapshot

    def _look(self, snapshot: Snapshot, now: float) -> LogGrowth | None:
        """Find what came to the log, also by another thread or by opening it anew; its units are expected."""
        end = self._current.end_follower
        is_known = end.last_offset == self._last_noted
        try:
            if snapshot.is_cut:
                raise LogRewritten
            growth = end.look(snapshot.commit_log, snapshot.queues.has_unit_of)
        except LogRewritten:
            self._last_noted = NEVER
            raise
        if not is_known:
            self._lag = _Lag(end.last_offset, now, None)
        elif growth is not None and growth.last >= 0:
            self._note(growth, now)
        self._last_noted = end.last_offset
        return growth

    def _note(self, growth: LogGrowth, now: float) -> None:
        """Expect the units of what came."""
        queues = {key for record in growth.records if (key := queue_key(record)) is not None}
        if self._lag is None:
            self._lag = _Lag(growth.last, now, queues, set(queues))
            return
        self._lag.last, self._lag.since = growth.last, now
        self._lag.seen |= queues
        if self._lag.queues is not None:
            self._lag.queues |= queues

    def _has_come(self, record: memoryview, lag: _Lag, snapshot: Snapshot, now: float) -> bool:
        """Whether the last message has come to its queue, and so have those before it."""
        if is_queued(record):
            return snapshot.queues.has_unit_of(record, lag.last)
        return now - lag.since >= UNQUEUED_SECONDS


def queue_key(record: memoryview) -> QueueKey | None:
    """The queue of a record of sound shape, which may go on behind its end; None where it has changed meanwhile."""
    place = queue_place(record)
    return None if place is None else (place[2], place[0])


def _is_new_queue_there(snapshot: Snapshot, lag: _Lag, last: memoryview | None) -> bool:
    """Whether a queue of what has come, or that of the last record, has come into being since queues were listed."""
    known, keys = snapshot.queues, lag.seen
    if lag.queues is None and last is not None:
        keys = keys | {key for key in [queue_key(last)] if key is not None}
    return any(not known.knows(*key) and known.has_directory(*key) for key in keys)
