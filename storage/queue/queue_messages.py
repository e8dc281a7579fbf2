"""Reads single messages of a queue, or those of a part one after the other, as a consumer would get them."""

from collections.abc import Iterator

from storage.files.waiting import finish
from storage.queue.queue import ConsumeQueueEntry, Queue, SourceQueue
from storage.queue.unit_reader import AT_ONCE, LOST, Missing, UnitReader, entries_between


def entry_of(queue: Queue, queue_offset: int) -> ConsumeQueueEntry | None:
    """Return the entry that leads to a message, be it damaged; None where the queue has none, or the log lacks it too.

    Waits for the disk. Raises BeingSearched while the log is searched.
    """
    source = queue.source_at(queue_offset) if queue.min_offset <= queue_offset else None
    entry = None if source is None else next(entries_between(source, queue_offset, queue_offset + 1), None)
    return None if entry is None or entry.size == LOST else entry


def records_between(queue: SourceQueue, first: int, stop: int) -> Iterator[tuple[int, memoryview]]:
    """Yield physical offset and record of each intact message of queue offsets in [first, stop), in order.

    Where units are damaged or lost, the log is searched. Waits for the disk. Raises BeingSearched meanwhile.
    """
    reader, first = UnitReader(queue), max(first, queue.min_offset, 0)
    stop = min(stop, queue.max_offset)
    while first < stop:
        unit = finish(reader.unit_at(first, min(first + AT_ONCE, stop)))
        if unit is not None:
            record, unit = finish(reader.message(unit, None, is_checked=True))
            first = unit[1]
            if not isinstance(record, Missing):
                yield unit[2], record
