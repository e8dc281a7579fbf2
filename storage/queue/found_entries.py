"""The entries of a queue with damaged ones replaced: those of units that lead to no message are made from the log."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from protocol.java_hash import java_hash
from protocol.message_layout import locate
from protocol.properties import TAGS, property_value
from storage.log.commit_log import CommitLog
from storage.queue.queue import ConsumeQueueEntry, Queue

AT_ONCE: Final = 64
"""Number of units that are read together."""

LOST: Final = 0
"""The size in an entry for messages that are damaged in the queue and not in the log; its physical offset is none."""


def tags_code_of(record: memoryview) -> int:
    """Return the tags code that the unit of an intact record should have."""
    places = locate(record)
    tag = property_value(record[places.properties : places.total_size], TAGS)
    return java_hash(tag) if tag else 0


def found_entries(queue: Queue, log: CommitLog, first: int, stop: int) -> Iterator[ConsumeQueueEntry]:
    """Yield the entries of queue offsets in [first, stop), in order; each lost run gets one entry of size LOST.

    Waits for the disk. Raises BeingSearched while the log is being searched.
    """
    while first < stop:
        entries = queue.entries(first, min(AT_ONCE, stop - first))
        for entry in entries:
            if entry.queue_offset > first:
                yield from _in_hole(queue, log, first, entry.queue_offset)
            first = entry.queue_offset + entry.batch_size
            if queue.message_in_log(entry.queue_offset) == entry.physical_offset:
                yield entry
            elif queue.is_doubtful(entry.queue_offset):
                yield from _in_hole(queue, log, entry.queue_offset, first)
            else:
                yield entry
        if not entries:
            hole = queue.hole_at(first)
            yield from _in_hole(queue, log, first, min(stop, hole.stop))
            first = hole.stop


def _in_hole(queue: Queue, log: CommitLog, first: int, stop: int) -> Iterator[ConsumeQueueEntry]:
    while first < stop:
        hole = queue.hole_at(first)
        after = min(hole.after(first), stop) if hole.place(first) is None else hole.after(first)
        place = hole.place(first)
        record = None if place is None else log.record_at(place)
        entry = ConsumeQueueEntry(first, -1, LOST, 0, None, after - first)
        if record is not None and place is not None:
            entry = replace(entry, physical_offset=place, size=len(record), tags_code=tags_code_of(record))
        yield entry
        first = after
