"""Where a queue ends: behind its last sound unit, in few looks, whatever is damaged or left over."""

import random
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from damaged_units import BROKEN, DAMAGES, QueueImage, damage, expire, leave_over, make_store, truth
from doctoring import put
from judged_units import FakeUnits
from protocol.errors import QueueBeingSearched
from queue_stores import plain_queue, unit_bytes
from storage.files.mapped_file import MappedFile
from storage.files.waiting import finish
from storage.log.commit_log import CommitLog
from storage.queue import _shared_pass, queue_holes
from storage.queue._queue_end import find_end
from storage.queue.queue_holes import QueueHoles
from storage.queue.queue_store import QueueStore
from storage.queue.unit_standing import JudgedUnits
from store_queries import at_once, wait_of
from store_writer import StoreWriter


def end_of(units: FakeUnits, floor: int, written: int) -> int:
    return finish(find_end(cast(JudgedUnits, units), floor, written))


@given(
    st.lists(st.sampled_from(["good", "good", "lost", "broken", "beyond", "stray"]), max_size=60), st.integers(0, 60)
)
def test_a_queue_ends_behind_its_last_sound_unit(found: list[str], floor: int) -> None:
    floor = min(floor, len(found))
    good = [number + 1 for number in range(floor, len(found)) if found[number] == "good"]
    assert end_of(FakeUnits(found), floor, len(found)) == max(good, default=floor)


def test_few_units_are_judged() -> None:
    queue = FakeUnits(["good"] * 100_000)
    assert end_of(queue, 0, 100_000) == 100_000
    assert queue.judged == [99_999]
    queue = FakeUnits(["good"] * 50_000 + ["beyond"] * 50_000)
    assert end_of(queue, 0, 100_000) == 50_000
    assert len(queue.judged) < 40


def test_many_judgements_are_left_to_a_thread_that_may_wait() -> None:
    units = cast(JudgedUnits, FakeUnits(["good"] + ["stray"] * 300))
    assert str(wait_of(find_end(units, 0, 301))) == "a long scan: the last unit of T 0"
    assert at_once(find_end(cast(JudgedUnits, FakeUnits(["good"] + ["stray"] * 200)), 0, 201)) == 1


# --- on a store, against what is known from what was written ----------------------------------------------------------


def bounds_of(root: Path, topic: str = "T") -> tuple[int, int]:
    queue = plain_queue(root, topic)
    return queue.min_offset, queue.max_offset


def judge_damaged_store(root: Path, seed: int) -> None:
    """A store with random damage and leftovers, whose bounds must be those of the sound one."""
    chance = random.Random(seed)
    count = chance.choice([3, 30, 120, 300])
    writer = make_store(root, chance, count, queue_file_size=chance.choice([200, 1000, 8000, 100_000]))
    messages = [written for written in writer.written if (written.topic, written.queue_id) == ("T", 0)]
    log_minimum = expire(root, chance.choice([0, 0, 1, 2, 8, 100]))
    expected = truth(messages, log_minimum)
    image = QueueImage(root / "consumequeue" / "T" / "0")
    done = damage(image, chance, expected, last=chance.choice(["none", "none", *sorted(BROKEN)]))
    if chance.random() < 0.5 and expected[0] < expected[1]:
        leave_over(image, chance, writer, count, chance.choice([1, 5, 60]), log_minimum)
    assert bounds_of(root) == expected, (seed, done)


@pytest.mark.parametrize("seed", range(12))
def test_damage_and_leftovers_change_neither_bound(seed: int, tmp_path: Path) -> None:
    judge_damaged_store(tmp_path, seed)


@pytest.mark.parametrize("seed", range(12))
def test_a_doubtful_end_is_not_known_before_it_is_found_in_the_log_and_does_not_change_then(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a server, which searches the log in pieces: never another number, whatever comes to other queues."""
    monkeypatch.setattr(queue_holes, "SEARCHED_AT_ONCE", 1)
    monkeypatch.setattr(_shared_pass, "PIECE", 3000)
    chance = random.Random(seed)
    count = chance.choice([3, 30, 120])
    writer = make_store(tmp_path, chance, count, queue_file_size=chance.choice([200, 1000, 100_000]))
    expected = truth([each for each in writer.written if (each.topic, each.queue_id) == ("T", 0)], 0)
    image = QueueImage(tmp_path / "consumequeue" / "T" / "0")
    files = sorted(image.files.values())
    if chance.random() < 0.3 and len(files) > 1:
        files[-1].unlink()
    else:
        damage(image, chance, expected, last=sorted({*DAMAGES} - {"zeros"})[seed % (len(DAMAGES) - 1)])
    holes, found, busy = QueueHoles(), set[int](), list[str]()
    holes.connect(hand_on=lambda: None)
    log = CommitLog.open([tmp_path / "commitlog"])
    store = QueueStore(tmp_path, log, holes=holes)
    for number in range(60):
        if number % 20 == 10:
            writer.append("other", b"between")
            writer.flush()
            log = CommitLog.open([tmp_path / "commitlog"], log)
            store = store.grown(log) if number < 40 else store.refresh(log)
        try:
            queue = store.queue("T", 0)
            assert queue is not None
            found.add(queue.max_offset)
        except QueueBeingSearched as error:
            busy.append(str(error))
            holes.step()
    assert found == {expected[1]}
    assert len(busy) < 50
    assert all("% of which is done" in each for each in busy)


@pytest.mark.parametrize("place", [2**63 - 1, 1 << 40])
def test_a_last_unit_whose_physical_offset_is_any_large_number_is_one_of_the_queue(place: int, tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path)
    for _ in range(7):
        writer.append("T", b"body")
    writer.flush()
    put(tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}", 6 * 20, place.to_bytes(8, "big"))
    assert bounds_of(tmp_path) == (0, 7)


@pytest.mark.soak
@pytest.mark.parametrize("hundred", range(20))
def test_damage_and_leftovers_change_neither_bound_of_many_stores(hundred: int, tmp_path: Path) -> None:
    for seed in range(1000 + 100 * hundred, 1100 + 100 * hundred):
        judge_damaged_store(tmp_path / str(seed), seed)


# --- a long queue -----------------------------------------------------------------------------------------------------

LONG = 250_000


@pytest.fixture(scope="module")
def long_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One queue of 250,000 messages of equal length, all in one segment."""
    root = tmp_path_factory.mktemp("long")
    writer = StoreWriter(root)
    first = writer.append("T", b"body")
    record = np.frombuffer(first.record, np.uint8)
    log = np.tile(record, (LONG, 1))
    numbers = np.arange(LONG, dtype=">i8")
    log[:, 20:28] = numbers.view(np.uint8).reshape(LONG, 8)
    log[:, 28:36] = (numbers * first.size).astype(">i8").view(np.uint8).reshape(LONG, 8)
    (root / "commitlog" / f"{0:020d}").write_bytes(log.tobytes() + bytes(4096))
    units = np.zeros(LONG, [("place", ">i8"), ("size", ">i4"), ("tags", ">i8")])
    units["place"], units["size"] = numbers * first.size, first.size
    directory = root / "consumequeue" / "T" / "0"
    directory.mkdir(parents=True)
    with (directory / f"{0:020d}").open("wb") as file:
        file.write(units.tobytes())
        file.truncate(6_000_000)
    return root


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes were read of queue files, one by one."""
    found: list[int] = []
    read = MappedFile.read

    def count(file: MappedFile, position: int, length: int) -> memoryview:
        if "consumequeue" in file.path.parts:
            found.append(length)
        return read(file, position, length)

    monkeypatch.setattr(MappedFile, "read", count)
    return found


DAMAGED = {
    "nothing": (0, b""),
    "a page zeroed": (8192, bytes(4096)),
    "100,000 units of ones": (200_000 * 20 - 2_000_000, b"\xff" * 2_000_000),
    "all but the last unit": (0, bytes(LONG * 20 - 20)),
    "the sign of the last size": (LONG * 20 - 12, b"\x80"),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_long_queue_keeps_its_bounds_and_few_units_are_read(kind: str, long_store: Path, reads: list[int]) -> None:
    path = long_store / "consumequeue" / "T" / "0" / f"{0:020d}"
    whole = path.read_bytes()
    try:
        put(path, *DAMAGED[kind])
        assert bounds_of(long_store) == (0, LONG)
    finally:
        put(path, 0, whole[: LONG * 20])
    if kind in ("nothing", "a page zeroed"):
        assert sum(reads) <= 2 * 4096 + 60 * 20
        assert len(reads) < 60


def test_zeros_on_the_disk_are_no_units(long_store: Path) -> None:
    path = long_store / "consumequeue" / "T" / "0" / f"{0:020d}"
    whole = path.read_bytes()
    try:
        path.write_bytes(whole)  # no holes any more
        assert bounds_of(long_store) == (0, LONG)
        put(path, LONG * 20, unit_bytes(10**12, 100, 7) * 3000)
        assert bounds_of(long_store) == (0, LONG)
    finally:
        with path.open("r+b") as file:
            file.truncate(LONG * 20)
            file.truncate(6_000_000)
