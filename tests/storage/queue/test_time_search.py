"""Searching a queue for a time: a model that looks at every message, and the broker's oddities where it has some."""

import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from doctoring import put
from examples import examples
from queue_stores import open_queues, queue_of
from storage.files.waiting import Lookup, finish
from storage.queue._time_search import FileOfUnits, offset_by_timestamp
from storage.queue.queue import Queue, TimeBoundary
from store_writer import StoreWriter

LOWER, UPPER = TimeBoundary.LOWER, TimeBoundary.UPPER


def model(times: list[int], minimum: int, timestamp: int, boundary: TimeBoundary) -> int:
    """What a search means where clocks never stepped back: `times[q]` for each queue offset, −1 for expired ones."""
    numbers = range(minimum, len(times))
    if boundary is LOWER:
        return min((number for number in numbers if times[number] >= timestamp), default=len(times))
    return max((number for number in numbers if times[number] <= timestamp), default=minimum)


def time_in(times: Mapping[int, int] | Sequence[int]) -> Callable[[int], Lookup[int]]:
    def time_of(queue_offset: int) -> Lookup[int]:
        yield from ()
        return times[queue_offset]

    return time_of


def search(times: list[int], per_file: int, minimum: int, timestamp: int, boundary: TimeBoundary) -> int:
    """The search under test over `times` cut into files, clamped as its caller does."""
    starts = range(0, len(times), per_file)
    files = [FileOfUnits(start, min(start + per_file, len(times)) - 1) for start in starts]
    found = finish(offset_by_timestamp(files, minimum, timestamp, boundary, time_in(times)))
    return min(max(found, minimum), len(times))


@given(
    steps=st.lists(st.integers(0, 3), min_size=1, max_size=40),
    per_file=st.integers(1, 12),
    expired=st.integers(0, 39),
    timestamp=st.integers(95, 225),
    boundary=st.sampled_from(TimeBoundary),
)
def test_every_search_of_rising_times_equals_the_model(
    steps: list[int], per_file: int, expired: int, timestamp: int, boundary: TimeBoundary
) -> None:
    times = [100 + sum(steps[: number + 1]) for number in range(len(steps))]
    minimum = min(expired, len(times) - 1)
    times[:minimum] = [-1] * minimum
    expected = model(times, minimum, timestamp, boundary)
    assert search(times, per_file, minimum, timestamp, boundary) == expected


TWO_FILES = [10, 20, 20, 20, 20, 30, 30, 40]


def test_the_brokers_answers_before_everything_and_where_a_message_is_unreadable() -> None:
    """Before: the file's first unit, or 0. Unreadable: 0 in the middle; the last one is older than any time."""
    files = [FileOfUnits(10, 19)]
    assert finish(offset_by_timestamp(files, 12, 5, LOWER, time_in(defaultdict(lambda: 100)))) == 10
    assert finish(offset_by_timestamp(files, 12, 5, UPPER, time_in(defaultdict(lambda: 100)))) == 0
    assert finish(offset_by_timestamp([FileOfUnits(0, 4)], 0, 20, LOWER, time_in([10, 20, -1, 40, 50]))) == 0
    times = [10, 20, 30, -1]
    assert finish(offset_by_timestamp([FileOfUnits(0, 3)], 0, 20, LOWER, time_in(times))) == 4
    assert finish(offset_by_timestamp([FileOfUnits(0, 3)], 0, 20, UPPER, time_in(times))) == 3


def written_queue(root: Path, times: list[int], expired_segments: int = 0) -> Queue:
    """A queue whose messages have these store times, one message a segment and four units a file."""
    writer = StoreWriter(root, queue_file_size=80, segment_size=256)
    for time in times:
        writer.append("T", bytes(100), store_timestamp=time)
    writer.flush()
    for path in sorted((root / "commitlog").iterdir())[:expired_segments]:
        path.unlink()
    queue = queue_of(open_queues(root)[0])
    return queue


@pytest.mark.parametrize("expired", [0, 3])
@pytest.mark.parametrize(("first", "data"), [(0, bytes(20)), (3, bytes(8) + b"\1" * 12), (6, b"\xff" * 20)])
def test_damaged_units_do_not_mislead_a_search(data: bytes, first: int, expired: int, tmp_path: Path) -> None:
    times = [1000 + time for time in TWO_FILES]
    written_queue(tmp_path, times, expired)
    for number in range(max(first, expired), min(first + 3, 7)):
        put(tmp_path / "consumequeue" / "T" / "0" / f"{number // 4 * 80:020d}", number % 4 * 20, data)
    queue = queue_of(open_queues(tmp_path)[0])
    assert (queue.min_offset, queue.max_offset) == (expired, 8)
    for timestamp in range(1005, 1045):
        for boundary in TimeBoundary:
            expected = model(times, expired, timestamp, boundary)
            assert queue.offset_by_timestamp(timestamp, boundary) == expected, (timestamp, boundary)


@settings(max_examples=examples(8), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    lost_files=st.sets(st.integers(1, 3), max_size=2),
    zeroed=st.sets(st.integers(1, 18), max_size=6),
    gone=st.sets(st.integers(1, 18), max_size=12),
)
@example(lost_files={2}, zeroed=set(), gone=set(range(7, 10)))
def test_every_message_of_the_log_is_found_by_its_time_whatever_units_and_segments_are_lost(
    lost_files: set[int], zeroed: set[int], gone: set[int]
) -> None:
    """Reading starts at no message before it, and at none behind it."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        times = [1000 + 10 * number for number in range(20)]
        written_queue(root, times)
        units, segments = root / "consumequeue" / "T" / "0", sorted((root / "commitlog").iterdir())
        for number in zeroed:
            put(units / f"{number // 4 * 80:020d}", number % 4 * 20, bytes(20))
        for number in lost_files:
            (units / f"{number * 80:020d}").unlink()
        for number in gone:
            segments[number].unlink()
        queue = queue_of(open_queues(root)[0])
        there = [number for number in range(20) if number not in gone]
        assert (queue.min_offset, queue.max_offset) == (0, 20)
        for before, number in zip([-1, *there], there, strict=False):
            assert before < queue.offset_by_timestamp(times[number], TimeBoundary.LOWER) <= number
