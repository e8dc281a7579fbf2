"""Which units of a queue cannot be taken at their word when messages with a tag are looked for, and what the log has.

A unit says its message's tag, and nothing vouches for it. Doubted are units that point to no place of the log, those
right beside them (damage may begin within a tag), both of two neighbours that do not ascend, and queue offsets without
a unit. What these lead to is proposed whatever tag they say; where they lead nowhere, what the log has of their
messages (:mod:`storage.queue.queue_holes`).
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

import numpy as np
import numpy.typing as npt

from storage.files.waiting import Lookup
from storage.log.commit_log import CommitLog
from storage.queue.queue_holes import QueueHole

Offsets = npt.NDArray[np.int64]
Units = npt.NDArray[np.void]
Flags = npt.NDArray[np.bool_]
Run = tuple[int, int]
"""Queue offsets, from … to."""


class QueueWithHoles(Protocol):
    """A queue, as far as its units are doubted."""

    def is_doubtful_lookup(self, queue_offset: int) -> Lookup[bool]:
        """Whether a unit is lost, or leads to no place at which its message may have been."""
        ...

    def hole_at_lookup(self, queue_offset: int) -> Lookup[QueueHole]:
        """What the log has of the messages of such a unit and of those around it."""
        ...


class DoubtedUnits:
    """The doubted among the units of a plain queue, which come block by block; `places` are those they point to."""

    def __init__(self, log: CommitLog, first: int) -> None:
        """No unit was seen; the queue begins with `first`."""
        self.places: list[Offsets] = []
        self._log = log
        self._runs: list[Run] = []
        self._next = first
        self._last = -1, -1  # queue offset and place of the last unit that points into the log

    def put(self, first: int, places: Offsets, valid: Flags) -> None:
        """The units from a queue offset on: where they point, and which of them a broker may have written."""
        if first > self._next:  # a file is lost
            self._runs.append((self._next, first))
        self._next = first + len(places)
        plausible = valid & (places >= self._log.minimum) & (places < self._log.end)
        known = np.flatnonzero(plausible)
        falls = np.flatnonzero(np.diff(places[known]) <= 0)
        if known.size == len(places) and not falls.size and places[0] > self._last[1]:
            self._last = self._next - 1, int(places[-1])
            return
        odd = ~plausible
        odd[:-1] |= ~plausible[1:]
        odd[1:] |= ~plausible[:-1]
        odd[known[falls]] = odd[known[falls + 1]] = True
        if known.size:
            if places[known[0]] <= self._last[1]:
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
        """What is doubted of a queue that ends at a queue offset."""
        return [*self._runs, (self._next, end)] if self._next < end else self._runs


def places_in_log(queue: QueueWithHoles, runs: Iterable[Run]) -> Lookup[list[Offsets]]:
    """Physical offsets of the messages in runs of queue offsets whose units lead nowhere, as far as the log has them.

    Raises BeingSearched.
    """
    found: list[Offsets] = []
    for start, stop in runs:
        while start < stop:
            if not (yield from queue.is_doubtful_lookup(start)):
                start += 1
                continue
            hole = yield from queue.hole_at_lookup(start)
            end = min(stop, hole.stop)
            found.append(hole.places(start, end))
            start = end
    return found


def batches_with_tag(
    blocks: Iterable[tuple[int, Units]], mended: Mapping[int, tuple[int, ...]], queue_offset: int, tag_hash: int
) -> tuple[list[Offsets], list[Run]]:
    """What a queue of batches proposes, and the queue offsets from one on that no unit has, or one that leads nowhere.

    Units come in blocks with the number of the first; those that are ``mended``, by number, may have any tag.
    """
    found, runs = [np.empty(0, np.int64)], list[Run]()
    for first, units in blocks:
        chosen = [number - first for number in mended if first <= number < first + len(units)]
        units = units.copy()
        for at in chosen:
            units[at] = mended[first + at]
        places, bases, sizes, codes = (
            units[name].astype(np.int64) for name in ("physical_offset", "base_offset", "batch_size", "tags_code")
        )
        wanted = codes & 0xFFFFFFFF == tag_hash & 0xFFFFFFFF
        wanted[chosen] = True
        found.append(places[wanted])
        starts = np.maximum(np.concatenate([[queue_offset], (bases + sizes)[:-1]]), queue_offset)
        stops = np.where(places < 0, bases + sizes, bases)
        runs.extend((int(starts[at]), int(stops[at])) for at in np.flatnonzero(stops > starts))
        queue_offset = max(int(bases[-1] + sizes[-1]), queue_offset)
    return found, runs
