"""The offsets up to which consumer groups have pulled; messages between the committed offset and this are in flight.

The pull processor notes the next offset of each pull. Pulls that a fast lane answers are noted by compiled code, and
are read from it when the offsets are asked for (:meth:`PulledOffsets.read_also`). Other workers report to worker 0 once
a second.
"""

import threading
import time
from collections.abc import Callable, Iterable
from typing import Final

from broker.service.registry_budget import Room, room_apart, size_of

QUEUES_LIMIT: Final = 100_000
"""Most queues of groups that are kept, since clients can make up names."""

OLD_SECONDS = 600
"""Seconds without a pull after which a queue is dropped when the budget is spent; checked once a minute at most."""
CLEAN_SECONDS = 60

QUEUE_BYTES: Final = 384
"""Bytes that a queue of a group is counted with, besides its names."""

PlaceOfGroup = tuple[str, str, int]
"""Group, topic and queue id."""
Pulled = tuple[int, int]
"""The time of a queue's last pull in seconds of the monotonic clock, which all processes share; and the next offset."""


class PulledOffsets:
    """The next offset that each group would pull from each queue. Safe to use from several threads."""

    def __init__(self, clock_seconds: Callable[[], float] = time.monotonic, room: Room | None = None) -> None:
        self._clock_seconds = clock_seconds
        self._fresh: dict[PlaceOfGroup, Pulled] = {}
        self._known: dict[tuple[str, str], dict[int, Pulled]] = {}
        self._queues = self._settled_second = self._fresh_bytes = 0
        self._cleaned_second = -CLEAN_SECONDS
        self.room = room_apart("pulled queues") if room is None else room
        """The part of the budget in which queues are counted."""
        self._lock = threading.Lock()
        self._sources: list[Callable[[int], Iterable[tuple[PlaceOfGroup, Pulled]]]] = []

    def read_also(self, source: Callable[[int], Iterable[tuple[PlaceOfGroup, Pulled]]]) -> None:
        """Have `source` called for the pulls since a given second whenever offsets are asked for: a lane notes none."""
        self._sources.append(source)

    def note(self, group: str, topic: str, queue_id: int, next_offset: int) -> None:
        """Remember the next offset of a pull."""
        place = group, topic, queue_id
        if place not in self._fresh:
            size = QUEUE_BYTES + size_of(group, topic)
            if len(self._fresh) >= QUEUES_LIMIT or not self.room.take(size):
                return
            self._fresh_bytes += size
        self._fresh[place] = int(self._clock_seconds()), next_offset

    def settle(self) -> list[tuple[PlaceOfGroup, Pulled]]:
        """Take in the pulls noted here and by the lane since the last call; return them, and some older ones."""
        fresh, self._fresh = self._fresh, {}
        size, self._fresh_bytes = self._fresh_bytes, 0
        self.room.give_back(size)
        second, self._settled_second = self._settled_second, int(self._clock_seconds())
        noted = [*fresh.items(), *(each for source in self._sources for each in source(second))]
        self.take(noted)
        return noted

    def take(self, noted: Iterable[tuple[PlaceOfGroup, Pulled]]) -> None:
        """Remember pulls that were noted elsewhere; newer ones are kept."""
        with self._lock:
            for (group, topic, queue_id), (second, offset) in noted:
                queues = self._known.get((group, topic), {})
                if queue_id not in queues:
                    if self._queues >= QUEUES_LIMIT or not self._has_room(QUEUE_BYTES + size_of(group, topic)):
                        continue
                    self._queues += 1
                    queues = self._known.get((group, topic), {})
                if queues.get(queue_id, (0, 0)) <= (second, offset):
                    queues[queue_id] = second, offset
                    self._known[group, topic] = queues

    def _has_room(self, size: int) -> bool:
        if self.room.take(size):
            return True
        now = int(self._clock_seconds())
        if now - self._cleaned_second < CLEAN_SECONDS:
            return False
        self._cleaned_second = now
        for (group, topic), queues in list(self._known.items()):
            for queue_id in [queue_id for queue_id, (second, _) in queues.items() if now - second > OLD_SECONDS]:
                del queues[queue_id]
                self._queues -= 1
                self.room.give_back(QUEUE_BYTES + size_of(group, topic))
            if not queues:
                del self._known[group, topic]
        return self.room.take(size)

    def next_offsets(self, group: str, topic: str) -> dict[int, int]:
        """The next offset that a group would pull, by queue id, of those queues of a topic that it has pulled from."""
        self.settle()
        with self._lock:
            return {queue_id: offset for queue_id, (_, offset) in self._known.get((group, topic), {}).items()}
