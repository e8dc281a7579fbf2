"""Ranges of physical offsets, [from, to): what of one list of them lies in another, and what does not.

Every list is ascending, and its ranges are not empty and do not overlap.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from storage.arrays import np, npt

Range: TypeAlias = tuple[int, int]
Ranges: TypeAlias = tuple[Range, ...]

NEAR: Final = 1 << 16
"""Bytes of log between what is read that are read with it rather than left out."""

MOST: Final = 4096
"""Ranges that are kept apart where there may be very many."""


def intersect(left: Sequence[Range], right: Sequence[Range]) -> Ranges:
    """What lies in both."""
    found: list[Range] = []
    i = j = 0
    while i < len(left) and j < len(right):
        start, stop = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if start < stop:
            found.append((start, stop))
        if left[i][1] <= right[j][1]:
            i += 1
        else:
            j += 1
    return tuple(found)


def subtract(left: Sequence[Range], right: Sequence[Range]) -> Ranges:
    """What lies in ``left`` and not in ``right``."""
    found: list[Range] = []
    j = 0
    for start, stop in left:
        while j < len(right) and right[j][1] <= start:
            j += 1
        k = j
        while k < len(right) and right[k][0] < stop:
            if start < right[k][0]:
                found.append((start, right[k][0]))
            start = right[k][1]
            k += 1
        if start < stop:
            found.append((start, stop))
    return tuple(found)


def merge(ranges: Iterable[Range]) -> Ranges:
    """Ranges in any order, which may overlap or be empty, as such a list; those that touch are one."""
    found: list[Range] = []
    for start, stop in sorted(ranges):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], stop))
        elif start < stop:
            found.append((start, stop))
    return tuple(found)


def coarse(ranges: Sequence[Range] | npt.NDArray[np.int64], most: int = MOST) -> Ranges:
    """At most so many ranges that hold these: neighbours no further apart than `NEAR` are one, and else the nearest."""
    bounds = np.array(ranges, np.int64).reshape(-1, 2)
    if not len(bounds):
        return ()
    gaps = bounds[1:, 0] - bounds[:-1, 1]
    kept = np.flatnonzero(gaps > NEAR)
    if len(kept) >= most:
        kept = np.sort(np.argsort(gaps, kind="stable")[len(gaps) - most + 1 :])
    starts, stops = bounds[np.concatenate([[0], kept + 1]), 0], bounds[np.concatenate([kept, [-1]]), 1]
    return tuple(zip(starts.tolist(), stops.tolist(), strict=True))


def total_length(ranges: Iterable[Range]) -> int:
    """Offsets in all ranges together."""
    return sum(stop - start for start, stop in ranges)


def lie_within(offsets: npt.NDArray[np.int64], ranges: Sequence[Range]) -> npt.NDArray[np.bool_]:
    """Which of some offsets, in any order, lie in any of the ranges."""
    if len(ranges) == 1:
        return (offsets >= ranges[0][0]) & (offsets < ranges[0][1])
    bounds = np.array(ranges, dtype=np.int64).reshape(-1)
    # Where a range begins at the end of the one before it, the bound that stands there twice counts twice.
    inside: npt.NDArray[np.bool_] = np.searchsorted(bounds, offsets, side="right") % 2 == 1
    return inside
