"""Diagnose a queue whose units do not all stand where a rebuild puts them.

Messages and units both ascend by physical offset. So units are found among the messages by that, wherever they stand; a
unit that does not lie between those beside it in the log is a copy, a leftover or damaged, and is not used. What lies
between units that are found is judged by its place: a message's unit stands at its queue offset, unless its queue once
lost a unit or was born again under the same name: then all units behind stand so much before or behind it (store-format
§5.2), which is the queue's *shift*.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final

import numpy as np

from storage.amounts import counted
from storage.doctor.finding import FoundAt, Kind
from storage.doctor.log.scanned_log import Flags, Numbers
from storage.doctor.queues._numbering import check_batches, check_numbers
from storage.doctor.queues._unit_compare import UnitComparison
from storage.doctor.queues.clean_front import CleanFront
from storage.doctor.queues.unit_files import UnitFiles, Units, are_zeros, runs_of
from storage.doctor.words import LEFT_OVER_UNIT, MISPLACED_UNIT
from storage.queue.unit_standing import are_valid
from storage.queue.unit_struct import FILLER_SIZE

PIECE: Final = 1 << 16
MOST_NAMED: Final = 1 << 16
"""Stray units and messages without units of a queue that are remembered one by one."""


class QueueDiagnosis:
    """One queue; `by_offset`: units stand by queue offset, else (batches) one behind the other.

    `messages` are those behind the clean front: `unit` as the log has it, `number` of the unit, `timestamp` (ms).
    `is_light`: copies of a message, retried or dead, bear the numbers of light queues that the first one got.
    """

    def __init__(
        self,
        messages: UnitFiles,
        count: int,
        front: CleanFront,
        comparison: UnitComparison,
        *,
        by_offset: bool,
        is_light: bool,
    ) -> None:
        """Nothing is diagnosed yet; there are `count` messages."""
        self._messages, self._count, self._front = messages, count, front
        self._comparison, self._files = comparison, comparison.files
        self._log, self._findings = comparison.log, comparison.findings
        self._by_offset, self._is_light = by_offset, is_light
        self._offsets, self._numbers = np.empty(count, np.int64), np.empty(count, np.int64)
        for first in range(0, count, PIECE):
            part = messages.read(first, min(PIECE, count - first))
            self._offsets[first : first + PIECE] = part["unit"]["physical_offset"]
            self._numbers[first : first + PIECE] = part["number"]
        self._cursor, self._message, self._shift = front.end, 0, 0 if by_offset else front.start
        self._previous = front.last_unit(self._files.dtype)
        self._strays: set[int] = set()
        self._gaps: set[int] = set()  # queue offsets of stand-ins for messages that the log does not have
        self._unitless: set[int] = set()
        self.counts = Counter[str](matched=front.end - front.start, first_missing=-1, last_matched=-1)
        for unit in self._previous:
            self.counts["last_matched"] = int(unit["physical_offset"])

    def run(self) -> Counter[str]:
        """Report what is wrong; return how many units of the queue are of which sort, as :class:`QueueNumbers` has it.

        Beside these are `missing_at_end` and physical offsets, `first_missing` and `last_matched`, −1 for none.
        """
        if not self._log.follows_reading:
            first_found = self._files.read(self._front.start, min(self._front.end - self._front.start, 1))
            self._check_strays(self._files.first, self._front.start, first_found[:0], first_found)
        elif not (self._count or self._front.last) and self._ends_before_log():
            self._cursor = self._files.end
        runs = self._find_runs()
        shifts = runs[:, 0] - self._numbers[runs[:, 1]]
        self._skip_earlier_life(int(runs[0, 1]) if len(runs) else 0)
        for number, (place, message, length) in enumerate(map(np.ndarray.tolist, runs)):
            following = int(shifts[number + 1]) if number + 1 < len(runs) else None
            self._settle(place, message, int(shifts[number]))
            self._note_shift(place, message, length, following)
            self._compare(place, message, length)
            self._cursor, self._message = place + length, message + length
            self._previous = self._unit(message + length - 1)
        self._settle(max(self._files.end, self._cursor), self._count, self._shift, is_tail=True)
        self._check_numbers()
        self._comparison.finish()
        return self.counts

    def _ends_before_log(self) -> bool:
        """Whether the last unit is of a message before the log that was scanned."""
        last = self._files.read(self._files.end - 1, 1)
        return bool((last["size"] > 0)[0] and 0 <= int(last["physical_offset"][0]) < self._log.minimum)

    # --- which units are found ----------------------------------------------------------------------------------------

    def _find_runs(self) -> Numbers:
        """Units of messages, in their order: place of the first, number among those kept, and how many follow it."""
        found = [np.zeros((0, 3), np.int64)]
        for first in range(self._cursor, self._files.end if self._count else 0, PIECE):
            units = self._files.read(first - 1, min(PIECE, self._files.end - first) + 2)
            offsets = units["physical_offset"].astype(np.int64)
            offsets[(units["size"] <= 0) | (units["size"] == FILLER_SIZE) | (offsets >= self._log.end)] = -1
            if not self._by_offset:  # behind a batch stands what stands in for those that are lost
                offsets[1:] = np.where(offsets[1:] == offsets[:-1], -1, offsets[1:])
            before, here, behind = offsets[:-2], offsets[1:-1], offsets[2:]
            places = np.flatnonzero((here >= 0) & (before < here) & ((behind < 0) | (here < behind)))
            messages = np.searchsorted(self._offsets, here[places])
            are_there = self._offsets[np.minimum(messages, self._count - 1)] == here[places]
            places, messages = places[are_there] + first, messages[are_there]
            goes_on = (np.diff(places) == 1) & (np.diff(messages) == 1) & (np.diff(self._numbers[messages]) == 1)
            starts = np.flatnonzero(np.concatenate([[True], ~goes_on])[: len(places)])
            lengths = np.diff(starts, append=len(places))
            found.append(np.column_stack([places[starts], messages[starts], lengths]))
        return _ascending(np.concatenate(found))

    def _skip_earlier_life(self, first: int) -> None:
        """Messages before a new beginning none of whose units is there: the topic was deleted with its queues."""
        if self._by_offset and self._front.end == self._front.start:
            births = np.flatnonzero(self._numbers[: first + 1] == 0)
            self._message = int(births[-1]) if births.size else 0
            self.counts["earlier_life"] = self._message

    # --- what lies between them ---------------------------------------------------------------------------------------

    def _settle(self, stop: int, message: int, shift: int, *, is_tail: bool = False) -> None:
        """Check the messages before one, and the units before a place.

        Messages stand by the shift of those behind them, or of those before them, if that is in between.
        """
        at, before = self._cursor, self._previous
        # Where messages to both sides stand alike, the log has none of the numbers between that no message bears.
        is_numbered_gap = self._by_offset and shift == self._shift
        for first, count in self._number_runs(message):
            number = int(self._numbers[first])
            places = (number + each for each in (shift, self._shift))
            place = next((place for place in places if at <= place < stop), stop)
            taken = min(count, stop - place)
            if taken:
                self._check_strays(at, place, before, self._unit(first), is_numbered_gap=is_numbered_gap)
                self._compare(place, first, taken)
                at, before = place + taken, self._unit(first + taken - 1)
            self._note_missing(first + taken, count - taken, is_tail=is_tail)
        following = before[:0] if is_tail else self._unit(message)
        stop = min(stop, self._files.end)
        is_numbered_gap &= not is_tail
        self._check_strays(at, stop, before, following, is_tail=is_tail, is_numbered_gap=is_numbered_gap)

    def _number_runs(self, stop: int) -> Iterator[tuple[int, int]]:
        """Messages before one that have consecutive numbers: the first, and how many; without those without a unit.

        A broker writes no unit for a message whose place is taken.
        """
        numbers = self._numbers[self._message : stop]
        if not numbers.size:
            return
        starts = [0, *(np.flatnonzero(np.diff(numbers) != 1) + 1).tolist()]
        for start, end in zip(starts, [*starts[1:], len(numbers)], strict=True):
            taken = max(self._cursor - int(numbers[start]), 0) if self._by_offset and self._previous.size else 0
            if start + taken < end:
                yield self._message + start + taken, end - start - taken

    def _note_missing(self, first: int, count: int, *, is_tail: bool) -> None:
        """Note messages without a unit; at the end of the queue `check_queue_ends` decides whether it just lags.

        Beside a broker they may have expired since the log was scanned, and their units with them.
        """
        if self._log.is_live:
            expired = int(np.searchsorted(self._offsets[first : first + count], self._log.expired_below()))
            first, count = first + expired, count - expired
        if not count:
            return
        number, offset = int(self._numbers[first]), int(self._offsets[first])
        self._unitless.update(range(number, number + min(count, MOST_NAMED - len(self._unitless))))
        if is_tail:
            self.counts["missing_at_end"] += count
            self.counts["first_missing"] = offset if self.counts["first_missing"] < 0 else self.counts["first_missing"]
            return
        at = FoundAt(self._files.directory, physical_offset=offset)
        expected = f"{counted(count, 'unit')} from queue offset {number} on"
        self._findings.note(Kind.MISSING_UNIT, at, expected, "none", count)

    def _check_strays(
        self,
        start: int,
        stop: int,
        before: Units,
        following: Units,
        *,
        is_tail: bool = False,
        is_numbered_gap: bool = False,
    ) -> None:
        """Check the units without a message from one place to another: count the sound ones, report the others.

        `before` and `following` are the units of messages beside them, or none. `is_numbered_gap`: the log lacks the
        messages that bear the numbers between, though nothing of it is lost, as in one that was converted.
        """
        is_front = not before.size
        for first in range(start, stop, PIECE):
            units = self._files.read(first, min(PIECE, stop - first))
            offsets = units["physical_offset"].astype(np.int64)
            filler = (offsets == 0) & (units["size"] == FILLER_SIZE) & (units["tags_code"] == 0)
            written = are_valid(units) & ~filler
            kinds = {
                "expired": written & (offsets < self._log.minimum) & is_front,
                "fillers": filler & is_front,
                "lost": written & self._log.are_lost(offsets),
                "stand_ins": self._stand_ins(units, offsets, before, following, is_gap=is_numbered_gap or is_tail),
                "beyond": written & (offsets >= self._log.end) & is_tail,
            }
            explained, zeros = np.zeros(len(units), np.bool_), are_zeros(units)
            for name, flags in kinds.items():
                self.counts[name] += int((flags & ~explained).sum())
                explained |= flags
            if is_numbered_gap or not self._by_offset:
                stood_in = np.flatnonzero(kinds["stand_ins"])[: MOST_NAMED - len(self._gaps)]
                self._gaps.update((stood_in + first if self._by_offset else units["base_offset"][stood_in]).tolist())
            for number, count in runs_of(zeros & ~explained) if not is_tail else ():
                at = self._files.found_at(first + number, -1, count=count)
                self._findings.note(Kind.UNIT, at, "units, for others follow", "zeros", count)
            words = LEFT_OVER_UNIT if is_tail else MISPLACED_UNIT
            for i in np.flatnonzero(~explained & ~zeros).tolist():
                at = self._files.found_at(first + i, int(offsets[i]))
                found = f"{words.found} (size {units['size'][i]}, tags code {units['tags_code'][i]})"
                self._findings.note(Kind.STRAY_UNIT, at, words.expected, found)
                if len(self._strays) < MOST_NAMED:
                    self._strays.add(first + i)

    def _stand_ins(self, units: Units, offsets: Numbers, before: Units, following: Units, *, is_gap: bool) -> Flags:
        """Which units stand in for lost messages, as a rebuild writes them (:mod:`storage.build.queue_units`).

        `is_gap`: the log may lack messages here though nothing of it is lost.
        """
        log, is_front = self._log, not before.size
        if not self._by_offset:
            return _stand_for_batches(units, before, following)
        start = int(before["physical_offset"][0]) if before.size else log.minimum
        stop = int(following["physical_offset"][0]) if following.size else log.end
        found: Flags = np.zeros(len(units), np.bool_)
        if (is_gap and not is_front) or log.loses_between(start, stop) or (is_front and log.minimum < log.segment_size):
            found |= (units["physical_offset"] == 0) & (units["size"] == FILLER_SIZE) & (not is_front)
            for neighbour in (*before, *following):
                found |= units == neighbour
            out_of_segment = log.segment_size - offsets % log.segment_size + 1
            found |= (offsets == start) & (units["size"] == out_of_segment) & (units["tags_code"] == 0)
        return found

    def _compare(self, place: int, message: int, count: int) -> None:
        """Compare units from a place on with messages that they should be of."""
        for first in range(0, count, PIECE):
            messages = self._messages.read(message + first, min(PIECE, count - first))
            found = self._files.read(place + first, len(messages))
            self._comparison.compare(place + first, messages["unit"].copy(), found, messages["timestamp"])
            matched = np.flatnonzero(
                (found["physical_offset"] == messages["unit"]["physical_offset"]) & (found["size"] > 0)
            )
            self.counts["matched"] += len(matched)
            if matched.size:
                self.counts["last_matched"] = int(found["physical_offset"][matched[-1]])

    def _unit(self, message: int) -> Units:
        return self._messages.read(message, 1)["unit"].copy()

    # --- where they stand ---------------------------------------------------------------------------------------------

    def _note_shift(self, place: int, message: int, length: int, following: int | None) -> None:
        """Note where found units stand; `following` is the shift of those behind them.

        A broker appends a message of queue offset 0 wherever the queue ends. A single message that stands elsewhere
        than others bears a wrong number; but for those of light queues, whose numbers mean nothing else.
        """
        number = int(self._numbers[message])
        shift = place - number
        if shift == self._shift:
            return
        # Where the log has lost its beginning the queue may have been born again before.
        if not self._by_offset or (self._log.minimum and not self._previous.size):
            self._shift = shift
        elif not number:
            self.counts["restarts"] += 1
        else:
            goes_on = length > 1 or following == shift
            if shift and (goes_on or self._is_light):
                at = self._files.found_at(place, int(self._offsets[message]))
                expected, found = f"the message of queue offset {place}", f"that of queue offset {number}"
                self._findings.note(Kind.SHIFTED_UNIT, at, expected, found)
            self._shift = shift if goes_on else self._shift

    def _check_numbers(self) -> None:
        """Report numbers that are out of order, unless units show it already: findings, or stand-ins for lost messages.

        A record that left a gap in the numbers bears another queue if the units in its place point to no message of
        this one; of two with one number it is the one without unit that does not belong here.
        """
        before, first = self._log.minimum, self._front.next_number(self._files.dtype)
        for unit in self._front.last_unit(self._files.dtype):
            before = int(unit["physical_offset"])
        if not self._by_offset:
            check_batches(self._messages.read, self._count, first, before, self._gaps, self._log, self._findings)
            return
        if self._is_light:
            return
        known = self._strays | self._gaps
        for wrong in check_numbers(self._numbers, self._offsets, first, before, self._log):
            gap = range(wrong.expected, min(wrong.found, wrong.expected + len(known) + 1))
            is_reported = all(place in known for place in gap) if gap else wrong.found in self._unitless
            if wrong.is_sure or not is_reported:
                wrong.note(self._log, self._findings)


def _stand_for_batches(units: Units, before: Units, following: Units) -> Flags:
    """Which units repeat the batch before them under the queue offsets up to the following one."""
    found: Flags = np.zeros(len(units), np.bool_)
    if before.size:
        first = int(before["base_offset"][0]) + int(before["batch_size"][0])
        bases = units["base_offset"].astype(np.int64)
        found = (bases >= first) & (units["batch_size"] > 0)
        if following.size:
            found &= bases + units["batch_size"] <= int(following["base_offset"][0])
        for field in set(units.dtype.names or ()) - {"base_offset", "batch_size"}:
            found &= units[field] == before[field]
    return found


def _ascending(runs: Numbers) -> Numbers:
    """Runs of units in the order of their messages; where some are not, without the shorter ones."""
    ends = runs[:, 1] + runs[:, 2]
    if (runs[1:, 1] >= ends[:-1]).all():
        return runs
    kept: list[int] = []
    for number, (_, message, length) in enumerate(map(np.ndarray.tolist, runs)):
        while kept and message < ends[kept[-1]] and length > runs[kept[-1], 2]:
            kept.pop()
        if not kept or message >= ends[kept[-1]]:
            kept.append(number)
    return runs[kept]
