"""What is known of a queue is gone on from, and leads to where a whole new look would find its end."""

import os
import random
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from damaged_units import DAMAGES, QueueImage
from judged_units import LOG_END, FakeUnits
from queue_stores import unit_bytes
from storage.files.open_files import OpenFiles
from storage.files.waiting import finish
from storage.kernels.records import MINIMUM_SIZE
from storage.log.commit_log import CommitLog
from storage.queue._queue_growth import MOST_JUDGED, KnownEnd, end_after
from storage.queue.queue_files import QueueFiles
from storage.queue.queue_store import QueueStore
from storage.queue.unit_standing import JudgedUnits
from store_writer import StoreWriter

UNIT = 20


class TestEndAfter:
    def known(self, end: int, written: int, log_end: int = LOG_END, looked: int = LOG_END) -> KnownEnd:
        return KnownEnd(None, None, 0, log_end, 0, end, written, None, looked)  # type: ignore[arg-type]

    def end(self, queue: FakeUnits, known: KnownEnd, written: int) -> int:
        return finish(end_after(cast(JudgedUnits, queue), known, 0, written))

    @pytest.mark.parametrize("bad", ["lost", "beyond"])
    @pytest.mark.parametrize("count", [1, 5000])
    def test_damaged_units_among_those_that_came_do_not_end_the_queue(self, count: int, bad: str) -> None:
        queue = FakeUnits(["good"] * 10 + [bad] * count + ["good"])
        assert self.end(queue, self.known(10, 10), count + 11) == count + 11
        assert len(queue.judged) == 1

    def test_old_units_that_are_overwritten_one_by_one_are_judged_one_by_one(self) -> None:
        queue = FakeUnits(["good", "good", *["stray"] * 1000])
        assert self.end(queue, self.known(1, 1002), 1002) == 2
        assert len(queue.judged) < 15 + MOST_JUDGED

    @pytest.mark.parametrize("lost", [3, 40])
    def test_a_damaged_unit_among_them_does_not_hold_up_the_others(self, lost: int) -> None:
        units = ["good"] * 5 + ["lost"] * lost + ["good"] * 50 + ["stray"] * 1000
        assert self.end(FakeUnits(units), self.known(5, len(units)), len(units)) == 55 + lost

    def test_all_of_them_are_judged_anew_when_the_log_has_grown_by_much(self) -> None:
        units = ["good"] * 5 + ["lost"] * 9 + ["good"] * 2 + ["stray"] * 100
        assert self.end(FakeUnits(units), self.known(5, len(units)), len(units)) == 5  # not met by its few steps
        assert self.end(FakeUnits(units), self.known(5, len(units), looked=LOG_END - (1 << 30)), len(units)) == 16

    def test_over_a_shorter_log_everything_is_judged_anew(self) -> None:
        queue = FakeUnits(["good", "good", "beyond", "beyond"])
        assert self.end(queue, self.known(4, 4, log_end=LOG_END + 1), 4) == 2


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Two files of two units."""
    for number in range(2):
        (tmp_path / f"{number * 2 * UNIT:020d}").write_bytes(bytes(2 * UNIT))
    return tmp_path


def known_of(directory: Path, written: int, last_place: int = 100) -> KnownEnd:
    files = QueueFiles(directory, UNIT, OpenFiles())
    return KnownEnd("first", files, 7, 100, 0, written, written, (last_place, MINIMUM_SIZE, 0))


def log_to(end: int, minimum: int = 7) -> CommitLog:
    """As much of a log as decides about the files of a queue."""
    return cast(CommitLog, SimpleNamespace(minimum=minimum, end=end))


class TestKnown:
    def test_in_the_same_generation_nothing_is_listed(self, directory: Path) -> None:
        known = known_of(directory, 3)
        (directory / f"{4 * UNIT:020d}").write_bytes(bytes(2 * UNIT))
        assert known.renewed("first", log_to(190), 4) is known

    @pytest.mark.parametrize(("written", "log_end"), [(4, 100), (3, 191), (1, 373)])
    def test_where_the_files_may_be_full_the_next_one_is_looked_for(
        self, directory: Path, written: int, log_end: int
    ) -> None:
        known = known_of(directory, written)
        assert known.renewed("first", log_to(log_end), 4) is known
        (directory / f"{4 * UNIT:020d}").write_bytes(bytes(2 * UNIT))
        renewed = known.renewed("first", log_to(log_end), 4)
        assert renewed is not None
        assert len(renewed.files.files) == 3

    @pytest.mark.parametrize(("generation", "minimum"), [("second", 7), ("first", 8)])
    def test_files_are_listed_when_others_may_be_there(self, directory: Path, generation: str, minimum: int) -> None:
        known = known_of(directory, 3)
        (directory / f"{0:020d}").unlink()
        renewed = known.renewed(generation, log_to(100, minimum), 4)
        assert renewed is not None
        assert ([file.start for file in renewed.files.files], renewed.generation) == ([2 * UNIT], generation)

    @pytest.mark.parametrize("change", ["another file", "cut", "gone"])
    def test_of_files_that_are_not_those_any_more_nothing_is_known(self, directory: Path, change: str) -> None:
        known, path = known_of(directory, 3), directory / f"{0:020d}"
        if change == "another file":
            path.with_name("new").write_bytes(bytes(2 * UNIT))
            os.replace(path.with_name("new"), path)
        elif change == "cut":
            os.truncate(directory / f"{2 * UNIT:020d}", UNIT)
        else:
            for each in directory.iterdir():
                each.unlink()
        assert known.renewed("second", log_to(100), 4) is None


def bounds_of(store: QueueStore) -> tuple[int, int]:
    queue = store.queue("T", 0)
    assert queue is not None
    return queue.min_offset, queue.max_offset


def follow_damaged_store(root: Path, seed: int) -> None:
    """A store to which messages come, and damage: the bounds are those of the sound one after every step."""
    chance = random.Random(seed)
    writer = StoreWriter(root, segment_size=1 << 20, queue_file_size=chance.choice([200, 4000, 100_000]))
    writer.append("T", b"first")
    writer.flush()
    log = CommitLog.open([root / "commitlog"])
    store, count = QueueStore(root, log), 1
    spoilt: dict[int, bytes] = {}
    has_leftovers = chance.random() < 0.3
    for _ in range(10):
        for _ in range(chance.choice([0, 1, 1, 2, 10, 200])):
            writer.append("T", bytes(chance.randrange(40)))
            count += 1
        writer.append("other", b"between")
        writer.flush()
        image = QueueImage(root / "consumequeue" / "T" / "0")
        for _ in range(chance.choice([0, 1, 2])):
            kind, start = chance.choice(sorted(DAMAGES)), chance.randrange(count)
            for number in range(start, min(start + chance.choice([1, 2, 40, 205]), count - 1)):
                spoilt[number] = DAMAGES[kind](chance, image, number)
        if chance.random() < 0.3 and not has_leftovers:
            spoilt[count - 1] = DAMAGES["sign bit of the size"](chance, image, count - 1)
        for number, data in spoilt.items():
            image.put(number, data)
        for number in range(count, 400) if has_leftovers else ():
            image.put(number, unit_bytes(10**9 + 200 * number, 150, 7))
        log = CommitLog.open([root / "commitlog"], log)
        store = store.refresh(log) if chance.random() < 0.3 else store.grown(log)
        assert bounds_of(store) == (0, count), seed


@pytest.mark.parametrize("seed", range(6))
def test_damage_changes_neither_bound_of_a_queue_that_grows(seed: int, tmp_path: Path) -> None:
    follow_damaged_store(tmp_path, seed)


@pytest.mark.soak
@pytest.mark.parametrize("hundred", range(3))
def test_damage_changes_neither_bound_of_many_queues_that_grow(hundred: int, tmp_path: Path) -> None:
    for seed in range(1000 + 100 * hundred, 1100 + 100 * hundred):
        follow_damaged_store(tmp_path / str(seed), seed)
