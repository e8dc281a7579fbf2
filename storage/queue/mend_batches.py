"""Repair of damaged units of a queue of batches, from the records that they should lead to.

The queue offsets of a batch are in its unit and do not follow from the unit's position, so one wrong unit can mislead
every binary search. The record has the same values: its place, its size, the offset of its first message and the number
of messages. Units that do not ascend are checked, then the neighbours of each damaged one, up to sound ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from storage.arrays import np, npt
from storage.files.waiting import Allowance, Lookup, finish, long_scan
from storage.kernels.messages import ANY_OFFSET
from storage.kernels.records import BAD_BODY_CRC, BAD_PROPERTY_CRC, NO_SEGMENT
from storage.log.commit_log import CommitLog
from storage.queue.queue_end import SEARCHED_FOR_BROKEN, SEARCHED_FOR_LEFT_OVER, message_behind
from storage.queue.queue_record import QueueName, batch_in
from storage.queue.queue_repair import search
from storage.queue.unit_standing import JudgedUnits

UnitFields = tuple[int, int, int, int, int, int, int, int]
"""Physical offset, size, tags code, store time, base offset, batch size, compacted offset, reserved."""

PIECE: Final = 1 << 16
"""Number of units that are checked together."""

_LARGEST: Final = (1 << 63) - 1


class Batches(JudgedUnits, Protocol):
    """The units of a queue of batches."""

    def raw(self, start: int, stop: int) -> Lookup[npt.NDArray[np.void]]:
        """Return the units in [start, stop), as they are in the files."""
        ...


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
        places, bases, sizes = (
            units[name].astype(np.int64) for name in ("physical_offset", "base_offset", "batch_size")
        )
        early = places >= batches.log_end
        alone = (places < 0) | (units["size"] <= 0) | (bases < 0) | (sizes <= 0)
        alone |= early & (not is_followed)
        if oldest > 0:
            alone |= (places < minimum) & (units["store_timestamp"] >= oldest)
        pair = (np.diff(places) <= 0) | (np.diff(bases) < sizes[:-1])
        if is_followed:
            pair &= ~early[1:]
        for odd in (np.flatnonzero(alone), np.flatnonzero(pair), np.flatnonzero(pair) + 1):
            found.update((odd + first).tolist())
    return {number for number in found if number >= start}


def mend_units(batches: Batches, doubted: Iterable[int], count: int, written: int) -> tuple[dict[int, UnitFields], int]:
    """Return repaired units by number, of the `doubted` ones and damaged ones around them, and the new number of units.

    ``count`` is the number of units up to the last sound one, ``written`` that of units that are written in the files.
    Waits for the disk.
    """
    mended: dict[int, UnitFields] = {}
    for start, raw, recorded in _windows(batches, doubted, written):
        first = _mend_front(batches, _believe(batches, start, written, raw, recorded), raw, recorded)
        good = _make_good(batches, first, raw, recorded)
        if first + len(raw) > count:
            kept = max((number + 1 for number, unit in enumerate(recorded) if unit is not None), default=0)
            count = max(count, first + kept)
        mended |= {first + number: unit for number, unit in enumerate(good) if unit != raw[number]}
    return {number: unit for number, unit in mended.items() if number < count}, count


def _raw(batches: Batches, start: int, stop: int) -> list[UnitFields]:
    units: list[UnitFields] = finish(batches.raw(start, stop)).tolist()
    return units


def _believe(
    batches: Batches, first: int, written: int, raw: list[UnitFields], recorded: list[UnitFields | None]
) -> int:
    """Remove units that cannot be right, and widen the window while one at its edge is; return its first number."""
    step = 1
    _drop_misplaced(batches, raw, recorded)
    while (first and recorded[0] is None) or (first + len(raw) < written and recorded[-1] is None):
        stop = first + len(raw)
        start = max(first - step, 0) if recorded[0] is None else first
        end = min(stop + step, written) if recorded[-1] is None else stop
        before, behind = _raw(batches, start, first), _raw(batches, stop, end)
        raw[:] = [*before, *raw, *behind]
        recorded[:] = [
            *(_recorded_unit(batches, unit) for unit in before),
            *recorded,
            *(_recorded_unit(batches, unit) for unit in behind),
        ]
        first, step = start, step * 2
        _drop_misplaced(batches, raw, recorded)
    return first


def _drop_live(batches: Batches, recorded: list[UnitFields | None]) -> None:
    """Remove units that seem to be of expired batches, if the log has these batches or earlier ones."""
    minimum = batches.log.minimum
    expired = [at for at, unit in enumerate(recorded) if unit is not None and unit[0] < minimum]
    if expired:
        following = next((unit[0] for unit in recorded if unit is not None and unit[0] >= minimum), batches.log.end)
        found = message_behind(batches, minimum, min(following, minimum + SEARCHED_FOR_BROKEN))
        for at in expired if found is not None else []:
            unit = recorded[at]
            if unit is not None and found is not None and unit[4] + unit[5] > found[0]:
                recorded[at] = None


def _mend_front(batches: Batches, first: int, raw: list[UnitFields], recorded: list[UnitFields | None]) -> int:
    """Have units lead to the batches that the log has before the first certain one; return the window's first number.

    Damaged units there may point to before the log's start, as those of expired batches do. The last of the units
    before the certain one are replaced by those of these batches.
    """
    log = batches.log
    count = next((at for at, unit in enumerate(recorded) if unit is not None and unit[0] >= log.minimum), 0)
    sure = recorded[count]
    is_front = not first or finish(batches.physical_offset(first - 1)) < log.minimum
    if not count or sure is None or not is_front or sure[0] - log.minimum > SEARCHED_FOR_BROKEN:
        return first
    found = list(_units_of_log(batches, log.minimum, sure[0]))
    more = min(max(len(found) - count, 0), first)
    raw[:0] = _raw(batches, first - more, first)
    recorded[:0] = [None] * more
    count += more
    for at, unit in zip(range(count - 1, -1, -1), reversed(found), strict=False):
        recorded[at] = unit[:2] + raw[at][2:3] + unit[3:6] + raw[at][6:]
    _expire(recorded, count - len(found), log.minimum)
    return first - more


def _units_of_log(batches: Batches, start: int, stop: int) -> Iterator[UnitFields]:
    """Yield a unit for each batch of the queue in [start, stop) of the log, with the values that its record has."""
    while (place := search(batches.log, batches.name, ANY_OFFSET, start, stop)) is not None:
        unit = unit_of_record(batches.log, batches.name, place, (0,) * 8)
        if unit is None:
            return
        yield unit
        start = place + unit[1]


def _expire(recorded: list[UnitFields | None], count: int, minimum: int) -> None:
    """Make the first ``count`` units, whose batches have left the log, ascend to those that the log has."""
    live = recorded[count] if 0 < count < len(recorded) else None
    if live is None or not minimum:
        return
    base = live[4]
    for number in range(count - 1, -1, -1):
        unit = recorded[number]
        if unit is None or unit[4] + unit[5] > base:
            unit = recorded[number] = (0, 1, 0, 0, base, 0, -1, 0)
        base = unit[4]


def _make_good(
    batches: Batches, first: int, raw: list[UnitFields], recorded: list[UnitFields | None]
) -> list[UnitFields]:
    """Return the units of a window, damaged ones from the log; units that were found are put into `recorded`."""
    before: UnitFields | None = _raw(batches, first - 1, first)[0] if first else None
    behinds: list[UnitFields | None] = [None] * len(recorded)
    following: UnitFields | None = None
    for number in range(len(recorded) - 1, -1, -1):
        behinds[number] = following
        following = recorded[number] or following
    good: list[UnitFields] = []
    is_known = True
    for number, unit in enumerate(raw):
        is_first = is_known
        if recorded[number] is None and is_known:
            recorded[number] = _find(batches, unit, before, behinds[number])
        is_known = recorded[number] is not None
        before = recorded[number] or before
        good.append(recorded[number] or _placeholder(before, behinds[number], is_first=is_first))
    return good


def _windows(
    batches: Batches, doubted: Iterable[int], written: int
) -> Iterator[tuple[int, list[UnitFields], list[UnitFields | None]]]:
    """Yield runs of units around damaged ones up to sound ones: first number, units, and the units by their records."""
    recorded: dict[int, UnitFields | None] = {}
    raw: dict[int, UnitFields] = {}
    waiting = [near for number in doubted for near in (number - 1, number, number + 1)]
    while waiting:
        number = waiting.pop()
        if number in recorded or not 0 <= number < written:
            continue
        (raw[number],) = _raw(batches, number, number + 1)
        recorded[number] = _recorded_unit(batches, raw[number])
        if recorded[number] != raw[number]:
            waiting += [number - 1, number + 1]
    numbers = sorted(recorded)
    for run in np.split(np.array(numbers, np.int64), np.flatnonzero(np.diff(numbers) > 1) + 1 if numbers else []):
        if run.size:
            each = run.tolist()
            yield each[0], [raw[number] for number in each], [recorded[number] for number in each]


def _recorded_unit(batches: Batches, unit: UnitFields) -> UnitFields | None:
    """Return the unit that the record at a unit's place should have, None if that is no record of the queue.

    If the record is expired or damaged and the unit is possible, return the unit itself.
    """
    if not 0 <= unit[0] < batches.log.end or not any(unit[:2]):
        return None
    is_lost = batches.log.check(unit[0]) in (NO_SEGMENT, BAD_BODY_CRC, BAD_PROPERTY_CRC)
    if is_lost and unit[4] >= 0 and unit[5] > 0:
        return unit
    return unit_of_record(batches.log, batches.name, unit[0], unit)


def _drop_misplaced(batches: Batches, raw: list[UnitFields], recorded: list[UnitFields | None]) -> None:
    """Remove units whose record has another base offset, and units that cannot be those of expired batches.

    Either the base offset is damaged, or the place, which then leads to another batch of the queue. In both cases the
    log has the right values.
    """
    for number, unit in enumerate(recorded):
        if unit is not None and unit[4] != raw[number][4]:
            recorded[number] = None
    _drop_unbelieved(recorded, batches.log.minimum)
    if recorded != raw:
        _drop_live(batches, recorded)


def _drop_unbelieved(recorded: list[UnitFields | None], minimum: int) -> None:
    """Remove units that seem to be of expired batches, but not by the places or offsets of the units around them."""
    is_behind_live = False
    for at, unit in enumerate(recorded):
        if unit is not None and unit[0] < minimum and is_behind_live:
            recorded[at] = None
        is_behind_live |= unit is not None and unit[0] >= minimum
    behind = _LARGEST
    for at in range(len(recorded) - 1, -1, -1):
        unit = recorded[at]
        if unit is None:
            continue
        if unit[0] >= minimum:
            behind = min(behind, unit[4])
        elif unit[4] + unit[5] > behind:
            recorded[at] = None


def unit_of_record(log: CommitLog, name: QueueName, physical_offset: int, unit: UnitFields) -> UnitFields | None:
    """Return the unit for the intact record at a physical offset; None if there is none of the queue.

    Fields that do not come from the record are copied from `unit`.
    """
    record = log.record_at(physical_offset)
    claimed = None if record is None else name.offset_in(record, physical_offset)
    if record is None or claimed is None:
        return None
    base, number = batch_in(record, claimed)
    timestamp = log.store_timestamp_at(physical_offset, len(record))
    return physical_offset, len(record), unit[2], timestamp, base, number, unit[6], unit[7]


def _find(
    batches: Batches, unit: UnitFields, before: UnitFields | None, behind: UnitFields | None
) -> UnitFields | None:
    """Return a unit that replaces a damaged one: that of the queue's first record between the two sound neighbours."""
    log = batches.log
    start = log.minimum if before is None else max(before[0] + before[1], log.minimum)
    if behind is not None:
        stop = behind[0]
    else:
        is_broken = unit[0] < 0 or unit[1] <= 0
        stop = min(log.end, start + (SEARCHED_FOR_BROKEN if is_broken else SEARCHED_FOR_LEFT_OVER))
    found = search(log, batches.name, ANY_OFFSET, start, stop)
    return None if found is None else unit_of_record(log, batches.name, found, unit)


def _placeholder(before: UnitFields | None, behind: UnitFields | None, *, is_first: bool) -> UnitFields:
    """Return a unit without a physical offset, between its neighbours; the first of several has all lost messages."""
    base = 0 if before is None else before[4] + before[5]
    if behind is None:
        return -1, 1, 0, 0, base, 0, -1, 0
    return -1, 1, 0, 0, base if is_first else behind[4], max(behind[4] - base, 0) if is_first else 0, -1, 0
