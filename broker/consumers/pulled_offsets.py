"""How far consumer groups have pulled ahead of what they commit: what is between the two is in flight.

The ordinary way notes where each pull goes on. Pulls of the fast lane are noted by compiled code, in the rows of
:class:`broker.known_pulls.KnownPulls`, and are read off when somebody asks. Other workers tell worker 0 once a second.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final

QUEUES_LIMIT: Final = 100_000
"""Queues of groups that are kept; clients can make up names."""

Place = tuple[str, str, int]
"""Group, topic and queue id."""
Pulled = tuple[int, int]
"""When a queue was pulled last, in seconds of the monotonic clock, which is the same in all processes; and up to where.
"""


class PulledOffsets:
    """The next offset that each group would pull of each queue. Safe to use from several threads."""

    def __init__(self, clock_seconds: Callable[[], float] = time.monotonic) -> None:
        self._clock_seconds = clock_seconds
        self._fresh: dict[Place, Pulled] = {}
        self._known: dict[tuple[str, str], dict[int, Pulled]] = {}
        self._queues = self._settled_second = 0
        self._lock = threading.Lock()
        self.of_lane: Callable[[int], Iterable[tuple[Place, Pulled]]] = _nothing
        """What the fast lane has pulled from a second on."""

    def note(self, group: str, topic: str, queue_id: int, next_offset: int) -> None:
        """Remember where a pull goes on."""
        if len(self._fresh) < QUEUES_LIMIT:
            self._fresh[group, topic, queue_id] = int(self._clock_seconds()), next_offset

    def settle(self) -> list[tuple[Place, Pulled]]:
        """Take in what was noted since the last time, here and by the lane; that, and some of what was before."""
        fresh, self._fresh = self._fresh, {}
        second, self._settled_second = self._settled_second, int(self._clock_seconds())
        noted = [*fresh.items(), *self.of_lane(second)]
        self.take(noted)
        return noted

    def take(self, noted: Iterable[tuple[Place, Pulled]]) -> None:
        """Remember what was noted somewhere; what is newer stays."""
        with self._lock:
            for (group, topic, queue_id), (second, offset) in noted:
                queues = self._known.get((group, topic), {})
                if queue_id not in queues:
                    if self._queues >= QUEUES_LIMIT:
                        continue
                    self._queues += 1
                if queues.get(queue_id, (0, 0)) <= (second, offset):
                    queues[queue_id] = second, offset
                    self._known[group, topic] = queues

    def next_offsets(self, group: str, topic: str) -> dict[int, int]:
        """Where a group would go on in each queue of a topic that it has pulled from."""
        self.settle()
        with self._lock:
            return {queue_id: offset for queue_id, (_, offset) in self._known.get((group, topic), {}).items()}


def _nothing(_second: int) -> Iterator[tuple[Place, Pulled]]:
    """Where there is no fast lane."""
    return iter(())
