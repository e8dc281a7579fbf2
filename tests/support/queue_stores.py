"""Stores of queues for tests: opened from what `store_writer` left behind, or written unit by unit."""

from queue_runs import unit
from storage.log.commit_log import CommitLog
from storage.queue.batch_consume_queue import BatchConsumeQueue
from storage.queue.consume_queue import ConsumeQueue
from storage.queue.queue_store import QueueStore
from store_files import write_file

PRE_BLANK_UNIT = (0, 0x7FFFFFFF, 0)


def open_queues(root, directories=()):
    log = CommitLog.open(directories or [root / "commitlog"])
    return QueueStore(root, log), log


def queue_of(queues, topic="T", queue_id=0):
    queue = queues.queue(topic, queue_id)
    assert queue is not None
    return queue


def plain_queue(root, topic="T", queue_id=0):
    queue = open_queues(root)[0].queue(topic, queue_id)
    assert isinstance(queue, ConsumeQueue)
    return queue


def batch_queue(root, topic="T"):
    queue = open_queues(root)[0].queue(topic, 0)
    assert isinstance(queue, BatchConsumeQueue)
    return queue


def directory_of(root, topic="T", queue_id=0):
    return root / "consumequeue" / topic / str(queue_id)


unit_bytes = unit


def write_units(directory, start, units, file_size) -> None:
    content = b"".join(unit_bytes(*unit) for unit in units)
    write_file(directory / f"{start:020d}", file_size, {0: content})
