"""What the kernels measure of a run of physical offsets, by a plain loop."""

import itertools


def measure_offsets(offsets, gap):
    pairs = list(itertools.pairwise(offsets))
    gaps = [(left, right) for left, right in pairs if right - left > gap]
    return min(offsets), max(offsets), all(left <= right for left, right in pairs), gaps
