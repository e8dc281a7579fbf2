"""The run of units around one that leads to no message, and the part of the log in which their messages can be.

A unit is 20 bytes without a checksum; the record that it should lead to has topic, queue and queue offset itself. So
the message of a unit that does not lead to it lies between those of the nearest units that do, and a queue does not end
at a lost unit if later ones are sound. Units without any message in the log count as left over, after the end of the
queue (store-format §6.3).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

from storage.files.waiting import Lookup, finish
from storage.log.commit_log import CommitLog
from storage.queue.queue_record import QueueName

MOST_TOGETHER: Final = 1 << 22
"""Queue offsets of a run that are searched together: a file's size may claim any number of lost ones."""


class Units(Protocol):
    """The units of a plain queue, as they are in its files."""

    name: QueueName

    @property
    def log(self) -> CommitLog:
        """The log that the units point into."""
        ...

    def unit_lookup(self, queue_offset: int) -> Lookup[tuple[int, int, int] | None]:
        """Return physical offset, size and tags code of a unit; None outside of the files."""
        ...

    def plausible(self, first: int, stop: int, *, is_backward: bool) -> Iterator[int]:
        """Yield the queue offsets in [first, stop) of units that point into the log, ascending or descending."""
        ...


class DamagedRun(NamedTuple):
    """A run of units none of which leads to its message, and the part of the log in which the messages can be.

    ``first`` and ``stop`` are queue offsets, ``start`` and ``end`` physical offsets. ``is_open`` says that there is no
    sound unit after the run, so that ``end`` is the end of the log.
    """

    first: int
    stop: int
    start: int
    end: int
    is_open: bool


def claim_of(units: Units, queue_offset: int) -> Lookup[tuple[int, int, int] | None]:
    """Return queue offset, physical offset and end of the message that a unit leads to, None if there is none."""
    unit = yield from units.unit_lookup(queue_offset)
    if unit is None or unit[0] < 0 or unit[1] <= 0:
        return None
    record = yield from units.log.record_at_lookup(unit[0])
    claimed = None if record is None else units.name.offset_in(record, unit[0])
    return None if record is None or claimed is None else (claimed, unit[0], unit[0] + len(record))


def place_of(units: Units, queue_offset: int) -> Lookup[tuple[int, int] | None]:
    """Return the physical offset of a message and the end of its record if its unit leads to it, else None."""
    claim = yield from claim_of(units, queue_offset)
    return None if claim is None or claim[0] != queue_offset else claim[1:]


def around(units: Units, queue_offset: int, first: int, end: int) -> DamagedRun:
    """Return the run around a unit that does not lead to its message, in a queue of units from ``first`` to ``end``.

    The run also ends at a unit that leads to another message of the queue, if that message is on the same side of it.
    The nearest such units are found at any distance; waits for the disk. Of a very long run it is the part around the
    unit.
    """
    start, stop_at = units.log.minimum, units.log.end
    behind = None
    for before in units.plausible(first, queue_offset, is_backward=True):
        claim = finish(claim_of(units, before))
        if claim is not None and claim[0] <= before:
            first, start = before + 1, claim[2]
            break
    for behind in units.plausible(queue_offset + 1, end, is_backward=False):
        claim = finish(claim_of(units, behind))
        if claim is not None and claim[0] >= behind:
            return _part_of(DamagedRun(first, behind, start, claim[1], False), queue_offset)
    return _part_of(DamagedRun(first, end, start, stop_at, True), queue_offset)


def _part_of(run: DamagedRun, queue_offset: int) -> DamagedRun:
    """Return the run, or of a long one the part with a queue offset; parts are the same whichever they are asked by."""
    first = max(run.first, queue_offset - queue_offset % MOST_TOGETHER)
    stop = min(run.stop, queue_offset - queue_offset % MOST_TOGETHER + MOST_TOGETHER)
    if run.stop - run.first <= MOST_TOGETHER or (first, stop) == run[:2]:
        return run
    return run._replace(first=first, stop=stop, is_open=run.is_open and stop == run.stop)
