"""What stands in for lost messages, and where a run is cut."""

from hypothesis import given
from hypothesis import strategies as st

from oracles import packed, signed
from queue_runs import unit
from storage.build.queue_units import (
    PRE_BLANK,
    PULL_UNITS,
    GapFilling,
    share_gap,
    units_before,
    unreadable_unit,
)
from store_files import PRE_BLANK as BROKERS_FILLER


def test_gaps_are_shared_out_by_what_a_pull_could_miss() -> None:
    for count, in_one_segment, gap in [
        (0, True, (0, 0)),
        (1, False, (0, 1)),
        (64, True, (0, 64)),
        (64, False, (0, 64)),
        (65, True, (0, 65)),
        (65, False, (65, 0)),
        (1024, True, (0, 1024)),
        (5000, True, (5000 - 1024, 1024)),
        (5000, False, (5000, 0)),
    ]:
        assert share_gap(count, in_one_segment=in_one_segment) == GapFilling(*gap)
        assert share_gap(count, in_one_segment=in_one_segment, repeat=False) == GapFilling(count, 0)


def test_a_pull_never_sees_more_units_than_are_repeated() -> None:
    """By default a broker stops at 16,000 bytes of units, or behind as many as were asked for: at most 1024."""
    assert max(16_000 // 20, 1024) <= PULL_UNITS


@given(segment_size=st.sampled_from([1024, 1 << 20, 1 << 30]), number=st.integers(0, 1 << 20), inside=st.floats(0, 1))
def test_an_unreadable_unit_runs_out_of_its_segment_and_overflows_nothing(
    segment_size: int, number: int, inside: float
) -> None:
    physical_offset = number * segment_size + int(inside * (segment_size - 1))
    data = unreadable_unit(unit(physical_offset), segment_size)
    start, size = signed(data, 0, 8), signed(data, 8, 4)
    assert (start, signed(data, 12, 8)) == (physical_offset, 0)
    assert segment_size < start % segment_size + size < 1 << 31
    assert size > 0  # else a broker takes it for the queue's end


def test_before_any_unit_the_brokers_own_filler_stands() -> None:
    assert unreadable_unit(b"", 1024) == PRE_BLANK == BROKERS_FILLER


@given(count=st.integers(0, 20), stop=st.integers(-50, 2500), size=st.sampled_from([20, 46]))
def test_a_run_is_cut_where_the_log_ends(count: int, stop: int, size: int) -> None:
    run = [packed(100 * number, 8).ljust(size, b"u") for number in range(count)]
    kept = units_before(memoryview(b"".join(run)), size, stop)
    assert bytes(kept) == b"".join(run[number] for number in range(count) if 100 * number < stop)
