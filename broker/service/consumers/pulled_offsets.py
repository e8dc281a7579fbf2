"""How far consumer groups have pulled ahead of what they commit: what is between the two is in flight.

The ordinary way notes where each pull goes on. Pulls of a fast lane are noted by compiled code, and are read off when
somebody asks (:meth:`PulledOffsets.read_also`). Other workers report to worker 0 once a second.
"""

import threading
import time
from collections.abc import Callable, Iterable
from typing import Final

from broker.service.registry_budget import Room, room_apart, size_of

QUEUES_LIMIT: Final = 100_000
"""Queues of groups that are kept; clients can make up names."""

OLD_SECONDS = 600
"""Where there is no room, queues are forgotten that nobody has pulled from for so long; looked for once a minute."""
CLEAN_SECONDS = 60

QUEUE_BYTES: Final = 384
"""Bytes that a queue of a group is counted with, besides its names."""

PlaceOfGroup = tuple[str, str, int]
"""Group, topic and queue id."""
Pulled = tuple[int, int]
"""When a queue was pulled last, in seconds of the monotonic clock, which is the same in all processes; and up to where.
"""


class PulledOffsets:
    """The next offset that each group would pull of each queue. Safe to use from several threads."""

    def __init__(self, clock_seconds: Callable[[], float] = time.monotonic, room: Room | None = None) -> None:
        self._clock_seconds = clock_seconds
        self._fresh: dict[PlaceOfGroup, Pulled] = {}
        self._known: dict[tuple[str, str], dict[int, Pulled]] = {}
        self._queues = self._settled_second = self._fresh_bytes = 0
        self._cleaned_second = -CLEAN_SECONDS
        self.room = room_apart("pulled queues") if room is None else room
        """What queues are counted in."""
        self._lock = threading.Lock()
        self._sources: list[Callable[[int], Iterable[tuple[PlaceOfGroup, Pulled]]]] = []

    def read_also(self, source: Callable[[int], Iterable[tuple[PlaceOfGroup, Pulled]]]) -> None:
        """Take in, whenever somebody asks, what `source` has pulled from a second on: a lane, which notes nothing."""
        self._sources.append(source)

    def note(self, group: str, topic: str, queue_id: int, next_offset: int) -> None:
        """Remember where a pull goes on."""
        place = group, topic, queue_id
        if place not in self._fresh:
            size = QUEUE_BYTES + size_of(group, topic)
            if len(self._fresh) >= QUEUES_LIMIT or not self.room.take(size):
                return
            self._fresh_bytes += size
        self._fresh[place] = int(self._clock_seconds()), next_offset

    def settle(self) -> list[tuple[PlaceOfGroup, Pulled]]:
        """Take in what was noted since the last time, here and by the lane; that, and some of what was before."""
        fresh, self._fresh = self._fresh, {}
        size, self._fresh_bytes = self._fresh_bytes, 0
        self.room.give_back(size)
        second, self._settled_second = self._settled_second, int(self._clock_seconds())
        noted = [*fresh.items(), *(each for source in self._sources for each in source(second))]
        self.take(noted)
        return noted

    def take(self, noted: Iterable[tuple[PlaceOfGroup, Pulled]]) -> None:
        """Remember what was noted somewhere; what is newer stays."""
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
        """Where a group would go on in each queue of a topic that it has pulled from."""
        self.settle()
        with self._lock:
            return {queue_id: offset for queue_id, (_, offset) in self._known.get((group, topic), {}).items()}
