"""Finds where a queue ends: after its last sound unit, even if units before it are damaged (:mod:`.unit_standing`).

The written part of the files ends with the last byte that is not zero (:mod:`.queue_files`). The last unit of that part
is nearly always the last sound one. If not, the units at the end are left over, or damaged. Then a sound unit is
searched backward in doubling steps, and the end of the sound units by a binary search from there. Of the units after
that end, those are judged that point into the log and beyond that unit's message. If others are left, the log has to be
searched behind that message. Units that no broker writes count whether the log has their messages or not, so that no
end falls.
"""

from __future__ import annotations

from typing import Final

from storage.arrays import np
from storage.files.mapped_file import LARGEST_OFFSET
from storage.files.waiting import Allowance, Lookup, Wait, long_scan
from storage.kernels.messages import ANY_OFFSET
from storage.queue._log_search import search
from storage.queue.unit_standing import BROKEN, FILLER, JudgedUnits, Standing

PATIENT_JUDGEMENTS: Final = 256
"""Units that a look-up compares with their records, one by one, before it asks for a thread that may wait."""

NEAR_IN_LOG: Final = 64 * 1024 * 1024
"""Bytes of log after a queue's last message that have to be without another one where its units are left over: 30 ms.

A copy of a running broker's store mostly has such units; the whole log cannot be read for each of its queues.
"""


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
    end, judged = units.log.end, 0
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


def standing_behind(units: JudgedUnits, end: int, written: int, largest: int) -> Lookup[tuple[int, Standing]]:
    """Return the number after the last unit in [end, written) that no broker writes, and the standing of all of them.

    The last sound unit is before `end`, which is the first value if there is no such unit. They are left over if they
    ascend from where the log ends, by no more than its own length, and the log has no other message soon after the
    queue's last one; else doubtful, so that the log is searched for their messages. Units that point beyond `largest`
    are ignored.
    """
    log = units.log
    broken, is_left_over = end, True
    behind, most = log.end - 1, 2 * log.end - log.minimum
    for start, stop in units.blocks(end, written):
        places = yield from units.physical_offsets(start, stop)
        found = np.flatnonzero(places == BROKEN)
        broken = start + int(found[-1]) + 1 if found.size else broken
        others = np.append(behind, places[(places > FILLER) & (places <= largest)])
        behind = int(others[-1])
        is_left_over &= bool((np.diff(others) > 0).all()) and behind < most
    if broken > end or not is_left_over:
        return broken, Standing.DOUBTFUL
    if behind < log.end:
        return broken, Standing.LEFT_OVER
    yield Wait(f"looking for the last messages of {units.name.topic} {units.name.queue_id} in the log")
    place = yield from units.physical_offset(end - 1)
    start = place + 1 if log.minimum <= place < log.end else log.minimum
    message = search(log, units.name, ANY_OFFSET, start, min(log.end, start + NEAR_IN_LOG))
    return end, Standing.LEFT_OVER if message is None else Standing.DOUBTFUL
