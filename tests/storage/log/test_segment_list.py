"""The size of a log's segments is found again whatever became of the files."""

from hypothesis import assume, given
from hypothesis import strategies as st

from storage.log.segment_list import segment_size

SIZE = 131_072


@given(st.sampled_from([0, SIZE, 7 * SIZE]), st.lists(st.integers(1, SIZE - 1), min_size=2, max_size=6))
def test_names_say_it_where_each_segment_was_cut(first: int, cut: list[int]) -> None:
    assume(all(SIZE % size for size in cut))  # of such a size other segments could be missing
    assert segment_size([(first + number * SIZE, size) for number, size in enumerate(cut)]) == SIZE


@given(st.sets(st.integers(0, 9), min_size=1), st.integers(1, SIZE * 3))
def test_one_file_of_another_length_does_not_count_against_two(numbers: set[int], length: int) -> None:
    places = sorted(numbers | {10, 11})
    files = [(number * SIZE, SIZE) for number in places]
    for cut in range(len(files)):
        assert segment_size([*files[:cut], (files[cut][0], length), *files[cut + 1 :]]) == SIZE


def test_what_names_and_sizes_say_together() -> None:
    for files, expected in [
        ([], 0),
        ([(0, 0)], 0),
        ([(0, 130_000)], 130_000),
        ([(0, 130_000), (SIZE, 20_000)], SIZE),
        ([(0, 130_000), (SIZE, 130_000)], SIZE),
        ([(0, 130_000), (2 * SIZE, 20_000), (5 * SIZE, 100)], SIZE),  # the names' common distance
        ([(0, SIZE), (2 * SIZE, SIZE)], SIZE),
        ([(0, SIZE - 5), (SIZE, SIZE + 100)], SIZE),
        ([(0, SIZE), (SIZE, SIZE), (2 * SIZE + 100, SIZE)], SIZE),
    ]:
        assert segment_size(files) == expected
