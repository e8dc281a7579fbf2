"""Old queue files say how far a queue's numbers went, and nothing that no broker would believe."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import StoreError
from queue_runs import batch_unit, unit
from storage.build.existing_queue import OldQueue, ReadableLog, has_data_behind
from store_files import PRE_BLANK, write_file

GONE = ReadableLog(minimum=10_000, end=20_000)
"""A log whose records before 10,000 have expired."""


def write(directory: Path, *units: bytes, start: int = 0, per_file: int = 10) -> OldQueue:
    """Files of ten units each from a byte offset on."""
    size = len(units[0]) if units else 20
    for first in range(0, max(len(units), 1), per_file):
        content = b"".join(units[first : first + per_file])
        write_file(directory / f"{start + first * size:020d}", per_file * size, {0: content} if content else {})
    return OldQueue(directory, batch=size == 46)


@given(
    ranges=st.lists(st.integers(0, 100), min_size=2, max_size=10, unique=True).map(sorted),
    offsets=st.lists(st.integers(-5, 110), max_size=20),
)
def test_lost_offsets_are_those_in_a_lost_range(ranges: list[int], offsets: list[int]) -> None:
    lost = list(zip(ranges[::2], ranges[1::2], strict=False))
    log = ReadableLog(0, 100, lost)
    expected = [any(start <= offset < end for start, end in lost) for offset in offsets]
    assert log.are_lost(np.array(offsets, ">i8")).tolist() == expected
    for offset in offsets:
        assert log.loses_behind(offset) == any(end > offset for _, end in lost)


@pytest.mark.parametrize("count", [0, 41])
def test_an_expired_queue_ends_behind_its_last_unit(count: int, tmp_path: Path) -> None:
    queue = write(tmp_path, *(unit(100 * n) for n in range(count)), start=200)
    end = queue.end(GONE)
    assert end == 200 + count * 20
    assert queue.next_offset(end) == 10 + count


@pytest.mark.parametrize(
    ("bad", "first", "count"),
    [
        (bytes(20), 0, 699),
        (unit(-1), 0, 1),
        (unit(15_000), 3, 690),
        (unit(20_000), 100, 1),
        (unit(90, size=-4), 100, 500),
    ],
)
def test_damaged_units_of_any_number_do_not_end_the_queue(bad: bytes, first: int, count: int, tmp_path: Path) -> None:
    units = [unit(n) for n in range(700)]
    units[first : first + count] = [bad] * count
    for per_file in (800, 50):
        assert write(tmp_path / str(per_file), *units, per_file=per_file).end(GONE) == 700 * 20


def test_the_number_behind_a_batch_stands_in_its_unit(tmp_path: Path) -> None:
    queue = write(tmp_path, *(batch_unit(100 * n, 4 * n, 4) for n in range(23)))
    assert queue.end(GONE) == 23 * 46
    assert queue.next_offset(23 * 46) == 92
    assert queue.next_offset(0) == 0
    spoilt = write(tmp_path / "spoilt", batch_unit(0, 0, 4), batch_unit(100, 4, 0), batch_unit(200, 4, 4))
    assert spoilt.end(GONE) == 3 * 46
    assert write(tmp_path / "last", batch_unit(0, 0, 4), batch_unit(100, 4, 0)).end(GONE) == 46


def test_the_first_unit_tells_where_the_queue_was_born(tmp_path: Path) -> None:
    assert write(tmp_path / "a", unit(700), unit(800)).born_at() == 700
    assert write(tmp_path / "b", batch_unit(900, 0, 1)).born_at() == 900
    for name, units, start in (
        ("late", [unit(700)], 200),
        ("filler", [PRE_BLANK, unit(700)], 0),
        ("blank", [], 0),
        ("spoilt", [unit(-4)], 0),
    ):
        assert write(tmp_path / name, *units, start=start).born_at() is None, name
    assert OldQueue(tmp_path / "nothing").born_at() is None


def test_a_queue_went_on_as_far_as_its_units_point_to_what_is_lost(tmp_path: Path) -> None:
    log = ReadableLog(0, 20_000, [(1000, 1500), (2000, 9000)])
    units = [unit(900), unit(1000), unit(1500), unit(2000), unit(3000), unit(8999)]
    assert write(tmp_path / "a", *units).offset_behind_lost(1500, 3, log) == 6
    assert write(tmp_path / "b", *units, unit(9000), unit(2500)).offset_behind_lost(1500, 3, log) == 6
    assert write(tmp_path / "c", *units).offset_behind_lost(9500, 3, log) == 3
    assert write(tmp_path / "d", *units[:3], unit(1200), unit(3000)).offset_behind_lost(1500, 3, log) == 3
    assert write(tmp_path / "e", *units, start=400).offset_behind_lost(1500, 3, log) == 3
    assert write(tmp_path / "f").offset_behind_lost(1500, 3, log) == 3
    assert write(tmp_path / "g", *units).offset_behind_lost(1500, 3, ReadableLog(0, 2500, log.lost)) == 4


def test_damaged_units_among_those_of_lost_messages_say_nothing(tmp_path: Path) -> None:
    log = ReadableLog(0, 1 << 40, [(1000, 1 << 39)])
    units = [unit(100), *(unit(1000 + n) for n in range(900))]
    units[5:400] = [bytes(20)] * 200 + [unit(5000, size=-1)] * 195
    assert write(tmp_path / "plain", *units, per_file=2000).offset_behind_lost(100, 1, log) == 901
    batches = [
        batch_unit(100, 0, 4),
        batch_unit(1000, 4, 4),
        batch_unit(1100, 8, 0),
        bytes(46),
        batch_unit(1200, 16, 4),
    ]
    assert write(tmp_path / "batches", *batches).offset_behind_lost(100, 4, log) == 20


@pytest.mark.parametrize("count", [11, 1500])
def test_long_losses_are_followed_from_file_to_file(count: int, tmp_path: Path) -> None:
    log = ReadableLog(0, 1 << 40, [(1000, 1 << 39)])
    units = [unit(100), *(unit(1000 + n) for n in range(count - 1))]
    assert write(tmp_path, *units, per_file=200).offset_behind_lost(100, 1, log) == count


def test_lost_batches_behind_the_last_readable_one_count(tmp_path: Path) -> None:
    log = ReadableLog(0, 20_000, [(1000, 1500), (2000, 9000)])
    units = [batch_unit(place, 10 * n, 10) for n, place in enumerate([900, 1200, 1600, 2100, 8000])]
    assert write(tmp_path / "a", *units, per_file=2).offset_behind_lost(1600, 30, log) == 50
    assert write(tmp_path / "b", *units, batch_unit(9000, 50, 10)).offset_behind_lost(1600, 30, log) == 50
    assert write(tmp_path / "c", *units).offset_behind_lost(9900, 30, log) == 30
    assert write(tmp_path / "d", *units[:3]).offset_behind_lost(1600, 30, log) == 30


def test_data_behind_a_position_is_found_past_holes(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_file(path, 1 << 24, {100: b"x"})
    assert has_data_behind(path, 0)
    assert has_data_behind(path, 100)
    assert not has_data_behind(path, 101)
    write_file(path, 1 << 24, {(1 << 24) - 1: b"x"})
    assert has_data_behind(path, 101)
    assert not has_data_behind(path, 1 << 24)
    with pytest.raises(StoreError, match="cannot be opened"):
        has_data_behind(tmp_path / "none", 0)
