"""Where a queue begins: with the first message that the log still has, whatever is damaged among its units.

A unit that says nothing (:mod:`.unit_standing`) is never taken for one of an expired message. A binary search goes on
from its nearest neighbour that does say something. Where units right before the first sound one say nothing, or do not
ascend, the log is asked: it is read from its beginning up to the message of the first sound unit, and the first message
of the queue that it has there is where the queue begins.
"""

from typing import Protocol

import numpy as np

from storage.files.waiting import LONG_SCAN, Allowance, Lookup, long_scan
from storage.queue.queue_end import PATIENT_JUDGEMENTS
from storage.queue.queue_holes import HoledQueue, QueueHoles
from storage.queue.unit_standing import FILLER, JudgedUnits, Standing


class SearchedUnits(JudgedUnits, HoledQueue, Protocol):
    """The units of a queue, and where it is remembered what the log was searched for."""

    holes: QueueHoles


def first_live(units: SearchedUnits, first: int, end: int, *, is_cut: bool) -> Lookup[tuple[int, int | None]]:
    """The first unit in [first, end) whose message the log has, `end` for none; its queue offset if the log says it.

    ``is_cut`` where the queue's files do not begin with queue offset 0. A broker removes a file once all its messages
    are expired; so where that of the first unit is not, a file before it may be lost, and the log is asked as well.
    Raises QueueBeingSearched while others search.
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
    stop = (yield from units.physical_offset(sound)) + 1 if sound < end else units.log_end
    place = yield from units.holes.first_message(units, units.log.minimum, stop)
    record = None if place is None else (yield from units.log.record_at_lookup(place))
    return sound, None if record is None or place is None else units.name.offset_in(record, place)


def next_sound(units: JudgedUnits, number: int, end: int) -> Lookup[int]:
    """The first sound unit in [number, end); `end` for none."""
    while number < end:
        number, standing = yield from _next_known(units, number, end)
        if standing is Standing.SOUND:
            return number
        number += 1
    return end


def _bounds(units: JudgedUnits, first: int, end: int) -> Lookup[tuple[int, int]]:
    """The first unit not known to be expired, and the first one that is known to be sound behind it."""
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
    """The first unit in [number, end) that says something, and what."""
    standing = yield from units.standing(number)
    scanned, judgements, step = Allowance(LONG_SCAN // 8), Allowance(PATIENT_JUDGEMENTS), 256
    while standing is Standing.DOUBTFUL and (number := number + 1) < end:
        stop = min(number + step, end)
        if scanned.is_used_up_by(stop - number):
            yield long_scan(f"damaged units of {units.name.topic} {units.name.queue_id}")
        for start, behind in units.blocks(number, stop):
            places = yield from units.physical_offsets(start, behind)
            for at in np.flatnonzero((places >= FILLER) & (places < units.log_end)).tolist():
                if judgements.is_used_up_by(1):
                    yield long_scan(f"units of {units.name.topic} {units.name.queue_id}")
                standing = yield from units.standing(start + at)
                if standing is not Standing.DOUBTFUL:
                    return start + at, standing
        number, step = stop - 1, step * 2
    return number, standing


def _out_of_order(units: JudgedUnits, first: int, stop: int) -> Lookup[int | None]:
    """A unit in [first, stop) that casts doubt on the last of them being one of an expired message.

    A sound one; else one that says nothing, or that points where a later one does, or behind it: messages ascend. Of
    some, ever farther apart.
    """
    doubt, behind, step, number = None, None, 1, stop - 1
    while number >= first:
        standing, place = (yield from units.standing(number)), (yield from units.physical_offset(number))
        if standing is Standing.SOUND:
            return number
        if standing is Standing.DOUBTFUL or (behind is not None and place >= behind > FILLER):
            doubt = number
        elif standing is Standing.EXPIRED:
            behind = place
        number, step = number - step, step * 2
    return doubt
