"""What the kernels measure of a run of physical offsets, by a plain loop."""

import itertools
from collections.abc import Sequence


def measure_offsets(offsets: Sequence[int], gap: int) -> tuple[int, int, bool, list[tuple[int, int]]]:
    """Smallest, largest, whether none is below the one before it, and where the next one is more than `gap` ahead."""
    pairs = list(itertools.pairwise(offsets))
    gaps = [(left, right) for left, right in pairs if right - left > gap]
    return min(offsets), max(offsets), all(left <= right for left, right in pairs), gaps
