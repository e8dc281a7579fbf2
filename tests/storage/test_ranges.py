"""Ranges of offsets, against sets of offsets."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from storage.ranges import NEAR, coarse, intersect, lie_within, merge, subtract, total_length

LENGTH = 30


def as_ranges(numbers):
    ordered = sorted(numbers)
    return tuple(zip(ordered[::2], ordered[1::2], strict=False))


disjoint = st.sets(st.integers(0, LENGTH)).map(as_ranges)
touching = st.lists(st.integers(1, 5), max_size=6).map(
    lambda sizes: tuple((sum(sizes[:i]), sum(sizes[: i + 1])) for i in range(len(sizes)))
)
ranges = disjoint | touching


def members(found):
    return {number for start, stop in found for number in range(start, stop)}


def is_well_formed(found):
    bounds = [bound for part in found for bound in part]
    return bounds == sorted(bounds) and all(start < stop for start, stop in found)


@given(ranges, ranges)
def test_the_intersection_holds_what_is_in_both(left, right) -> None:
    found = intersect(left, right)
    assert members(found) == members(left) & members(right)
    assert is_well_formed(found)


@given(ranges, ranges)
def test_the_difference_holds_what_is_in_the_first_alone(left, right) -> None:
    found = subtract(left, right)
    assert members(found) == members(left) - members(right)
    assert is_well_formed(found)


@given(st.lists(st.tuples(st.integers(0, LENGTH), st.integers(0, LENGTH)), max_size=8))
def test_merged_are_ranges_in_any_order_and_none_touches_the_next(given_ranges) -> None:
    found = merge(given_ranges)
    assert members(found) == members(tuple(given_ranges))
    assert is_well_formed(found)
    assert all(left[1] < right[0] for left, right in itertools.pairwise(found))


@given(ranges)
def test_an_offset_lies_within_a_range_or_in_none(given_ranges) -> None:
    offsets = np.array([5, *range(LENGTH + 3)], dtype=np.int64)
    assert lie_within(offsets, given_ranges).tolist() == [int(o) in members(given_ranges) for o in offsets]
    assert total_length(given_ranges) == len(members(given_ranges))


@given(st.sets(st.integers(0, 40).map(lambda number: number * (NEAR // 4)), max_size=20), st.integers(1, 8))
def test_coarse_ranges_hold_all_and_are_few(starts: set[int], most: int) -> None:
    ranges = [(start, start + 1) for start in sorted(starts)]
    found = coarse(ranges, most)
    assert subtract(ranges, found) == ()
    assert {start for start, _ in found} <= starts
    assert {stop - 1 for _, stop in found} <= starts
    assert len(found) <= most
    assert all(later - earlier > NEAR for (_, earlier), (later, _) in itertools.pairwise(found))
    gaps = [later - earlier for (_, earlier), (later, _) in itertools.pairwise(ranges)]
    assert len(found) == min(most, sum(gap > NEAR for gap in gaps) + 1) if ranges else found == ()
