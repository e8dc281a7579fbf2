"""Reads the messages of a part of a queue one after the other, as a consumer would get them."""

from collections.abc import Iterator

from storage.files.waiting import finish
from storage.queue.queue import SourceQueue
from storage.queue.unit_reader import AT_ONCE, Missing, UnitReader


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
