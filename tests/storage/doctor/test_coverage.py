"""The numbers of the picture."""

from storage.doctor.coverage import picture_coverage
from storage.doctor.sampling import Sample


def sample(offset: int) -> Sample:
    return Sample(offset, 10, 1000 + offset, "T", 0, 0, True)


def test_neighbouring_segments_are_one_range_and_damage_is_left_out() -> None:
    coverage = picture_coverage([(0, 100), (100, 200), (300, 400)], [(50, 60)], [(0, 90)], [(0, 400)], [])
    assert coverage.log == ((0, 50), (60, 200), (300, 400))
    assert (coverage.minimum, coverage.end) == (0, 400)


def test_times_are_thinned_out() -> None:
    samples = [sample(number) for number in range(1000)]
    times = picture_coverage([(0, 1000)], [], [], [], samples).times
    assert 60 <= len(times) <= 70
    assert times[0] == (0, 1000)


def test_an_empty_log_has_no_ranges() -> None:
    assert picture_coverage([], [], [], [], []).log == ()
