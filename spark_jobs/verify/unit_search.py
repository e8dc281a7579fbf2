"""Where in a queue's files stands the unit that points to a physical offset, however far away and behind what damage.

Units ascend by physical offset. What is looked for is searched in those pieces of the files alone whose units could
point there, and the pieces read last are kept sorted. A unit that does not lie between those beside it in the log, as
far as these say anything, is a copy, left over or damaged: it tells nothing, as in :mod:`storage.queue.unit_standing`.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from spark_jobs.verify.unit_files import UnitFiles
from storage.files.recently_used import RecentlyUsed

PIECE: Final = 1 << 16
"""Units of a piece; 16 bytes are kept of each unit of the pieces read last, and 16 bytes of each other piece."""

KEPT: Final = 8

Numbers = npt.NDArray[np.int64]
Piece = tuple[Numbers, Numbers]
"""Physical offsets of a piece, sorted, and the places of their units."""


class UnitSearch:
    """Looks for units of one queue; the first question reads all of its files."""

    def __init__(self, files: UnitFiles, log_end: int) -> None:
        """Nothing is read yet; units that point to ``log_end`` or beyond are not looked for."""
        self._files, self._log_end = files, log_end
        self._extents: Numbers | None = None
        self._pieces: RecentlyUsed[Piece] = RecentlyUsed(KEPT)

    def places_of(self, physical_offsets: Numbers, start: int) -> Numbers:
        """The first places from ``start`` on whose units point to some offsets, which ascend; −1 for none."""
        found = np.full(len(physical_offsets), -1, np.int64)
        extents = self._all_extents()
        low, high = physical_offsets[0], physical_offsets[-1]
        for number in np.flatnonzero((extents[:, 0] <= high) & (extents[:, 1] >= low)).tolist():
            if self._files.first + (number + 1) * PIECE <= start:
                continue
            offsets, places = self._piece(number)
            from_start = places >= start
            offsets, places = offsets[from_start], places[from_start]
            at = np.searchsorted(offsets, physical_offsets)
            inside = np.flatnonzero((at < len(offsets)) & (found < 0))
            is_there = inside[offsets[at[inside]] == physical_offsets[inside]]
            found[is_there] = places[at[is_there]]
        return found

    def first_behind(self, physical_offset: int, start: int, stop: int) -> int:
        """The first place in [start, stop) whose unit points behind an offset; ``stop`` without one."""
        number = max(start - self._files.first, 0) // PIECE
        while self._files.first + number * PIECE < stop:
            offsets, places = self._piece(number)
            found = places[(offsets > physical_offset) & (places >= start) & (places < stop)]
            if found.size:
                return int(found.min())
            number += 1
        return stop

    def _all_extents(self) -> Numbers:
        """The lowest and the highest physical offset of each piece; a piece without any has the highest first."""
        if self._extents is None:
            count = -(-max(self._files.end - self._files.first, 0) // PIECE)
            extents = np.full((count, 2), (1, 0), np.int64)
            for number in range(count):
                offsets, _ = self._piece(number)
                if offsets.size:
                    extents[number] = offsets[0], offsets[-1]
            self._extents = extents
        return self._extents

    def _piece(self, number: int) -> Piece:
        return self._pieces.get(str(number), lambda: self._read(number))

    def _read(self, number: int) -> Piece:
        first = self._files.first + number * PIECE
        stop = min(first + PIECE, self._files.end)
        units = self._files.read(first - 1, stop - first + 2)
        offsets = units["physical_offset"].astype(np.int64)
        offsets[(units["size"] <= 0) | (offsets < 0) | (offsets >= self._log_end)] = -1
        before, here, behind = offsets[:-2], offsets[1:-1], offsets[2:]
        standing = np.flatnonzero((here >= 0) & (before < here) & ((behind < 0) | (here < behind)))
        order = np.argsort(here[standing], kind="stable")
        return here[standing][order], (standing + first)[order]
