"""What is known of a queue is gone on from, and leads to where a whole new look would find its end."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.open_files import OpenFiles
from storage.queues.queue_files import QueueFiles
from storage.queues.queue_growth import Known, end_after, end_before

UNIT = 20


class FakeUnits:
    """Units of which some point into the log, and some of these to what is no message of the queue."""

    def __init__(self, units: list[str], log_end: int = 100) -> None:
        self.units, self.log_end = units, log_end
        self.judged: list[int] = []

    def last_within(self, floor: int, end: int) -> int:
        within = [number for number in range(floor, end) if self.units[number] != "beyond"]
        return within[-1] + 1 if within else floor

    def is_stray(self, number: int) -> bool:
        self.judged.append(number)
        return self.units[number] != "good"


units = st.lists(st.sampled_from(["good", "good", "beyond", "stray"]), max_size=12)


class TestEndBefore:
    @given(units, st.integers(0, 12))
    def test_a_queue_ends_behind_its_last_good_unit(self, found: list[str], floor: int) -> None:
        floor = min(floor, len(found))
        good = [number + 1 for number in range(floor, len(found)) if found[number] == "good"]
        assert end_before(FakeUnits(found), floor, len(found)) == max(good, default=floor)

    def test_units_beyond_the_log_are_not_judged_one_by_one(self) -> None:
        queue = FakeUnits(["good", *["beyond"] * 1000])
        assert end_before(queue, 0, 1001) == 1
        assert queue.judged == [0]


class TestEndAfter:
    def known(self, end: int, written: int, log_end: int = 100) -> Known:
        return Known(None, None, 0, log_end, 0, end, written, None)  # type: ignore[arg-type]

    def test_of_units_that_came_the_last_good_one_ends_the_queue(self) -> None:
        queue = FakeUnits(["good"] * 5)
        assert end_after(queue, self.known(3, 3), 5) == 5
        assert queue.judged == [4]

    def test_where_nothing_came_nothing_is_judged(self) -> None:
        queue = FakeUnits(["good"] * 5)
        assert end_after(queue, self.known(5, 5), 5) == 5
        assert queue.judged == []

    def test_old_units_that_are_overwritten_one_by_one_are_judged_one_by_one(self) -> None:
        queue = FakeUnits(["good", "good", *["stray"] * 1000])
        assert end_after(queue, self.known(1, 1002), 1002) == 2
        assert queue.judged == [1, 2]

    def test_over_a_shorter_log_everything_is_judged_anew(self) -> None:
        queue = FakeUnits(["good", "good", "beyond", "beyond"], log_end=50)
        assert end_after(queue, self.known(4, 4), 4) == 2


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Two files of two units."""
    for number in range(2):
        (tmp_path / f"{number * 2 * UNIT:020d}").write_bytes(bytes(2 * UNIT))
    return tmp_path


def known_of(directory: Path, written: int) -> Known:
    return Known("first", QueueFiles(directory, UNIT, OpenFiles()), 7, 100, 0, written, written, None)


class TestKnown:
    def test_in_the_same_generation_nothing_is_listed(self, directory: Path) -> None:
        known = known_of(directory, 3)
        (directory / f"{4 * UNIT:020d}").write_bytes(bytes(2 * UNIT))
        assert known.renewed("first", 7, 4) is known

    def test_where_the_files_are_full_the_next_one_is_looked_for(self, directory: Path) -> None:
        known = known_of(directory, 4)
        assert known.renewed("first", 7, 4) is known
        (directory / f"{4 * UNIT:020d}").write_bytes(bytes(2 * UNIT))
        renewed = known.renewed("first", 7, 4)
        assert renewed is not None
        assert len(renewed.files.files) == 3

    @pytest.mark.parametrize(("generation", "minimum"), [("second", 7), ("first", 8)])
    def test_files_are_listed_when_others_may_be_there(self, directory: Path, generation: str, minimum: int) -> None:
        known = known_of(directory, 3)
        (directory / f"{0:020d}").unlink()
        renewed = known.renewed(generation, minimum, 4)
        assert renewed is not None
        assert ([file.start for file in renewed.files.files], renewed.generation) == ([2 * UNIT], generation)

    def test_of_other_files_nothing_is_known(self, directory: Path) -> None:
        known, path = known_of(directory, 3), directory / f"{0:020d}"
        path.with_name("new").write_bytes(bytes(2 * UNIT))
        os.replace(path.with_name("new"), path)
        assert known.renewed("second", 7, 4) is None

    def test_of_a_file_that_was_cut_nothing_is_known(self, directory: Path) -> None:
        known = known_of(directory, 3)
        os.truncate(directory / f"{2 * UNIT:020d}", UNIT)
        assert known.renewed("second", 7, 4) is None

    def test_of_a_queue_that_is_gone_nothing_is_known(self, directory: Path) -> None:
        known = known_of(directory, 3)
        for path in directory.iterdir():
            path.unlink()
        assert known.renewed("second", 7, 4) is None
