"""One queue's units beside the messages that the log has of it, as they come, run by run.

A message's unit stands at its queue offset, unless its queue once lost a unit or was born again under the same name:
then all units behind stand so much before or behind it (store-format §5.2), which is the queue's *shift*. Where a run
is not found in its place it is looked for by its physical offset in all that follows (:mod:`.unit_search`). What was
not found is held until the next run that is: only then it is clear whether units are damaged in their places, or
missing. Where more is not found than is held, the units in those places say so: they are damaged if none can be that of
a later message.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from spark_jobs.verify.findings import MISSING_UNIT, SHIFTED_UNIT, Discrepancies, FoundAt
from spark_jobs.verify.log_table import LogTable
from spark_jobs.verify.numbering import Numbering
from spark_jobs.verify.stray_units import STRAY_KINDS, Neighbours, judge_strays
from spark_jobs.verify.unit_compare import UnitComparison
from spark_jobs.verify.unit_files import UnitFiles, Units
from spark_jobs.verify.unit_search import UnitSearch

MOST_HELD: Final = 1 << 16
"""Messages of a queue whose units are kept in memory until it is known what became of them."""

PIECE: Final = 1 << 16

COUNTS: Final = (*STRAY_KINDS, "matched", "missing_at_end", "earlier_life", "restarts", "dropped")
"""What a queue's units are, in numbers; beside them physical offsets: `first_missing`, `last_matched`, −1 for none."""

Numbers = npt.NDArray[np.int64]


class MessageRun(NamedTuple):
    """Messages of consecutive numbers: their units as the log has them, and store times if asked for."""

    number: int
    units: Units
    timestamps: Numbers | None

    @property
    def end(self) -> int:
        """The number behind the last one."""
        return self.number + len(self.units)

    def part(self, start: int, stop: int) -> "MessageRun":
        """Return the messages from `start` to `stop` of the run."""
        stamps = None if self.timestamps is None else self.timestamps[start:stop]
        return MessageRun(self.number + start, self.units[start:stop], stamps)


class UnitlessRun(NamedTuple):
    """Messages of consecutive numbers without a unit, more than are held: number and place of the first, how many."""

    number: int
    physical_offset: int
    length: int


class QueueCheck:
    """A queue being checked; `numbered`: units stand by queue offset, else (batches) one behind the other."""

    def __init__(
        self, files: UnitFiles, numbering: Numbering, comparison: UnitComparison, log: LogTable, findings: Discrepancies
    ) -> None:
        """Nothing is checked yet."""
        self._files, self._numbering, self._comparison = files, numbering, comparison
        self._log, self._findings = log, findings
        self._shift = 0
        self._started = False
        self._cursor = files.first
        self._held: list[MessageRun] = []
        self._held_units = 0
        self._beyond: list[UnitlessRun] = []
        self._previous: Units = np.zeros(0, files.dtype)
        self._reborn = self._reborn_beyond = 0
        self._search = UnitSearch(files, log.end)
        self._strays: set[int] = set()
        self._unitless: set[int] = set()
        self._odd: tuple[MessageRun, int] | None = None
        self.counts: dict[str, int] = dict.fromkeys(COUNTS, 0)
        self.counts["first_missing"] = self.counts["last_matched"] = -1

    def put_run(self, first: int, units: Units, timestamps: Numbers | None) -> None:
        """The log's next messages of this queue, of consecutive queue offsets from `first` on."""
        number, restarts = self._numbering.take(first, units)
        if restarts:
            self._reborn, self._reborn_beyond = len(self._held), len(self._beyond)
        run = MessageRun(number, units, timestamps)
        while len(run.units):
            run = self._step(run)

    def finish(self) -> dict[str, int]:
        """There are no more messages; what the queue's units are, in numbers."""
        self._settle_tail()
        self._judge_odd(None)
        self._numbering.finish(self._strays, self._unitless)
        self._comparison.finish()
        return self.counts

    # --- finding a run's place ----------------------------------------------------------------------------------------

    def _step(self, run: MessageRun) -> MessageRun:
        """Settle the first messages of a run; the others."""
        place = run.number + self._shift
        if self._cursor >= self._files.end:
            return self._hold(run)
        if place >= self._cursor:
            there = self._files.read(place, len(run.units))
            # Zeros, as where there are no units, do not point to the log's first record.
            found = (there["physical_offset"] == run.units["physical_offset"]) & (there["size"] > 0)
            if found[0] or 2 * found.sum() > len(found):
                others = np.flatnonzero(~found)
                # A few in their places among many that are not may stand there by chance.
                stop = int(others[0]) if 2 * found.sum() <= len(found) else int(np.flatnonzero(found)[-1]) + 1
                self._accept(run.part(0, stop), place)
                return run.part(stop, len(run.units))
        start, place = self._find(run)
        if start < 0:
            return self._hold(run)
        self._hold(run.part(0, start))
        rest = run.part(start, len(run.units))
        self._accept(rest.part(0, 1), place)
        return rest.part(1, len(rest.units))

    def _find(self, run: MessageRun) -> tuple[int, int]:
        """Which message of a run is the first whose unit is found, and its place; −1 for none."""
        places = self._search.places_of(run.units["physical_offset"].astype(np.int64), self._cursor)
        found = np.flatnonzero(places >= 0)
        return (int(found[0]), int(places[found[0]])) if found.size else (-1, 0)

    def _hold(self, run: MessageRun) -> MessageRun:
        """Keep messages until it is known where the queue goes on; a run of none."""
        if self._numbering.by_offset and self._started and run.number < self._cursor:
            # A broker writes no unit for a message whose place is taken.
            known = min(self._cursor - run.number, len(run.units))
            self.counts["dropped"] += known
            run = run.part(known, len(run.units))
        while len(run.units):
            if self._held_units >= MOST_HELD and not self._settle_damaged():
                self._note_beyond(run)
                break
            kept = run.part(0, MOST_HELD - self._held_units)
            run = run.part(len(kept.units), len(run.units))
            self._held_units += len(kept.units)
            self._held.append(kept)
        return run.part(0, 0)

    def _settle_damaged(self) -> bool:
        """Judge messages held, as many as are damaged in their places for sure; whether there were any.

        Their places end where a unit may be that of a later message.
        """
        if self._reborn and not self._started:
            return False
        last = self._held[-1]
        stop = min(last.end + self._shift, self._files.end)
        stop = self._search.first_behind(int(last.units["physical_offset"][-1]), self._cursor, stop)
        before = [run for run in self._held if run.end + self._shift <= stop]
        if not before or before[-1].end + self._shift <= self._cursor:
            return False
        held = self._held[len(before) :]
        self._held = before
        place = before[-1].end + self._shift
        self._settle(self._shift, place, self._previous[:0])
        self._cursor = place
        self._held, self._held_units = held, sum(len(run.units) for run in held)
        return True

    def _note_beyond(self, run: MessageRun) -> None:
        """Messages of whose units no more is known than that there are none."""
        if self._beyond and len(self._beyond) > self._reborn_beyond:
            last = self._beyond[-1]
            if last.number + last.length == run.number:
                self._beyond[-1] = last._replace(length=last.length + len(run.units))
                return
        self._beyond.append(UnitlessRun(run.number, int(run.units["physical_offset"][0]), len(run.units)))

    # --- a run whose place is known -----------------------------------------------------------------------------------

    def _accept(self, run: MessageRun, place: int) -> None:
        """The first and the last message of a run have their units from a place on."""
        shift = place - run.number
        self._settle(shift, place, run.units[:1])
        self._judge_odd(shift)
        self._note_place(run, place)
        self._started = True
        for start in range(0, len(run.units), PIECE):
            part = run.part(start, min(start + PIECE, len(run.units)))
            found = self._files.read(place + start, len(part.units))
            self._comparison.compare(place + start, part.units, found, part.timestamps)
        self._cursor = place + len(run.units)
        self._previous = run.units[-1:].copy()
        self.counts["matched"] += len(run.units)
        self.counts["last_matched"] = int(self._previous["physical_offset"][0])

    def _note_place(self, run: MessageRun, place: int) -> None:
        """Note where units stand. A broker appends a message of queue offset 0 wherever the queue ends."""
        shift = place - run.number
        if shift == self._shift:
            return
        # Where the log has lost its beginning the queue may have been born again before.
        if not self._numbering.by_offset or (self._log.minimum and not self._started):
            self._shift = shift
        elif not run.number:
            self.counts["restarts"] += 1
        elif len(run.units) == 1:
            self._odd = run, place
        else:
            self._say_shift(run, place)
            self._shift = shift

    def _judge_odd(self, following: int | None) -> None:
        """A single message stood elsewhere: so do those behind it (`following` is their shift), or its number is wrong.

        The latter is told otherwise, but for messages of light queues, whose numbers mean nothing else.
        """
        if self._odd is None:
            return
        run, place = self._odd
        self._odd = None
        if following == place - run.number or self._numbering.is_light:
            self._say_shift(run, place)
        if following == place - run.number:
            self._shift = following

    def _say_shift(self, run: MessageRun, place: int) -> None:
        path, position = self._files.where(place)
        offset = int(run.units["physical_offset"][0])
        expected, found = f"the message of queue offset {place}", f"that of queue offset {run.number}"
        self._findings.add(SHIFTED_UNIT, FoundAt(path, f"unit {place}", position, offset), expected, found)

    def _settle(self, shift: int, place: int, following: Units) -> None:
        """Say what the units between the cursor and a place are, and what became of the messages held."""
        is_front = not self._started
        if is_front and self._reborn:  # the topic was deleted with its queues, before it was made again
            self.counts["earlier_life"] += sum(len(run.units) for run in self._held[: self._reborn])
            self.counts["earlier_life"] += sum(missing.length for missing in self._beyond[: self._reborn_beyond])
            del self._held[: self._reborn], self._beyond[: self._reborn_beyond]
            self._reborn = self._reborn_beyond = 0
        taken = self._pair_held(shift, place)
        self._judge(place, taken, following, is_front=is_front, is_tail=False)

    def _settle_tail(self) -> None:
        taken = self._pair_held(self._shift, max(self._files.end, self._cursor), is_tail=True)
        self._judge(self._files.end, taken, self._previous[:0], is_front=not self._started, is_tail=True)

    def _pair_held(self, shift: int, stop: int, *, is_tail: bool = False) -> list[tuple[int, int]]:
        """Compare held messages with the units in their places before `stop`; returns the ranges of places compared."""
        taken: list[tuple[int, int]] = []
        for run in self._held:
            place = self._place_of(run, shift, stop)
            count = min(len(run.units), stop - place) if place >= 0 else 0
            if count:
                part = run.part(0, count)
                self._comparison.compare(place, part.units, self._files.read(place, count), part.timestamps)
                taken.append((place, place + count))
            self._note_missing(run.part(count, len(run.units)), is_tail=is_tail)
        for missing in self._beyond:
            self._say_missing(*missing, is_tail=is_tail)
        self._held.clear()
        self._beyond.clear()
        self._held_units = 0
        return taken

    def _place_of(self, run: MessageRun, shift: int, stop: int) -> int:
        """Where held messages stand if they do between the cursor and a place, by the shift behind or before; or −1."""
        for each in (shift, self._shift):
            if self._cursor <= run.number + each < stop:
                return run.number + each
        return -1

    def _note_missing(self, run: MessageRun, *, is_tail: bool) -> None:
        """Messages have no unit; at the end of the queue it is for others to say whether it just lags.

        Beside a broker they may have expired since the log was scanned, and their units with them.
        """
        expired = int((run.units["physical_offset"] < self._log.expired_below()).sum()) if self._log.is_live else 0
        run = run.part(expired, len(run.units))
        count = len(run.units)
        if not count:
            return
        self._unitless.update(range(run.number, run.number + min(count, MOST_HELD - len(self._unitless))))
        self._say_missing(run.number, int(run.units["physical_offset"][0]), count, is_tail=is_tail)

    def _say_missing(self, number: int, offset: int, count: int, *, is_tail: bool) -> None:
        if is_tail:
            if self.counts["first_missing"] < 0:
                self.counts["first_missing"] = offset
            self.counts["missing_at_end"] += count
            return
        expected = f"{count} unit{'s' * (count > 1)} from queue offset {number} on"
        self._findings.add(
            MISSING_UNIT, FoundAt(self._files.directory, physical_offset=offset), expected, "none", count
        )

    def _judge(
        self, place: int, taken: list[tuple[int, int]], following: Units, *, is_front: bool, is_tail: bool
    ) -> None:
        """Say what the units from the cursor to a place are, but for the ranges that are explained."""
        around = Neighbours(self._previous, following, is_front, is_tail)
        start = self._cursor
        for first, stop in [*sorted(taken), (place, place)]:
            while start < first:
                count = min(PIECE, first - start)
                units = self._files.read(start, count)
                strays = judge_strays(units, start, self._files, around, self._log, self._findings, self.counts)
                self._strays.update(strays[: MOST_HELD - len(self._strays)])
                start += count
            start = max(start, stop)
