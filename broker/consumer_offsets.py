"""How far consumer groups have come: what the store recorded, and over it what live groups committed to this server.

Nothing is written to the store. Offsets are the *next* to consume, as everywhere in RocketMQ (store-format §9.1).
"""

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from storage.message_store import MessageStore

QUEUES_LIMIT = 1_000_000
"""Queues with a committed offset of their own that are kept; further ones are not taken in."""


class ConsumerOffsets:
    """Committed offsets by group, topic and queue. Safe to use from several threads."""

    def __init__(self, store: "MessageStore") -> None:
        self._store = store
        self._lock = threading.Lock()
        self._committed: dict[tuple[str, str], dict[int, int]] = {}
        self._queues = 0

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Remember an offset until the server ends; negative ones say nothing (remoting-protocol §3.2)."""
        if offset < 0:
            return
        with self._lock:
            queues = self._committed.setdefault((group, topic), {})
            if queue_id not in queues:
                if self._queues >= QUEUES_LIMIT:
                    return
                self._queues += 1
            queues[queue_id] = offset

    def committed(self, group: str, topic: str, queue_id: int) -> int | None:
        """The next offset of a group in a queue, None when it never committed one."""
        own = self._committed.get((group, topic), {}).get(queue_id)
        return own if own is not None else _offset_in(self._store.config.consumer_offsets, group, topic, queue_id)

    def pulled(self, group: str, topic: str, queue_id: int) -> int:
        """How far a group had pulled ahead when the store was written, −1 when that is not recorded."""
        pulled = _offset_in(self._store.config.pull_offsets, group, topic, queue_id)
        return -1 if pulled is None else pulled

    def topics_of(self, group: str) -> list[str]:
        """The topics in which a group has committed an offset, sorted."""
        return sorted(topic for name, topic in self._pairs() if name == group)

    def groups_of(self, topic: str) -> list[str]:
        """The groups that have committed an offset in a topic, sorted."""
        return sorted(group for group, name in self._pairs() if name == topic)

    def offsets_of(self, group: str, topic: str) -> dict[int, int]:
        """All committed offsets of a group in a topic by queue id."""
        recorded = self._store.config.consumer_offsets.get((group, topic), {})
        return {**recorded, **self._committed.get((group, topic), {})}

    def everything(self) -> dict[tuple[str, str], dict[int, int]]:
        """All committed offsets by (group, topic) and queue id."""
        return {pair: self.offsets_of(*pair) for pair in sorted(self._pairs())}

    def _pairs(self) -> set[tuple[str, str]]:
        with self._lock:
            return set(self._store.config.consumer_offsets) | set(self._committed)


def _offset_in(table: Mapping[tuple[str, str], Mapping[int, int]], group: str, topic: str, queue_id: int) -> int | None:
    return table.get((group, topic), {}).get(queue_id)
