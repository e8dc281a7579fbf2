"""Messages of a queue whose units are damaged, found in the log instead: by their own word, between their neighbours.

A unit is 20 bytes without a checksum; the record that it should lead to says topic, queue and queue offset itself. So
a unit that leads to no message of its place is looked for between the messages before and behind it, and a queue does
not end at a unit that is lost while later ones hold. Units that nothing in the log bears out stay what they are:
left over, and behind the end (store-format §6.3).
"""

from typing import Final, Protocol

from storage.commit_log import CommitLog
from storage.kernels import find_message as kernel
from storage.queues.queue_record import QueueName
from storage.residency import Cold, may_wait

NEIGHBOURS: Final = 64
"""Units before and behind a damaged one that are looked at for one that holds; a page of the disk holds 205."""

SEARCHED_BYTES: Final = 64 * 1024 * 1024
"""Bytes of log in which one message is looked for: some 30 ms."""

SEARCHED_AT_END: Final = 4 * 1024 * 1024
"""The same for one behind the last unit that holds, where units are left over in every queue after a crash."""

UNITS_BEHIND: Final = 4096
"""Units behind the first invalid one among which later ones are looked for: some pages of the disk."""

MOST_FOUND_BEHIND: Final = 64
"""Messages without a unit that are looked for one by one behind the last unit that holds."""


class Units(Protocol):
    """The units of a plain queue, as they stand in its files."""

    name: QueueName

    @property
    def log(self) -> CommitLog:
        """What they point into."""
        ...

    def unit(self, queue_offset: int) -> tuple[int, int, int] | None:
        """Physical offset, size and tags code; None outside the files."""
        ...

    def written_in(self, queue_offset: int, count: int) -> list[int]:
        """Queue offsets of the units that are not all zero, of so many from one on, ascending."""
        ...


def place_of(units: Units, queue_offset: int) -> tuple[int, int] | None:
    """Physical offset of a message and the end of its record, if its unit leads to it; None otherwise."""
    unit = units.unit(queue_offset)
    if unit is None or unit[0] < 0 or unit[1] <= 0:
        return None
    record = units.log.record_at(unit[0])
    if record is None or units.name.offset_in(record, unit[0]) != queue_offset:
        return None
    return unit[0], unit[0] + len(record)


def find_in_log(units: Units, queue_offset: int, first: int, end: int, limit: int = SEARCHED_BYTES) -> int | None:
    """Physical offset of the message of a queue offset, whose unit does not lead to it, or None.

    The queue's units are those from ``first`` up to ``end``; up to ``limit`` bytes of log are read. Raises Cold on a
    thread that may not wait.
    """
    if not may_wait():
        raise Cold(f"looking for message {queue_offset} of {units.name.topic} {units.name.queue_id} in the log")
    start, stop = _start_before(units, queue_offset, first), _stop_behind(units, queue_offset, end)
    if start is None or stop is None:
        return None
    return search(units.log, units.name, queue_offset, start, min(stop, start + limit))


def search(log: CommitLog, name: QueueName, queue_offset: int, start: int, stop: int) -> int | None:
    """Physical offset in [start, stop) of a queue's message; ``queue_offset`` ANY_OFFSET for the first of all."""
    for segment in log.segments:
        if segment.end <= start or segment.base_offset >= stop:
            continue
        base = segment.base_offset
        found = kernel.find_message(
            segment.file.address, max(start - base, 0), min(stop - base, segment.valid_length), segment.valid_length,
            base, name.topic_address, name.topic_size, name.queue_id, queue_offset,
        )  # fmt: skip
        if found >= 0:
            return base + int(found)
    return None


def end_behind(units: Units, first: int, end: int) -> int:
    """Where a queue ends whose units hold up to ``end``, where the next one is invalid, or leads nowhere.

    Behind ``end`` itself only where later units hold, or the log has the messages of those that do not.
    """
    written = units.written_in(end, UNITS_BEHIND)
    if not written:
        return end
    for queue_offset in reversed(written[-NEIGHBOURS:]):
        if place_of(units, queue_offset) is not None:
            end = queue_offset + 1
            break
    for queue_offset in range(end, min(written[-1] + 1, end + MOST_FOUND_BEHIND)):
        if find_in_log(units, queue_offset, first, queue_offset + 1, SEARCHED_AT_END) is None:
            break
        end = queue_offset + 1
    return end


def _start_before(units: Units, queue_offset: int, first: int) -> int | None:
    """Where the log goes on behind the nearest message before; None where none of many units holds."""
    for before in range(queue_offset - 1, queue_offset - NEIGHBOURS - 1, -1):
        if before < first:
            return units.log.minimum
        place = place_of(units, before)
        if place is not None:
            return place[1]
    return None


def _stop_behind(units: Units, queue_offset: int, end: int) -> int | None:
    """Where the nearest message behind starts."""
    for behind in range(queue_offset + 1, queue_offset + NEIGHBOURS + 1):
        if behind >= end:
            return units.log.end
        place = place_of(units, behind)
        if place is not None:
            return place[0]
    return None
