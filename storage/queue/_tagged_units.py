"""Finds the units of a queue whose tags cannot be trusted when messages with a tag are searched, and their messages.

A unit has the hash of its message's tag, without a checksum. These units are doubted: those that point to no place in
the log, those right beside them (damage may begin within a tag), both of two neighbours that do not ascend, and queue
offsets without a unit. The messages that they lead to are candidates whatever tag the unit has; if they lead to no
message, the messages that the log has for them are (:mod:`storage.queue.queue_holes`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from storage.arrays import np, npt
from storage.files.waiting import Lookup
from storage.log.commit_log import CommitLog
from storage.queue.queue import SourceQueue

Offsets: TypeAlias = "npt.NDArray[np.int64]"
Units: TypeAlias = "npt.NDArray[np.void]"
Flags: TypeAlias = "npt.NDArray[np.bool_]"
Run = tuple[int, int]
"""A range of queue offsets: the first one, and the one after the last."""


class DoubtedUnits:
    """Collects the doubted units of a plain queue, block by block; `places` are the physical offsets in them."""

    def __init__(self, log: CommitLog, first: int) -> None:
        """Begin without units; `first` is the first queue offset of the queue."""
        self.places: list[Offsets] = []
        self._log = log
        self._runs: list[Run] = []
        self._next = first
        self._last = -1, -1  # queue offset and place of the last unit that points into the log
        self._edge: tuple[Offsets, Flags] | None = (
            None  # the last unit of the block before, which is beside the next one
        )

    def put(self, first: int, places: Offsets, valid: Flags) -> None:
        """Add a block of units from a queue offset on: their physical offsets, and which of them are valid."""
        edge = self._edge if first == self._next else None
        if edge is not None:
            first, places, valid = first - 1, np.append(edge[0], places), np.append(edge[1], valid)
        elif first > self._next:  # a file is lost
            self._runs.append((self._next, first))
        self._next, self._edge = first + len(places), (places[-1:], valid[-1:])
        plausible = valid & (places >= self._log.minimum) & (places < self._log.end)
        known = np.flatnonzero(plausible)
        falls = np.flatnonzero(np.diff(places[known]) <= 0)
        ascends = not known.size or places[known[0]] > self._last[1] or (edge is not None and bool(plausible[0]))
        if known.size == len(places) and not falls.size and ascends:
            self._last = self._next - 1, int(places[-1])
            return
        odd = ~plausible
        odd[:-1] |= ~plausible[1:]
        odd[1:] |= ~plausible[:-1]
        odd[known[falls]] = odd[known[falls + 1]] = True
        if known.size:
            if not ascends:
                odd[known[0]] = True
                self._runs.append((self._last[0], self._last[0] + 1))
                self.places.append(np.array([self._last[1]], np.int64))
            self._last = first + int(known[-1]), int(places[known[-1]])
        self.places.append(places[odd & plausible])
        numbers = np.flatnonzero(odd) + first
        for run in np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1):
            if run.size:
                self._runs.append((int(run[0]), int(run[-1]) + 1))

    def runs(self, end: int) -> list[Run]:
        """Return the ranges of doubted queue offsets, for a queue that ends at `end`."""
        return [*self._runs, (self._next, end)] if self._next < end else self._runs


def places_in_log(queue: SourceQueue, runs: Iterable[Run]) -> Lookup[list[Offsets]]:
    """Return the physical offsets of messages that the log has for units in ranges of queue offsets that lead to none.

    Raises BeingSearched while the log is being searched.
    """
    found: list[Offsets] = []
    for start, stop in runs:
        while start < stop:
            behind = start + 1
            if (yield from queue.is_doubtful_lookup(start)):
                hole = yield from queue.hole_at_lookup(start)
                behind = min(stop, hole.stop)
                found.append(hole.places(start, behind))
            start = behind
    return found


def batches_with_tag(
    blocks: Iterable[Units], queue_offset: int, end: int, tag_hash: int
) -> tuple[list[Offsets], list[Run]]:
    """Return the candidates in a queue of batches, and the ranges of queue offsets whose batches no unit leads to.

    The ranges begin at `queue_offset` and end at `end`.
    """
    found, runs = [np.empty(0, np.int64)], list[Run]()
    for units in blocks:
        places, bases, sizes, codes = (
            units[name].astype(np.int64) for name in ("physical_offset", "base_offset", "batch_size", "tags_code")
        )
        found.append(places[codes & 0xFFFFFFFF == tag_hash & 0xFFFFFFFF])
        behind = np.maximum(np.concatenate([[queue_offset], bases + sizes]), queue_offset)
        runs.extend((int(behind[at]), int(bases[at])) for at in np.flatnonzero(bases > behind[:-1]))
        queue_offset = int(behind[-1])
    return found, [*runs, (queue_offset, end)] if queue_offset < end else runs
