"""Finds the units of a queue of batches that cannot be right, so that no reader uses them.

The queue offsets of a batch are in its unit and do not follow from the unit's position, so one wrong unit can mislead
every binary search. The record has the same values: its place, its size, the offset of its first message and the number
of messages. Units that do not ascend are compared with their records, then the neighbours of each wrong one, up to
right ones. What a wrong unit should lead to lies between right ones, where no unit is: a hole as any other
(:mod:`storage.queue.queue_holes`).
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from storage.arrays import np, npt
from storage.files.waiting import Allowance, Lookup, Wait, finish, long_scan
from storage.kernels.records import BAD_BODY_CRC, BAD_PROPERTY_CRC, NO_SEGMENT
from storage.queue.queue_record import batch_in
from storage.queue.unit_standing import JudgedUnits, are_valid
from storage.ranges import Ranges, merge

UnitFields = tuple[int, int, int, int, int, int, int, int]
"""Physical offset, size, tags code, store time, base offset, batch size, compacted offset, reserved."""

PIECE: Final = 1 << 16
"""Number of units that are checked together."""

LOST: Final = (NO_SEGMENT, BAD_BODY_CRC, BAD_PROPERTY_CRC)
"""What the log says of a record that it does not have, or that is damaged: nothing speaks against its unit."""

_LARGEST: Final = (1 << 63) - 1


class Batches(JudgedUnits):
    """The units of a queue of batches."""

    __slots__ = ()

    @abstractmethod
    def raw(self, start: int, stop: int) -> Lookup[npt.NDArray[np.void]]:
        """Return the units in [start, stop), as they are in the files."""


@dataclass(frozen=True, slots=True)
class CheckedUnits:
    """The results of checking units by their numbers: all from ``first`` on were checked, ``wrong`` do not count.

    The log has the batches from unit ``live`` and queue offset ``minimum`` on. ``is_followed`` says whether damaged
    units follow the last one, whose batches it has.
    """

    first: int
    live: int = 0
    minimum: int = 0
    wrong: Ranges = ()
    is_followed: bool = False

    def next(self, number: int) -> int:
        """Return the first number from ``number`` on of a unit that counts, if there is such a unit."""
        at = bisect_right(self.wrong, (number, _LARGEST)) - 1
        return max(number, self.wrong[at][1]) if at >= 0 else number

    def before(self, number: int) -> int:
        """Return the last number before ``number`` of a unit that counts; −1 without one."""
        at = bisect_left(self.wrong, (number, 0)) - 1
        return self.wrong[at][0] - 1 if at >= 0 and number <= self.wrong[at][1] else number - 1

    def without(self, wrong: Iterable[int]) -> CheckedUnits:
        """Return the results after some more units turned out to be wrong."""
        return replace(self, wrong=merge([*self.wrong, *((number, number + 1) for number in wrong)]))


def doubtful_units(batches: Batches, start: int, stop: int, *, is_followed: bool = False) -> Lookup[set[int]]:
    """Return the numbers of units in [start, stop) that cannot all be right, since offsets ascend from batch to batch.

    A unit that points to before the log's start is doubtful too if it is not older than the log's first record, since
    its message would not have expired. While a store is followed, units that point beyond the log's end are not
    doubtful, because their records will be read soon.
    """
    found: set[int] = set()
    minimum = batches.log.minimum
    oldest = (yield from batches.log.first_timestamp_lookup()) if minimum else 0
    allowance = Allowance()
    for first in range(max(start - 1, 0), stop, PIECE):
        units = yield from batches.raw(first, min(first + PIECE + 1, stop))
        if allowance.is_used_up_by(units.nbytes):
            yield long_scan(f"all batches of {batches.name.topic}")
        places, stops, bases, sizes = (
            units[name].astype(np.int64) for name in ("physical_offset", "size", "base_offset", "batch_size")
        )
        stops += places
        early = places >= batches.log.end
        alone = ~are_valid(units)
        alone |= (stops > batches.log.end) & (not is_followed)
        if oldest > 0:
            alone |= (places < minimum) & (units["store_timestamp"] >= oldest)
        pair = (np.diff(units["store_timestamp"]) < 0) | (places[1:] < stops[:-1]) | (np.diff(bases) < sizes[:-1])
        if is_followed:
            pair &= ~early[1:]
        for odd in (np.flatnonzero(alone), np.flatnonzero(pair), np.flatnonzero(pair) + 1):
            found.update((odd + first).tolist())
    return {number for number in found if number >= start}


def without_wrong(batches: Batches, checked: CheckedUnits, doubtful: Iterable[int], stop: int) -> Lookup[CheckedUnits]:
    """Return the results after comparing doubtful units before ``stop``, and those around wrong ones, with records."""
    waiting, judged, wrong = list(doubtful), set[int](), list[int]()
    if waiting:
        yield Wait(f"damaged units of {batches.name.topic} {batches.name.queue_id}")
    while waiting:
        number = waiting.pop()
        if number in judged or not 0 <= number < stop:
            continue
        judged.add(number)
        first = max(number - 1, 0)
        near: list[UnitFields] = finish(batches.raw(first, min(number + 2, stop))).tolist()
        unit = near[number - first]
        is_expired = number < checked.live and unit[4] + unit[5] <= checked.minimum
        if not _is_right(batches, unit, near, is_expired=is_expired):
            wrong.append(number)
            waiting += [number - 1, number + 1]
    return checked.without(wrong)


def _is_right(batches: Batches, unit: UnitFields, near: list[UnitFields], *, is_expired: bool) -> bool:
    """Whether a unit has the values of its record, or possible ones where the log has no such record.

    `near` are the units beside it with itself. It must lie between those beside it, unless these speak against each
    other and its record is intact: else it is a copy of the unit of another batch.
    """
    place, size, _, timestamp, base, count, *_ = unit
    log = batches.log
    if base < 0 or count <= 0 or not 0 <= place < log.end or not any(unit[:2]):
        return False
    if place < log.minimum:
        return is_expired
    is_between = all(map(_follow, near, near[1:]))
    if log.check(place) in LOST:
        return is_between
    record = log.record_at(place)
    claimed = None if record is None else batches.name.offset_in(record, place)
    if record is None or claimed is None:
        return False
    own = len(record), log.store_timestamp_at(place, len(record)), *batch_in(record, claimed)
    return own == (size, timestamp, base, count) and (is_between or len(near) < 3 or not _follow(near[0], near[2]))


def _follow(before: UnitFields, behind: UnitFields) -> bool:
    """Whether record and batch of one unit end before those of another one."""
    return before[0] + before[1] <= behind[0] and before[4] + before[5] <= behind[4]
