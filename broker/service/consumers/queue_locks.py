"""Locks of queues: a consumer that keeps messages in order locks a queue so that no other member consumes it.

A lock expires a minute after the last request for it; members ask every 20 seconds (remoting-protocol §3.2). When a
member disappears without unlocking, other members get its queues only when its locks have expired: it may still be
consuming the messages that it pulled. As in RocketMQ's RebalanceLockManager, a client that unlocks its queues frees
them at once.
"""

import threading
import time
from collections.abc import Callable, Iterable
from typing import Final

from broker.service.registry_budget import Room, room_apart, size_of
from protocol.bodies import MessageQueue

LOCK_SECONDS = 60.0
"""Seconds after which a lock that is not renewed expires (rocketmq.broker.rebalance.lockMaxLiveTime)."""

LOCKS_LIMIT = 1_000_000
"""Most locks of all groups together; further ones are not granted."""

LOCK_BYTES: Final = 384
"""Bytes that a lock is counted with, besides its texts."""

CLEAN_SECONDS = 1.0
"""Shortest time between two searches for expired locks, which are made when the budget is spent."""


class QueueLocks:
    """All locks, by group and queue. Safe to use from several threads."""

    def __init__(self, clock_seconds: Callable[[], float] = time.monotonic, room: Room | None = None) -> None:
        self._clock_seconds = clock_seconds
        self._lock = threading.Lock()
        self._locks: dict[tuple[str, MessageQueue], tuple[str, float]] = {}
        self._cleaned_seconds = -CLEAN_SECONDS
        self.room = room_apart("locks") if room is None else room
        """The part of the budget in which locks are counted."""

    def __len__(self) -> int:
        return len(self._locks)

    def lock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Lock queues for a client, or renew its locks; return those that it has locked now, in the order asked for."""
        now_seconds = self._clock_seconds()
        granted = []
        with self._lock:
            for queue in queues:
                owner, seen_seconds = self._locks.get((group, queue), (client_id, now_seconds))
                is_free = owner == client_id or now_seconds - seen_seconds > LOCK_SECONDS
                if is_free and self._has_room((group, queue), client_id, now_seconds):
                    self._locks[group, queue] = client_id, now_seconds
                    granted.append(queue)
        return granted

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Unlock those of the queues that are locked for this client."""
        with self._lock:
            for queue in queues:
                owner, _ = self._locks.get((group, queue), (None, 0.0))
                if owner == client_id:
                    self._forget((group, queue))

    def _has_room(self, key: tuple[str, MessageQueue], client_id: str, now_seconds: float) -> bool:
        """Count a lock that is new or goes to another client; False where there are too many."""
        known = self._locks.get(key)
        size = _size_of(key, client_id) - (0 if known is None else _size_of(key, known[0]))
        if known is None and len(self._locks) >= LOCKS_LIMIT:
            self._forget_old(now_seconds)
            if len(self._locks) >= LOCKS_LIMIT:
                return False
        if self.room.take(size):
            return True
        self._forget_old(now_seconds)
        # The lock asked for may itself have expired, and have been dropped just now.
        return self.room.take(size if key in self._locks else _size_of(key, client_id))

    def _forget(self, key: tuple[str, MessageQueue]) -> None:
        client_id, _ = self._locks.pop(key)
        self.room.give_back(_size_of(key, client_id))

    def _forget_old(self, now_seconds: float) -> None:
        if now_seconds - self._cleaned_seconds < CLEAN_SECONDS:
            return
        self._cleaned_seconds = now_seconds
        old = [key for key, (_, seen_seconds) in self._locks.items() if now_seconds - seen_seconds > LOCK_SECONDS]
        for key in old:
            self._forget(key)


def _size_of(key: tuple[str, MessageQueue], client_id: str) -> int:
    """The number of bytes that a lock is counted with."""
    group, queue = key
    return LOCK_BYTES + size_of(group, client_id, queue.topic, queue.broker_name)
