"""How many entries an index file has, between which physical offsets, and where they are too far apart.

Looked at is the whole file, whose slots and pointers are known to follow from its hashes. A compacted one is taken for
what its mark says it is (:mod:`storage.index.index_mark`) only if the mark is true and the entries lie as it says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from storage.arrays import np, npt
from storage.files.mapped_file import MappedFile
from storage.index.index_mark import is_true, mark_of
from storage.kernels.indexes import GAP_BYTES, NO_ENTRY, STRETCH_BYTES, measure_compacted, measure_entries

MAXIMUM_GAPS = 64
MOST_STRETCHES = 1 << 22
"""Of how much log a compacted file may hold entries: 16 TiB."""

OffsetGap = tuple[int, int]


@dataclass(frozen=True, slots=True)
class IndexShape:
    """The result of a structural check of an index file.

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
    gaps: tuple[OffsetGap, ...]
    compacted: int = 0


def measure_shape(file: MappedFile, slots: int, entries: int) -> IndexShape:
    """Measure the first ``entries`` of a file of so many slots. Waits for the disk."""
    mark = mark_of(file, slots)
    if mark is not None and mark.entries <= entries and is_true(file.view, slots):
        shape = _measure_compacted(file, slots, entries, mark.entries)
        if shape is not None:
            return shape
    return _measure_part(file, slots, 0, entries)


def _measure_part(file: MappedFile, slots: int, before: int, entries: int) -> IndexShape:
    """Measure the entries behind the first ``before`` ones, in the order of the log."""
    span = measure_entries(file.region, slots, before, entries, MAXIMUM_GAPS)
    gaps = span.gaps
    if span.gap_count > MAXIMUM_GAPS:
        gaps = [*gaps, (gaps[-1][1], span.maximum)]
    return IndexShape(slots, entries, span.minimum, span.maximum, span.ascending, tuple(gaps))


def _measure_compacted(file: MappedFile, slots: int, entries: int, compacted: int) -> IndexShape | None:
    """Measure a file whose first entries should lie slot by slot; None if they do not, or what came later is amiss."""
    none = np.zeros(0, dtype=np.int64)
    span = measure_compacted(file.region, slots, compacted, 0, none, none)
    minimum, maximum = span.minimum, span.maximum
    count = (maximum - minimum) // STRETCH_BYTES + 1
    if span.bad or minimum < 0 or count > MOST_STRETCHES:
        return None
    lowest, highest = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    measure_compacted(file.region, slots, compacted, minimum, lowest, highest)
    gaps = _gaps_between(lowest, highest)
    if entries > compacted:
        later = _measure_part(file, slots, compacted, entries)
        if later.minimum < maximum or not later.ascending:
            return None
        # The record that stood last may have keys on both sides, and so may the first one behind it.
        gaps += [(maximum, later.minimum), *later.gaps]
        maximum = later.maximum
    return IndexShape(slots, entries, minimum, maximum, span.ascending, limit_gaps(gaps, maximum), compacted)


def limit_gaps(gaps: Sequence[OffsetGap], maximum: int) -> tuple[OffsetGap, ...]:
    """Ascending gaps of a file that ends at ``maximum``; of too many of them what is behind counts as one."""
    if len(gaps) <= MAXIMUM_GAPS:
        return tuple(gaps)
    return (*gaps[:MAXIMUM_GAPS], (gaps[MAXIMUM_GAPS][0], max(maximum, gaps[MAXIMUM_GAPS][0])))


def _gaps_between(lowest: npt.NDArray[np.int64], highest: npt.NDArray[np.int64]) -> list[OffsetGap]:
    """Neighbours more than GAP_BYTES apart, from the lowest and the highest entry of each stretch of the log."""
    used = lowest != NO_ENTRY
    lower, upper = highest[used][:-1], lowest[used][1:]
    far = upper - lower > GAP_BYTES
    return list(zip(lower[far].tolist(), upper[far].tolist(), strict=True))
