"""The log cut into cells: stretches of a segment small enough that all index entries of one fit in memory.

An index file's entries go to the cells that their offsets lie in, and each cell's entries, whatever files they come
from, are merged at once. The last cell of a segment ends where the segment's file does, or where the next one starts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from spark_jobs.scan.probe_store import SegmentPlace

CELL_BYTES: Final = 32 * 1024 * 1024
"""Even when every record were nothing but one-letter keys a cell would have no more than 16 million entries."""


@dataclass(frozen=True, slots=True)
class LogCells:
    """Physical offsets [start, end) of each cell, and the number of its segment; all ascending."""

    starts: np.ndarray
    ends: np.ndarray
    segments: np.ndarray


def cut_log(segments: Sequence[SegmentPlace], cell_bytes: int = CELL_BYTES) -> LogCells:
    """The cells of some segments in order."""
    rows = []
    for number, place in enumerate(segments):
        end = segment_limit(segments, number)
        rows += [(start, min(start + cell_bytes, end), number) for start in range(place.base_offset, end, cell_bytes)]
    table = np.array(rows, dtype=np.int64).reshape(-1, 3)
    return LogCells(*(np.ascontiguousarray(column) for column in table.T))


def segment_limit(segments: Sequence[SegmentPlace], number: int) -> int:
    """Physical offset where a segment's records must end."""
    place = segments[number]
    end = place.base_offset + place.size
    return min(end, segments[number + 1].base_offset) if number + 1 < len(segments) else end
