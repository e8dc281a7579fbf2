"""How many entries an index file has, between which physical offsets, and where they are too far apart.

Looked at is the whole file, whose slots and pointers are known to follow from its hashes. A compacted one is taken for
what its mark says it is (:mod:`storage.index.index_mark`) only if the mark is true and the entries lie as it says.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from storage.index.index_mark import is_true, read_mark
from storage.kernels.lookup import ENTRY_BYTES
from storage.kernels.structure import (
    GAP_BYTES,
    NO_ENTRY,
    STATS_ASCENDING,
    STATS_GAPS,
    STATS_MAXIMUM,
    STATS_MINIMUM,
    STRETCH_BYTES,
    measure_compacted,
    measure_entries,
)
from storage.mapped_file import MappedFile

MAXIMUM_GAPS = 64
MOST_STRETCHES = 1 << 22
"""Of how much log a compacted file may hold entries: 16 TiB."""

Gap = tuple[int, int]


@dataclass(frozen=True, slots=True)
class IndexShape:
    """What a structural check found out about a file.

    ``entries`` are numbered from 1; ``minimum`` and ``maximum`` are the physical offsets among them, ``ascending``
    says that they never fall from one entry to the next, or where the first ``compacted`` entries lie slot by slot,
    from one entry of a slot to the next; ``gaps`` are (from, to) offsets of neighbours in the log
    that are more than 8 MiB apart.
    """

    slots: int
    entries: int
    minimum: int
    maximum: int
    ascending: bool
    gaps: tuple[Gap, ...]
    compacted: int = 0


def measure_shape(file: MappedFile, slots: int, entries: int) -> IndexShape:
    """Measure the first ``entries`` of a file of so many slots. Waits for the disk."""
    mark = read_mark(file.view, slots)
    if mark is not None and mark.entries <= entries and is_true(file.view, slots):
        shape = _measure_compacted(file, slots, entries, mark.entries)
        if shape is not None:
            return shape
    return _measure_part(file, slots, 0, entries)


def _measure_part(file: MappedFile, slots: int, before: int, entries: int) -> IndexShape:
    """Measure the entries behind the first ``before`` ones, in the order of the log."""
    stats = np.zeros(4, dtype=np.int64)
    gaps = np.zeros((MAXIMUM_GAPS, 2), dtype=np.int64)
    measure_entries(file.address + ENTRY_BYTES * before, slots, entries - before, stats, gaps)
    count = int(stats[STATS_GAPS])
    rows = [(int(start), int(stop)) for start, stop in gaps[: min(count, MAXIMUM_GAPS)]]
    if count > MAXIMUM_GAPS:
        rows.append((rows[-1][1], int(stats[STATS_MAXIMUM])))
    return IndexShape(
        slots, entries, int(stats[STATS_MINIMUM]), int(stats[STATS_MAXIMUM]), bool(stats[STATS_ASCENDING]), tuple(rows)
    )


def _measure_compacted(file: MappedFile, slots: int, entries: int, compacted: int) -> IndexShape | None:
    """Measure a file whose first entries should lie slot by slot; None if they do not, or what came later is amiss."""
    stats, none = np.zeros(4, dtype=np.int64), np.zeros((0, 2), dtype=np.int64)
    if measure_compacted(file.address, slots, compacted, 0, none, stats):
        return None
    minimum, maximum, ascending = (int(stats[place]) for place in (STATS_MINIMUM, STATS_MAXIMUM, STATS_ASCENDING))
    count = (maximum - minimum) // STRETCH_BYTES + 1
    if minimum < 0 or count > MOST_STRETCHES:
        return None
    stretches = np.zeros((count, 2), dtype=np.int64)
    measure_compacted(file.address, slots, compacted, minimum, stretches, stats)
    gaps = _gaps_between(stretches)
    if entries > compacted:
        later = _measure_part(file, slots, compacted, entries)
        if later.minimum < maximum or not later.ascending:
            return None
        # The record that stood last may have keys on both sides, and so may the first one behind it.
        gaps += [(maximum, later.minimum), *later.gaps]
        maximum = later.maximum
    return IndexShape(slots, entries, minimum, maximum, bool(ascending), limit_gaps(gaps, maximum), compacted)


def limit_gaps(gaps: Sequence[Gap], maximum: int) -> tuple[Gap, ...]:
    """Ascending gaps of a file that ends at ``maximum``; of too many of them what is behind counts as one."""
    if len(gaps) <= MAXIMUM_GAPS:
        return tuple(gaps)
    return (*gaps[:MAXIMUM_GAPS], (gaps[MAXIMUM_GAPS][0], max(maximum, gaps[MAXIMUM_GAPS][0])))


def _gaps_between(stretches: npt.NDArray[np.int64]) -> list[Gap]:
    """Neighbours more than GAP_BYTES apart, from the lowest and the highest entry of each stretch of the log."""
    used = stretches[stretches[:, 0] != NO_ENTRY]
    lower, upper = used[:-1, 1], used[1:, 0]
    far = upper - lower > GAP_BYTES
    return list(zip(lower[far].tolist(), upper[far].tolist(), strict=True))
