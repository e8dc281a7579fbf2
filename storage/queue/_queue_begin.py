"""Finds where a queue begins: with the first message that the log still has, even if units of the queue are damaged.

A doubtful unit (:mod:`.unit_standing`) never counts as one of an expired message. A binary search uses its nearest
neighbour that is not doubtful instead. If units right before the first sound one are doubtful, or do not ascend, the
log is read from its beginning up to the message of the first sound unit, and the queue begins with its first message
there.
"""

from __future__ import annotations

from storage.arrays import np
from storage.files.waiting import LONG_SCAN, Allowance, Lookup, long_scan
from storage.queue._queue_end import PATIENT_JUDGEMENTS
from storage.queue.queue import SourceQueue
from storage.queue.unit_standing import FILLER, JudgedUnits, Standing


def first_live(units: SourceQueue, first: int, end: int, *, is_cut: bool) -> Lookup[tuple[int, int | None]]:
    """Return the first unit in [first, end) whose message the log has, else `end`; and perhaps the first queue offset.

    If the log had to be read, the second value is the queue offset of the first message that it has, else None.

    ``is_cut`` says that the queue's files do not begin with queue offset 0. A broker removes a file once all its
    messages are expired. So if the first unit's message is not expired, a file before it may be lost, and the log is
    read. Raises QueueBeingSearched while another thread searches the log.
    """
    low, sound = yield from _bounds(units, first, end)
    odd = yield from _out_of_order(units, first, low)
    while odd is not None and (yield from units.standing(odd)) is Standing.SOUND:
        low, sound = yield from _bounds(units, first, odd + 1)
        odd = yield from _out_of_order(units, first, low)
    if low == sound and odd is None and not (is_cut and sound == first < end):
        return sound, None
    if units.name.is_light and not is_cut:
        return (low if odd is None else odd), None
    stop = (yield from units.physical_offset(sound)) + 1 if sound < end else units.log.end
    place = yield from units.holes.first_message(units, units.log.minimum, stop)
    record = None if place is None else (yield from units.log.record_at_lookup(place))
    return sound, None if record is None or place is None else units.name.offset_in(record, place)


def next_sound(units: JudgedUnits, number: int, end: int) -> Lookup[int]:
    """Return the first sound unit in [number, end), else `end`."""
    while number < end:
        number, standing = yield from _next_known(units, number, end)
        if standing is Standing.SOUND:
            return number
        number += 1
    return end


def _bounds(units: JudgedUnits, first: int, end: int) -> Lookup[tuple[int, int]]:
    """Return the first unit that is not certainly expired, and the first sound one from there on."""
    low, top, sound = first, end, end
    if first < end and (yield from units.standing(first)) is Standing.SOUND:
        return first, first
    while low < top:
        middle = (low + top) // 2
        number, standing = yield from _next_known(units, middle, top)
        if standing is Standing.EXPIRED:
            low = number + 1
        else:
            top = middle
            sound = number if standing is Standing.SOUND else sound
    return low, sound


def _next_known(units: JudgedUnits, number: int, end: int) -> Lookup[tuple[int, Standing]]:
    """Return the first unit in [number, end) that is not doubtful, and its standing."""
    standing = yield from units.standing(number)
    scanned, judgements, step = Allowance(LONG_SCAN // 8), Allowance(PATIENT_JUDGEMENTS), 256
    while standing is Standing.DOUBTFUL and (number := number + 1) < end:
        stop = min(number + step, end)
        if scanned.is_used_up_by(stop - number):
            yield long_scan(f"damaged units of {units.name.topic} {units.name.queue_id}")
        for start, behind in units.blocks(number, stop):
            places = yield from units.physical_offsets(start, behind)
            for at in np.flatnonzero((places >= FILLER) & (places < units.log.end)).tolist():
                if judgements.is_used_up_by(1):
                    yield long_scan(f"units of {units.name.topic} {units.name.queue_id}")
                standing = yield from units.standing(start + at)
                if standing is not Standing.DOUBTFUL:
                    return start + at, standing
        number, step = stop - 1, step * 2
    return number, standing


def _out_of_order(units: JudgedUnits, first: int, stop: int) -> Lookup[int | None]:
    """Return a unit in [first, stop) that makes it doubtful that the last of them is one of an expired message.

    That is a sound unit; else one that is doubtful, or does not point to before a later one, since messages ascend.
    Only some units are checked, at growing distances.
    """
    found, behind, step, number = None, None, 1, stop - 1
    while number >= first:
        standing, place = (yield from units.standing(number)), (yield from units.physical_offset(number))
        if standing is Standing.SOUND:
            return number
        if standing is Standing.DOUBTFUL or (behind is not None and place >= behind > FILLER):
            found = number
        elif standing is Standing.EXPIRED:
            behind = place
        number, step = number - step, step * 2
    return found
