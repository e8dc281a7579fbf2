"""Sorting numbers, each once."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from storage.search._ascending import ascending


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 3)))
def test_numbers_are_in_order_and_each_is_there_once(numbers: list[int]) -> None:
    assert ascending(np.array(numbers, np.int64)).tolist() == sorted(set(numbers))
