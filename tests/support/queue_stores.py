"""Stores of queues for tests: opened from what `store_writer` left behind, or written unit by unit."""

from collections.abc import Sequence
from pathlib import Path

from queue_runs import unit
from storage.log.commit_log import CommitLog
from storage.queue.batch_consume_queue import BatchConsumeQueue
from storage.queue.consume_queue import ConsumeQueue
from storage.queue.queue import Queue
from storage.queue.queue_store import QueueStore
from store_files import write_file

PRE_BLANK_UNIT = (0, 0x7FFFFFFF, 0)


def open_queues(root: Path, directories: Sequence[Path] = ()) -> tuple[QueueStore, CommitLog]:
    """The queues of a store and the log they point into."""
    log = CommitLog.open(directories or [root / "commitlog"])
    return QueueStore(root, log), log


def queue_of(queues: QueueStore, topic: str = "T", queue_id: int = 0) -> Queue:
    queue = queues.queue(topic, queue_id)
    assert queue is not None
    return queue


def plain_queue(root: Path, topic: str = "T", queue_id: int = 0) -> ConsumeQueue:
    queue = open_queues(root)[0].queue(topic, queue_id)
    assert isinstance(queue, ConsumeQueue)
    return queue


def batch_queue(root: Path, topic: str = "T") -> BatchConsumeQueue:
    queue = open_queues(root)[0].queue(topic, 0)
    assert isinstance(queue, BatchConsumeQueue)
    return queue


def directory_of(root: Path, topic: str = "T", queue_id: int = 0) -> Path:
    return root / "consumequeue" / topic / str(queue_id)


unit_bytes = unit


def write_units(directory: Path, start: int, units: Sequence[tuple[int, int, int]], file_size: int) -> None:
    """One queue file, named by its byte offset `start`, with units from its beginning and zeros behind them."""
    content = b"".join(unit_bytes(*unit) for unit in units)
    write_file(directory / f"{start:020d}", file_size, {0: content})
