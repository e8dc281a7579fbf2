"""A log whose records were moved to other physical offsets: what was where.

A task that moves a segment's records leaves a block with the columns `before` and `after`, the positions of each record
in the old and in the new segment, both ascending. Both segments start at the same physical offset.
"""

from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from spark_jobs.run.blocks import read_block_at
from storage.build.existing_queue import ReadableLog

NOWHERE: Final = -1
"""In place of a physical offset: no record was moved from there."""

Offsets = npt.NDArray[np.int64]
_Positions = tuple[npt.NDArray[Any], npt.NDArray[Any]]


class MovedSegment(msgspec.Struct, frozen=True):
    """Where a segment starts, and the file that begins with the block of its records' positions."""

    base_offset: int
    path: str


class MovedLog(msgspec.Struct, frozen=True):
    """The segments in order, and what of the log could be read before its records were moved.

    Without segments all records stayed where they were, but for the lost ones.
    """

    segments: tuple[MovedSegment, ...]
    log: ReadableLog

    def new_offsets(self, offsets: Offsets) -> Offsets:
        """Where the records that started at some physical offsets start now.

        NOWHERE for those that are none; an offset below the log stays, since it is below the new one, too.
        """
        if not self.segments:
            return np.where(self.log.are_lost(offsets), NOWHERE, offsets)
        found = np.where(offsets < self.log.minimum, offsets, NOWHERE)
        numbers = np.searchsorted(self._bases(), offsets, side="right") - 1
        for number in np.unique(numbers[offsets >= self.log.minimum]).tolist():
            mine = (numbers == number) & (offsets >= self.log.minimum)
            before, after = _positions(self.segments[number].path)
            found[mine] = _translated(offsets[mine] - self.segments[number].base_offset, before, after)
            there = mine & (found >= 0)
            found[there] += self.segments[number].base_offset
        return found

    def new_offset(self, offset: int | None) -> int | None:
        """Where one record starts now; None for none, and where it was not moved."""
        if offset is None:
            return None
        found = int(self.new_offsets(np.array([offset], np.int64))[0])
        return None if found == NOWHERE else found

    def old_offset(self, offset: int) -> int:
        """Where the record started that starts at a physical offset now; the offset itself where none does."""
        number = int(np.searchsorted(self._bases(), offset, side="right")) - 1
        if number < 0:
            return offset
        base = self.segments[number].base_offset
        before, after = _positions(self.segments[number].path)
        found = int(_translated(np.array([offset - base], np.int64), after, before)[0])
        return offset if found == NOWHERE else base + found

    def _bases(self) -> Offsets:
        return np.array([each.base_offset for each in self.segments], np.int64)


def _translated(positions: Offsets, keys: npt.NDArray[Any], values: npt.NDArray[Any]) -> Offsets:
    """The value beside each position among ascending keys, NOWHERE where it is not among them."""
    found = np.full(positions.shape, NOWHERE, np.int64)
    if keys.size:
        places = np.minimum(np.searchsorted(keys, positions), keys.size - 1)
        there = keys[places] == positions
        found[there] = values[places[there]]
    return found


@lru_cache(maxsize=2)
def _positions(path: str) -> _Positions:
    columns = read_block_at(Path(path), 0).columns
    return columns["before"], columns["after"]
