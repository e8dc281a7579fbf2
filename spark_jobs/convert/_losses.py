"""Losses by the damaged ranges of a log: the queue units that lead there, and the groups that had not consumed them.

A record that is damaged says nothing that can be trusted; the unit of a queue that points to it says topic, queue and
queue offset. Consumers that have committed a smaller offset than that have not got the message.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from protocol.errors import StoreError
from spark_jobs.convert._first_shown import MOST_SHOWN, first_shown
from storage.amounts import count_text, counted
from storage.build.existing_queue import ReadableLog
from storage.files.mapped_file import list_segment_files
from storage.kernels.records import MINIMUM_SIZE
from storage.layout.store_config import StoreConfig
from storage.layout.store_layout import BATCH_CONSUME_QUEUE, CONSUME_QUEUE
from storage.log.log_window import LONGEST_RECORD
from storage.queue.batch_consume_queue import UNIT_DTYPE as BATCH_UNIT_DTYPE
from storage.queue.consume_queue import UNIT_DTYPE
from storage.queue.queue_files import read_units
from storage.queue.queue_store import queue_directories

MOST_LISTED: Final = 10_000
"""Runs of lost messages that are listed; more are counted."""


class LostMessages(msgspec.Struct, frozen=True, rename="camel"):
    """Messages of one queue that follow one another and are lost: queue offsets, and where the first one was.

    `is_behind`: they were behind the log's end, and so are lost, or the log was once cut there.
    """

    topic: str
    queue_id: int
    first: int
    count: int
    physical_offset: int
    is_behind: bool = False

    def sentence(self) -> str:
        """For a person."""
        last = f" to {self.first + self.count - 1}" if self.count > 1 else ""
        if self.is_behind:
            point = "point" if self.count > 1 else "points"
            return (
                f"{counted(self.count, 'unit')} of {self.topic} queue {self.queue_id}, {self.first}{last}, {point} "
                f"behind the log's end, from physical offset {self.physical_offset} on: lost, or the log was once cut"
            )
        what = "message" if self.count == 1 else f"{count_text(self.count)} messages"
        place = f"from physical offset {self.physical_offset} on"
        return f"{what} {self.first}{last} of {self.topic} queue {self.queue_id}, {place}"


class NotConsumed(msgspec.Struct, frozen=True, rename="camel"):
    """How many lost messages of a topic a group has not consumed, by the offsets that it has committed."""

    topic: str
    group: str
    count: int


class Losses(msgspec.Struct, frozen=True, rename="camel"):
    """All that is known by name; `messages` counts those that are not listed too."""

    messages: int
    listed: tuple[LostMessages, ...]
    not_consumed: tuple[NotConsumed, ...]

    def sentences(self) -> Iterator[str]:
        """For a person; of many the first."""
        left = self.messages - sum(each.count for each in self.listed[:MOST_SHOWN])
        yield from first_shown("lost", [each.sentence() for each in self.listed[:MOST_SHOWN]], left, "message")
        groups = [
            f"group {each.group} had not consumed {counted(each.count, 'message')} of them in {each.topic}"
            for each in self.not_consumed
        ]
        yield from first_shown("lost", groups, len(groups) - MOST_SHOWN, "pair of topic and group")


def find_losses(root: Path, log: ReadableLog, start: int | None = None) -> Losses:
    """Name what the queues of a store have in the lost ranges of its log, and what behind its end. Waits for the disk.

    `start`: the physical offset of the first file of the log that there is, which may be empty.
    """
    front = log.minimum if start is None else min(start, log.minimum)
    lost = ((front, log.minimum), *log.lost) if front < log.minimum else log.lost
    known = ReadableLog(front, log.end, lost)
    found: list[LostMessages] = []
    for tree in (CONSUME_QUEUE, BATCH_CONSUME_QUEUE):
        for directory in queue_directories(root / tree):
            found += _lost_of(directory, known, is_batch=tree == BATCH_CONSUME_QUEUE)
    offsets = StoreConfig.load(root).consumer_offsets
    return Losses(sum(each.count for each in found), tuple(found[:MOST_LISTED]), tuple(_not_consumed(found, offsets)))


def _lost_of(directory: Path, log: ReadableLog, *, is_batch: bool) -> Iterator[LostMessages]:
    """Runs of lost messages of one queue; what cannot be read of it names none."""
    topic, queue_id = directory.parent.name, int(directory.name)
    dtype = np.dtype(BATCH_UNIT_DTYPE if is_batch else UNIT_DTYPE)
    try:
        files = list_segment_files(directory)[0]
        for start, path in files:
            for position, units in read_units(path, dtype):
                offsets = units["physical_offset"].astype(np.int64)
                is_unit = (offsets >= 0) & (units["size"] >= MINIMUM_SIZE) & (units["size"] <= LONGEST_RECORD)
                is_behind = is_unit & (offsets >= log.end) & (np.diff(offsets, prepend=-1) > 0)
                is_lost = is_behind | ((offsets >= 0) & (units["size"] > 0) & log.are_lost(offsets))
                numbers = (
                    units["base_offset"] if is_batch else (start + position) // dtype.itemsize + np.arange(len(units))
                )
                counts = units["batch_size"] if is_batch else np.ones(len(units), np.int64)
                at = np.flatnonzero(is_lost)
                ends = (np.diff(at) > 1) | (np.diff(is_behind[at].astype(np.int8)) != 0)
                for run in np.split(at, np.flatnonzero(ends) + 1) if at.size else ():
                    first, total = int(numbers[run[0]]), int(counts[run].astype(np.int64).sum())
                    behind = bool(is_behind[run[0]])
                    yield LostMessages(topic, queue_id, first, total, int(offsets[run[0]]), behind)
    except (StoreError, OSError):
        return


def _not_consumed(
    found: Sequence[LostMessages], offsets: Mapping[tuple[str, str], Mapping[int, int]]
) -> Iterator[NotConsumed]:
    by_topic: dict[str, list[LostMessages]] = {}
    for each in found:
        by_topic.setdefault(each.topic, []).append(each)
    for (group, topic), committed in sorted(offsets.items()):
        count = sum(
            each.first + each.count - max(each.first, min(committed[each.queue_id], each.first + each.count))
            for each in by_topic.get(topic, ())
            if each.queue_id in committed
        )
        if count:
            yield NotConsumed(topic, group, count)
