"""Finds where a queue ends: after its last sound unit, even if units before it are damaged (:mod:`.unit_standing`).

The written part of the files ends with the last byte that is not zero (:mod:`.queue_files`). The last unit of that part
is nearly always the last sound one. If not, the units at the end are left over, or damaged. Then a sound unit is
searched backward in doubling steps, and the end of the sound units by a binary search from there. Of the units after
that end, those are judged that point into the log and beyond that unit's message. Damaged units at the very end are
repaired from the log, which is searched once after the last message.
"""

from __future__ import annotations

from typing import Final

from storage.arrays import np
from storage.files.mapped_file import LARGEST_OFFSET
from storage.files.waiting import Allowance, Lookup, Wait, long_scan
from storage.kernels.messages import ANY_OFFSET
from storage.queue._queue_repair import search
from storage.queue._unit_standing import BROKEN, EMPTY, FILLER, JudgedUnits, Standing

PATIENT_JUDGEMENTS: Final = 256
"""Units that a look-up compares with their records, one by one, before it asks for a thread that may wait."""

SEARCHED_FOR_LEFT_OVER: Final = 64 * 1024 * 1024
"""Bytes of log after a message in which the next one is searched, if its unit is probably left over: some 30 ms.

After a crash the last unit of any queue may be damaged in a way that makes it look left over; the whole log cannot be
read for each of them. `rocketlens doctor` reports such a unit.
"""

SEARCHED_FOR_BROKEN: Final = 1 << 30
"""Bytes that are searched if the unit is one that no broker writes. If the log is longer, the unit counts as one of a
lost message."""


def find_end(units: JudgedUnits, floor: int, written: int) -> Lookup[int]:
    """Return the number after the last sound unit in [floor, written).

    If there is none, the number after the last unit of an expired message; `floor` if all units there are doubtful.
    """
    low, high, step = floor, written, 1
    while high > floor:
        number = max(written - step, floor)
        if (yield from units.standing(number)) is Standing.SOUND:
            low = number + 1
            break
        high, step = number, step * 2
    while low < high:
        middle = (low + high) // 2
        if (yield from units.standing(middle)) is Standing.SOUND:
            low = middle + 1
        else:
            high = middle
    is_found = low > floor
    if low == written:
        return low
    behind = max((yield from units.physical_offset(low - 1)), FILLER) if is_found else units.log.minimum - 1
    last = yield from last_sound(units, low, written, behind)
    if last is not None:
        return last + 1
    return low if is_found else (yield from _last_expired(units, floor, written))


def last_sound(
    units: JudgedUnits, start: int, stop: int, behind: int, most: int = LARGEST_OFFSET
) -> Lookup[int | None]:
    """Return the last sound unit in [start, stop) that points beyond the physical offset `behind`, None without one.

    At most `most` units are judged.
    """
    end, judged = units.log_end, 0
    scanned, judgements = Allowance(), Allowance(PATIENT_JUDGEMENTS)
    for first, behind_last in reversed(units.blocks(start, stop)):
        places = yield from units.physical_offsets(first, behind_last)
        if scanned.is_used_up_by(places.nbytes):
            yield long_scan(f"the last message of {units.name.topic} {units.name.queue_id}")
        for number in reversed(np.flatnonzero((places > behind) & (places < end)).tolist()):
            judged += 1
            if judged > most:
                return None
            if judgements.is_used_up_by(1):
                yield long_scan(f"the last unit of {units.name.topic} {units.name.queue_id}")
            if (yield from units.standing(first + number)) is Standing.SOUND:
                return first + int(number)
    return None


def _last_expired(units: JudgedUnits, floor: int, written: int) -> Lookup[int]:
    for first, stop in reversed(units.blocks(floor, written)):
        places = yield from units.physical_offsets(first, stop)
        expired = np.flatnonzero((places >= FILLER) & (places < units.log.minimum))
        if expired.size:
            return first + int(expired[-1]) + 1
    return floor


def end_behind(
    units: JudgedUnits, first: int, end: int, written: int, *, is_followed: bool = False, is_sure: bool = False
) -> Lookup[int]:
    """Return where a queue ends whose last sound unit is before `end`, and whose units are written up to `written`.

    That is later than `end` if the log has messages of the units after it, or if one of them is a unit that no broker
    writes and the search for its message did not reach the end of the log. The queue's units begin with `first`. While
    a store is followed (`is_followed`), units that point beyond the log's end are ignored, since their records will be
    read soon. With `is_sure` the log is searched only for units that no broker writes.
    """
    largest = units.log_end - 1 if is_followed else LARGEST_OFFSET
    broken, is_doubtful = end, False
    for start, stop in reversed(units.blocks(end, written)):
        places = yield from units.physical_offsets(start, stop)
        found = np.flatnonzero(places == BROKEN)
        broken = max(broken, start + int(found[-1]) + 1) if found.size else broken
        is_doubtful |= bool(((places > FILLER) & (places <= largest)).any())
    if broken == end and (is_sure or not is_doubtful):
        return end
    name, log = units.name, units.log
    yield Wait(f"looking for the last messages of {name.topic} {name.queue_id} in the log")
    place = (yield from units.physical_offset(end - 1)) if end > first else EMPTY
    record = log.unchecked_record_at(place) if place >= log.minimum else None
    start = log.minimum if record is None else place + len(record)
    is_complete = record is not None and not name.is_light
    found_end = end
    while found_end < written:
        length = SEARCHED_FOR_BROKEN if broken > found_end else SEARCHED_FOR_LEFT_OVER
        following = message_behind(units, start, min(log.end, start + length))
        if following is None:
            is_complete &= start + length >= log.end
            break
        queue_offset, start = following
        if queue_offset >= written:
            break
        found_end = max(found_end, queue_offset + 1)
    return found_end if is_complete else max(found_end, broken)


def message_behind(units: JudgedUnits, start: int, stop: int) -> tuple[int, int] | None:
    """Return the queue offset of a queue's first message in [start, stop) of the log and its record's end, or None."""
    place = search(units.log, units.name, ANY_OFFSET, start, stop)
    record = None if place is None else units.log.record_at(place)
    queue_offset = None if record is None or place is None else units.name.offset_in(record, place)
    return None if record is None or place is None or queue_offset is None else (queue_offset, place + len(record))
