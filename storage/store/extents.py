"""How far a store, its log and its queues reach: offsets, sizes, and when the first and last messages were stored."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from protocol.errors import BeingSearched, StoreError

if TYPE_CHECKING:  # what asks a server has these extents too, and starts without what opens stores
    from storage.queue.queue import Queue
    from storage.store.message_store import MessageStore
    from storage.store.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class QueueExtent:
    """A queue: the offsets of its first message and behind its last, and when these were stored (ms), or None.

    `problem` says why nothing is known of it; empty where something is.
    """

    queue_id: int
    min_offset: int = 0
    max_offset: int = 0
    first_timestamp: int | None = None
    last_timestamp: int | None = None
    problem: str = ""

    @property
    def messages(self) -> int:
        """How many messages it has: queue offsets that may be read."""
        return self.max_offset - self.min_offset


def lag_of(next_offset: int, end: int | None) -> int | None:
    """How many messages of a queue a group has not consumed that reads at an offset next; `end` is behind the last.

    None where that is not known: also where the group is ahead of the queue, files of which may be lost.
    """
    return None if end is None or next_offset > end else end - next_offset


@dataclass(frozen=True, slots=True)
class LogExtent:
    """Physical offsets of a log, and when its first and last messages were stored (ms), as far as that is known."""

    minimum: int
    end: int
    segments: int
    first_timestamp: int | None
    last_timestamp: int | None


@dataclass(frozen=True, slots=True)
class StoreExtent:
    """How far a store reaches: its log, as :class:`LogExtent`, its index files, and what is missing or damaged."""

    min_offset: int
    end_offset: int
    segments: int
    first_timestamp: int | None
    last_timestamp: int | None
    index_files: int
    index_bytes: int
    problems: tuple[str, ...]


def store_extent(store: "MessageStore") -> StoreExtent:
    """How far a store reaches. Waits for the disk."""
    log, files = log_extent(store.snapshot), store.snapshot.index.files
    return StoreExtent(
        log.minimum,
        log.end,
        log.segments,
        log.first_timestamp,
        log.last_timestamp,
        index_files=len(files),
        index_bytes=sum(each.index.file.size for each in files),
        problems=(*store.identity.ambiguities, *store.problems),
    )


def log_extent(snapshot: "Snapshot") -> LogExtent:
    """How far the log of a store reaches. Waits for the disk."""
    log = snapshot.commit_log
    first = log.first_timestamp()
    newest = max((run.last for run in snapshot.tail.runs), default=-1)
    last = max(log.store_timestamp_at(newest, 1) if newest >= 0 else 0, snapshot.index.last_update[0])
    return LogExtent(
        minimum=log.minimum,
        end=log.end,
        segments=len(log.segments),
        first_timestamp=first if first > 0 else None,
        last_timestamp=last if last > 0 else None,
    )


def queue_extents(store: "MessageStore", topic: str, queue_ids: Sequence[int]) -> list[QueueExtent]:
    """How far queues of a topic reach; what the log has to be searched for takes one pass. Waits for the disk."""
    return store.queue_holes.in_one_pass(lambda: [queue_extent(store, topic, queue_id) for queue_id in queue_ids])


def queue_extent(store: "MessageStore", topic: str, queue_id: int) -> QueueExtent:
    """How far a queue reaches; one in which no message was ever stored begins and ends at 0. Waits for the disk."""
    try:
        queue = store.queues.queue(topic, queue_id)
        if queue is not None:
            return _read(queue)
        is_gone = queue_id in store.queues.queue_ids(topic)
        return QueueExtent(queue_id, problem="its directory is gone" if is_gone else "")
    except (StoreError, BeingSearched) as error:
        return QueueExtent(queue_id, problem=str(error))


def _read(queue: "Queue") -> QueueExtent:
    first, end = queue.min_offset, queue.max_offset
    times = (queue.store_timestamp_at(first), queue.store_timestamp_at(end - 1)) if end > first else (-1, -1)
    earliest, latest = (each if each >= 0 else None for each in times)
    return QueueExtent(queue.queue_id, first, end, earliest, latest)
