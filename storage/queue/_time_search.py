"""The search of a plain queue for a time, with the same steps as a broker's search (store-format §5.5).

The times are those of the messages in the log, since units do not have them. Clocks can step back and messages expire,
so the result of a binary search depends on its steps; a client that asks a broker and then this server has to get the
same offset.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from storage.files.waiting import Lookup
from storage.queue.queue import TimeBoundary

UNKNOWN: Final = -1


@dataclass(frozen=True, slots=True)
class FileOfUnits:
    """First and last queue offset of the units in one file."""

    first: int
    last: int


TimeOf = Callable[[int], Lookup[int]]


def offset_by_timestamp(
    files: list[FileOfUnits],
    minimum: int,
    timestamp: int,
    boundary: TimeBoundary,
    time_of: TimeOf,
) -> Lookup[int]:
    """Return the queue offset for a time, not yet clamped between min and max.

    `time_of` returns the store time of a queue offset (ms; −1 if it cannot be read). Messages before `minimum` have
    left the log.
    """
    file = yield from _choose_file(files, timestamp, boundary, time_of)
    if file is None:
        return 0
    floor = max(file.first, minimum)
    if floor > file.last:
        return minimum
    if (yield from time_of(file.last)) < timestamp:
        return file.last + 1 if boundary is TimeBoundary.LOWER else file.last
    if (yield from time_of(floor)) > timestamp:
        return file.first if boundary is TimeBoundary.LOWER else 0
    return (yield from _search(floor, file, timestamp, boundary, time_of))


def _choose_file(
    files: list[FileOfUnits], timestamp: int, boundary: TimeBoundary, time_of: TimeOf
) -> Lookup[FileOfUnits | None]:
    """Return the file to search.

    LOWER: the first file that ends at the time or after it, else the last file. UPPER: the last file that starts at the
    time or before it.
    """
    if boundary is TimeBoundary.LOWER:
        for file in files[:-1]:
            if _known((yield from time_of(file.last))) >= timestamp:
                return file
        return files[-1] if files else None
    for file in reversed(files):
        if _known((yield from time_of(file.first))) <= timestamp:
            return file
    return None


def _known(time: int) -> int:
    """Return a time, or UNKNOWN for 0 and less, since a broker does not remember a time of 0 for a file either."""
    return time if time > 0 else UNKNOWN


def _search(
    floor: int,
    file: FileOfUnits,
    timestamp: int,
    boundary: TimeBoundary,
    time_of: TimeOf,
) -> Lookup[int]:
    low, high = floor, file.last
    before = after = file.first - 1
    while high >= low:
        middle = (low + high) // 2
        time = yield from time_of(middle)
        if time < 0:
            return 0
        if time == timestamp:
            return (yield from _outermost(middle, floor, file.last, timestamp, boundary, time_of))
        if time > timestamp:
            high, after = middle - 1, middle
        else:
            low, before = middle + 1, middle
    return after if boundary is TimeBoundary.LOWER else before


def _outermost(
    found: int, floor: int, ceiling: int, timestamp: int, boundary: TimeBoundary, time_of: TimeOf
) -> Lookup[int]:
    """Return the first (LOWER) or last (UPPER) of the neighbours in the file that have the same time."""
    step, limit = (-1, floor) if boundary is TimeBoundary.LOWER else (1, ceiling)
    while found != limit and (yield from time_of(found + step)) == timestamp:
        found += step
    return found
