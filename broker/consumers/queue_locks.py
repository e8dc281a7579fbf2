"""Which member of a consumer group has a queue to itself, for consumers that keep messages in order.

A lock lives a minute from when it was last asked for; members ask every 20 seconds (remoting-protocol §3.2). One who
goes away without a word is succeeded when its locks have run out, not before: it may still be at work on the messages
it pulled. As in RocketMQ's RebalanceLockManager, a client that takes leave of its queues makes them free at once.
"""

import time
from collections.abc import Callable, Iterable

from protocol.bodies import MessageQueue

LOCK_SECONDS = 60.0
"""How long a lock lives that is not asked for again (rocketmq.broker.rebalance.lockMaxLiveTime)."""

LOCKS_LIMIT = 1_000_000
"""Locks kept at once, all groups together; further ones are not granted."""


class QueueLocks:
    """All locks, by group and queue. Not for several threads: requests about locks never leave the event loop."""

    def __init__(self, clock_seconds: Callable[[], float] = time.monotonic) -> None:
        self._clock_seconds = clock_seconds
        self._locks: dict[tuple[str, MessageQueue], tuple[str, float]] = {}

    def __len__(self) -> int:
        return len(self._locks)

    def lock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Lock queues for a client, or renew its locks; those that are its own now, in the order asked for."""
        now_seconds = self._clock_seconds()
        granted = []
        for queue in queues:
            owner, seen_seconds = self._locks.get((group, queue), (client_id, now_seconds))
            if owner == client_id or now_seconds - seen_seconds > LOCK_SECONDS:
                if len(self._locks) >= LOCKS_LIMIT and (group, queue) not in self._locks:
                    self._forget_old(now_seconds)
                    if len(self._locks) >= LOCKS_LIMIT:
                        continue
                self._locks[group, queue] = client_id, now_seconds
                granted.append(queue)
        return granted

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Make queues free again as far as they are locked for this client."""
        for queue in queues:
            owner, _ = self._locks.get((group, queue), (None, 0.0))
            if owner == client_id:
                del self._locks[group, queue]

    def _forget_old(self, now_seconds: float) -> None:
        old = [key for key, (_, seen_seconds) in self._locks.items() if now_seconds - seen_seconds > LOCK_SECONDS]
        for key in old:
            del self._locks[key]
