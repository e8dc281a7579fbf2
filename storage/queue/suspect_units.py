"""Tells which units of a plain queue's files cannot be trusted by those around them, without their records.

A unit has the hash of its message's tag, without a checksum. These units are suspect: those that point to no place in
the log, those right beside them (damage may begin within a tag), both of two neighbours of which the first one's
message does not end before the second one's begins, one whose message ends behind the log, and queue offsets without a
unit. A message that one of them leads to may have any tag; if it leads to none, the log is searched for its message
(:mod:`storage.queue.queue_holes`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from storage.arrays import np, npt
from storage.files.waiting import Lookup
from storage.log.commit_log import CommitLog
from storage.queue.consume_queue_ext import ANY_TAG
from storage.queue.unit_struct import FILLER_SIZE, UNIT_DTYPE
from storage.ranges import Range

Offsets: TypeAlias = "npt.NDArray[np.int64]"
Units: TypeAlias = "npt.NDArray[np.void]"
Flags: TypeAlias = "npt.NDArray[np.bool_]"


class SuspectUnits:
    """Collects the suspect units of a plain queue, block by block."""

    def __init__(self, log: CommitLog, first: int) -> None:
        """Begin without units; `first` is the first queue offset of the queue."""
        self._places: list[Offsets] = []
        self._log = log
        self._runs: list[Range] = []
        self._next = first
        # Of the last unit that points into the log: its queue offset, where its message begins, and where that ends.
        self._last = -1, -1, -1
        self._edge: tuple[Offsets, Offsets, Flags] | None = None  # of the last unit of the block before

    def put(self, first: int, units: Units) -> None:
        """Add a block of units from a queue offset on."""
        valid = (units["size"] > 0) & (units["size"] != FILLER_SIZE)
        places = units["physical_offset"].astype(np.int64)
        stops = places + units["size"]
        edge = self._edge if first == self._next else None
        if edge is not None:
            first, places, stops, valid = first - 1, *map(np.append, edge, (places, stops, valid))
        elif first > self._next:  # a file is lost
            self._runs.append((self._next, first))
        self._next, self._edge = first + len(places), (places[-1:], stops[-1:], valid[-1:])
        plausible = valid & (places >= self._log.minimum) & (places < self._log.end)
        known = np.flatnonzero(plausible)
        falls = np.flatnonzero(np.append(places[known[1:]], self._log.end) < stops[known]) if known.size else known
        ascends = not known.size or places[known[0]] >= self._last[2] or (edge is not None and bool(plausible[0]))
        if known.size == len(places) and not falls.size and ascends:
            self._last = self._next - 1, int(places[-1]), int(stops[-1])
            return
        odd = ~plausible
        odd[:-1] |= ~plausible[1:]
        odd[1:] |= ~plausible[:-1]
        odd[known[falls]] = odd[known[np.minimum(falls + 1, known.size - 1)]] = True
        if known.size:
            if not ascends:
                odd[known[0]] = True
                self._runs.append((self._last[0], self._last[0] + 1))
                self._places.append(np.array([self._last[1]], np.int64))
            self._last = first + int(known[-1]), int(places[known[-1]]), int(stops[known[-1]])
        self._places.append(places[odd & plausible])
        numbers = np.flatnonzero(odd) + first
        for run in np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1):
            if run.size:
                self._runs.append((int(run[0]), int(run[-1]) + 1))

    def runs(self, end: int) -> list[Range]:
        """Return the ranges of suspect queue offsets, for a queue that ends at `end`."""
        return [*self._runs, (self._next, end)] if self._next < end else self._runs

    def plausible(self) -> Lookup[Units]:
        """Return the suspect units that point into the log, each with ANY_TAG and without its size."""
        yield from ()
        places = np.concatenate([np.empty(0, np.int64), *self._places])
        units = np.zeros(places.size, UNIT_DTYPE)
        units["physical_offset"], units["tags_code"] = places, ANY_TAG
        return units


def suspect_runs(log: CommitLog, first: int, stop: int, blocks: Iterable[tuple[int, Units]]) -> list[Range]:
    """Return the ranges of suspect queue offsets in [first, stop), by blocks of units from queue offsets on."""
    suspect = SuspectUnits(log, first)
    for block in blocks:
        suspect.put(*block)
    return suspect.runs(stop)
