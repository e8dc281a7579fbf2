"""Sort more entries than memory should hold: as much as it holds is sorted and written as a run, then runs are merged.

A run is a list of blocks in order. Of each run that is merged one block is in memory, so blocks of runs are small.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np

from spark_jobs.compact._entry_rows import EntryRows, join
from spark_jobs.compact._timed_block import TimedBlock

FAN_IN: Final = 16
"""Runs that are merged at once; of more, some are merged into longer ones first."""

Run = Sequence[TimedBlock]
WriteRun = Callable[[Iterator[EntryRows]], Run]
"""Writes rows that come in order, in small blocks; the blocks."""


def merge_sorted(runs: list[Run], write_run: WriteRun, fan_in: int = FAN_IN) -> Iterator[EntryRows]:
    """The rows of all runs in the order of store time, and for one time in that of the log, in portions."""
    while len(runs) > fan_in:
        runs = [write_run(_merge(runs[first : first + fan_in])) for first in range(0, len(runs), fan_in)]
    yield from _merge(runs)


def _merge(runs: Sequence[Run]) -> Iterator[EntryRows]:
    heads = [_Head(run) for run in runs if run]
    while heads:
        # What comes up to here is in memory of every run: each has read that far, or has nothing before it.
        bound = min(head.last for head in heads)
        parts = [part for head in heads if (part := head.take_up_to(bound)).offsets.size]
        yield join(parts).by_time()
        heads = [head for head in heads if head.goes_on()]


class _Head:
    """One run, of which one block is in memory; there must be one."""

    def __init__(self, run: Run) -> None:
        self._blocks = iter(run)
        self._rows = next(self._blocks).rows()
        self._at = 0

    @property
    def last(self) -> tuple[int, int]:
        """Store time and physical offset of the last row in memory."""
        return int(self._rows.timestamps[-1]), int(self._rows.offsets[-1])

    def take_up_to(self, bound: tuple[int, int]) -> EntryRows:
        """The next rows, as far as they come before a place in the order, or at it."""
        timestamp, physical_offset = bound
        times = self._rows.timestamps
        first = int(np.searchsorted(times, timestamp))
        stop = int(np.searchsorted(times, timestamp, side="right"))
        stop = first + int(np.searchsorted(self._rows.offsets[first:stop], physical_offset, side="right"))
        taken = self._rows.take(np.arange(self._at, stop))
        self._at = stop
        return taken

    def goes_on(self) -> bool:
        """Whether there are more rows; if need be the next block is read."""
        if self._at < self._rows.offsets.size:
            return True
        block = next(self._blocks, None)
        if block is None:
            return False
        self._rows, self._at = block.rows(), 0
        return True
