"""Damaged units of a queue of batches, made good from the records that they should lead to.

A unit says the queue offsets of its batch, and where it stands says nothing, so that one wrong unit would mislead every
search among all others. The record says the same itself: its place, its size, the offset of its first message and how
many there are.
"""

from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from protocol.message_layout import locate
from protocol.properties import INNER_BASE, INNER_NUM, property_value
from storage.commit_log import CommitLog
from storage.kernels.find_message import ANY_OFFSET
from storage.kernels.record import BAD_BODY_CRC, BAD_PROPERTY_CRC, NO_SEGMENT
from storage.queues.queue_record import QueueName
from storage.queues.queue_repair import SEARCHED_BYTES, search
from storage.residency import Cold, may_wait

UnitFields = tuple[int, int, int, int, int, int, int, int]
"""Physical offset, size, tags code, store time, base offset, batch size, compacted offset, reserved."""

MOST_MENDED: Final = 100_000
"""Units of a queue that are held against their records one by one; more are left as they are."""

_LONGEST_NUMBER: Final = 19
_LARGEST: Final = (1 << 63) - 1


class Batches(Protocol):
    """The units of a queue of batches."""

    name: QueueName

    @property
    def log(self) -> CommitLog:
        """What they point into."""
        ...

    def raw_units(self, first: int) -> npt.NDArray[np.void]:
        """The units from a number on up to the last that is not all zero."""
        ...


def mend_units(
    batches: Batches, first: int, count: int, *, doubted: bool = False
) -> tuple[dict[int, UnitFields], int] | None:
    """Units by number in place of damaged ones, and how many units there are; None where nothing is doubtful.

    ``first`` is the number of the first unit that is looked at, ``count`` how many there are as a broker counts;
    ``doubted`` says that one of them is known to lead nowhere. Raises Cold on a thread that may not wait.
    """
    units = batches.raw_units(first)
    doubted = doubted or _are_doubtful(units, len(units) == count - first, batches.log.end)
    if not doubted or len(units) > MOST_MENDED:
        return None
    if not may_wait():
        raise Cold(f"damaged units of {batches.name.topic} {batches.name.queue_id}")
    raw: list[UnitFields] = units.tolist()
    told = [_tell(batches, unit) for unit in raw]
    _drop_misplaced(raw, told)
    mended: dict[int, UnitFields] = {}
    kept = 0
    for number, unit in enumerate(raw):
        good = told[number] or _find(batches, raw, told, number)
        told[number] = good
        if good is not None:
            kept = number + 1
        if good is None:
            good = _placeholder(told, number)
        if good != unit:
            mended[first + number] = good
    return {number: unit for number, unit in mended.items() if number < first + kept}, first + kept


def _are_doubtful(units: npt.NDArray[np.void], are_all_counted: bool, log_end: int) -> bool:
    """Whether a unit of a sound queue cannot stand there: offsets ascend, and batches follow each other."""
    if not are_all_counted:
        return True
    if not len(units):
        return False
    places, bases, sizes = (units[name].astype(np.int64) for name in ("physical_offset", "base_offset", "batch_size"))
    is_within = places[-1] < log_end and bool((units["size"] > 0).all())
    return not (is_within and bool((np.diff(places) > 0).all()) and bool((np.diff(bases) >= sizes[:-1]).all()))


def _tell(batches: Batches, unit: UnitFields) -> UnitFields | None:
    """The unit that the record behind a unit deserves, or None where there is no record of the queue.

    The unit itself where nothing speaks against it: its record is expired, or damaged.
    """
    if not 0 <= unit[0] < batches.log.end:
        return None
    is_lost = batches.log.check(unit[0]) in (NO_SEGMENT, BAD_BODY_CRC, BAD_PROPERTY_CRC)
    if is_lost and unit[4] >= 0 and unit[5] > 0:
        return unit
    return _unit_for(batches, unit[0], unit)


def _drop_misplaced(raw: list[UnitFields], told: list[UnitFields | None]) -> None:
    """Leave out units whose record says another base offset than they do, if it does not lie between its neighbours.

    Either the base offset is damaged, or the place: then it leads to another batch of the queue.
    """
    sure = [unit is not None and unit[4] == raw[number][4] for number, unit in enumerate(told)]
    behind = _LARGEST
    limits = [behind] * len(told)
    for number in range(len(told) - 1, -1, -1):
        limits[number] = behind
        unit = told[number]
        behind = min(behind, unit[0]) if unit is not None and sure[number] else behind
    before = -1
    for number, unit in enumerate(told):
        if unit is None:
            continue
        if not sure[number] and not before < unit[0] < limits[number]:
            told[number] = None
        else:
            before = max(before, unit[0])


def _unit_for(batches: Batches, physical_offset: int, unit: UnitFields) -> UnitFields | None:
    record = batches.log.record_at(physical_offset)
    claimed = None if record is None else batches.name.offset_in(record, physical_offset)
    if record is None or claimed is None:
        return None
    places = locate(record)
    properties = record[places.properties : places.total_size]
    base, number = _number(property_value(properties, INNER_BASE)), _number(property_value(properties, INNER_NUM))
    if base is None or number is None:
        base, number = claimed, 1
    timestamp = batches.log.store_timestamp_at(physical_offset, len(record))
    return physical_offset, len(record), unit[2], timestamp, base, number, unit[6], unit[7]


def _number(text: str | None) -> int | None:
    is_number = text is not None and text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER
    return int(text) if text is not None and is_number else None


def _find(batches: Batches, raw: list[UnitFields], told: list[UnitFields | None], number: int) -> UnitFields | None:
    """The unit of the first record of the queue between those before and behind."""
    before = told[number - 1] if number else None
    if number and before is None:
        return None
    start = batches.log.minimum if before is None else before[0] + before[1]
    behind = next((unit[0] for unit in told[number + 1 :] if unit is not None), batches.log.end)
    found = search(batches.log, batches.name, ANY_OFFSET, start, min(behind, start + SEARCHED_BYTES))
    return None if found is None else _unit_for(batches, found, raw[number])


def _placeholder(told: list[UnitFields | None], number: int) -> UnitFields:
    """A unit that points nowhere, between its neighbours."""
    before = told[number - 1] if number else None
    base = 0 if before is None else before[4] + before[5]
    behind = next((unit for unit in told[number + 1 :] if unit is not None), None)
    return -1, 1, 0, 0, base, max(behind[4] - base, 0) if behind is not None else 0, -1, 0
