"""Where queues begin and end, in few looks, whatever is damaged or left over, and what is known while they grow."""

import random
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from damaged_units import BROKEN, DAMAGES, QueueImage, damage, expire, leave_over, make_store, truth
from judged_units import LOG_END, FakeUnits
from protocol.errors import BeingSearched, QueueBeingSearched, StoreError
from queue_stores import open_queues, queue_of, unit_bytes
from storage.files.waiting import finish
from storage.log.commit_log import CommitLog
from storage.query.get_message import GetMessageStatus, get_message
from storage.queue import _shared_pass as shared_pass
from storage.queue import queue_holes
from storage.queue._queue_end import find_end
from storage.queue._queue_growth import MOST_JUDGED, KnownEnd, end_after
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
    queue = FakeUnits(["good"] * 10_000)
    assert end_of(queue, 0, 10_000) == 10_000
    assert queue.judged == [9_999]
    queue = FakeUnits(["good"] * 5_000 + ["beyond"] * 5_000)
    assert end_of(queue, 0, 10_000) == 5_000
    assert len(queue.judged) < 40


def test_many_judgements_are_left_to_a_thread_that_may_wait() -> None:
    units = cast(JudgedUnits, FakeUnits(["good"] + ["stray"] * 300))
    assert str(wait_of(find_end(units, 0, 301))) == "a long scan: the last unit of T 0"
    assert at_once(find_end(cast(JudgedUnits, FakeUnits(["good"] + ["stray"] * 200)), 0, 201)) == 1


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
    assert bounds_of(open_queues(root)[0]) == expected, (seed, done)


@pytest.mark.parametrize("seed", range(8))
def test_damage_and_leftovers_change_neither_bound(seed: int, tmp_path: Path) -> None:
    judge_damaged_store(tmp_path, seed)


@pytest.mark.soak
@pytest.mark.parametrize("hundred", range(20))
def test_damage_and_leftovers_change_neither_bound_of_many_stores(hundred: int, tmp_path: Path) -> None:
    for seed in range(1000 + 100 * hundred, 1100 + 100 * hundred):
        judge_damaged_store(tmp_path / str(seed), seed)


UNIT = {"T": 20, "B": 46}


@pytest.fixture(params=["T", "B"])
def topic(request: pytest.FixtureRequest) -> str:
    """A plain queue's, or that of one of batches."""
    return str(request.param)


@pytest.fixture
def begun(topic: str, tmp_path: Path) -> tuple[Path, int]:
    """A store without its first segments, of whose messages that are left the first four units are zeros.

    With the queue offset of the first one of them; between them lies much that is of other queues.
    """
    writer = StoreWriter(tmp_path / "store", segment_size=4096, batch_queue_file_size=UNIT["B"] * 100)
    for number in range(60):
        if topic == "T":
            writer.append("T", b"%d" % number)
        else:
            writer.append_inner_batch("B", [(b"%d" % number, {})])
        for _ in range(8):
            writer.append("Other", b"between")
    writer.close()
    paths = sorted((writer.root / "commitlog").iterdir())
    places = [record.physical_offset for record in writer.records if record.topic == topic]
    for path in paths[:3]:
        path.unlink()
    first = sum(place < int(paths[3].name) for place in places)
    assert 5 < first < 50
    tree = "consumequeue" if topic == "T" else "batchconsumequeue"
    with (writer.root / tree / topic / "0" / f"{0:020}").open("r+b") as file:
        file.seek(UNIT[topic] * first)
        file.write(bytes(UNIT[topic] * 4))
    return writer.root, first


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search is long when it reads more than 100 bytes, and goes on by 1,000."""
    monkeypatch.setattr(queue_holes, "SEARCHED_AT_ONCE", 100)
    monkeypatch.setattr(shared_pass, "PIECE", 1000)


@pytest.mark.usefixtures("small")
def test_a_long_search_is_handed_on_and_nothing_is_said_of_the_queue_before(
    topic: str, begun: tuple[Path, int]
) -> None:
    """Neither a wrong minimum nor a later message; what was found is remembered."""
    root, first = begun
    queues, log = open_queues(root)
    wakes: list[int] = []
    queues.holes.connect(hand_on=lambda: wakes.append(1))
    queue = queue_of(queues, topic, 0)
    for _ in range(2):
        with pytest.raises(QueueBeingSearched, match=f"{topic}/0: the queue's first units are damaged or lost") as busy:
            _ = queue.min_offset
        assert isinstance(busy.value, BeingSearched)
        assert isinstance(busy.value, StoreError)
        with pytest.raises(BeingSearched):
            get_message(queues, topic, 0, first, 32, 1 << 20)
    assert (queues.holes.searching, len(wakes)) == (1, 1)
    while queues.holes.searching:
        queues.holes.step()
    assert (queue.min_offset, queue.max_offset) == (first, 60)
    again = at_once(queues.holes.first_message(queue, log.minimum, log.end))  # type: ignore[arg-type]
    assert again is not None
    assert queues.holes.searching == 0
    below = get_message(queues, topic, 0, first - 1, 32, 1 << 20)
    assert (below.status, below.next_begin_offset) == (GetMessageStatus.OFFSET_TOO_SMALL, first)


class TestEndAfter:
    def known(self, end: int, written: int, log_end: int = LOG_END, looked: int = LOG_END) -> KnownEnd:
        return KnownEnd(None, None, 0, log_end, 0, end, written, None, looked)  # type: ignore[arg-type]

    def end(self, queue: FakeUnits, known: KnownEnd, written: int) -> int:
        return finish(end_after(cast(JudgedUnits, queue), known, 0, written))

    def test_old_units_that_are_overwritten_one_by_one_are_judged_one_by_one(self) -> None:
        queue = FakeUnits(["good", "good", *["stray"] * 1000])
        assert self.end(queue, self.known(1, 1002), 1002) == 2
        assert len(queue.judged) < 15 + MOST_JUDGED

    def test_all_of_them_are_judged_anew_when_the_log_has_grown_by_much(self) -> None:
        units = ["good"] * 5 + ["lost"] * 9 + ["good"] * 2 + ["stray"] * 100
        assert self.end(FakeUnits(units), self.known(5, len(units)), len(units)) == 5  # not met by its few steps
        assert self.end(FakeUnits(units), self.known(5, len(units), looked=LOG_END - (1 << 30)), len(units)) == 16


def bounds_of(store: QueueStore) -> tuple[int, int]:
    queue = queue_of(store)
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


@pytest.mark.parametrize("seed", range(3))
def test_damage_changes_neither_bound_of_a_queue_that_grows(seed: int, tmp_path: Path) -> None:
    follow_damaged_store(tmp_path, seed)


@pytest.mark.soak
@pytest.mark.parametrize("hundred", range(3))
def test_damage_changes_neither_bound_of_many_queues_that_grow(hundred: int, tmp_path: Path) -> None:
    for seed in range(1000 + 100 * hundred, 1100 + 100 * hundred):
        follow_damaged_store(tmp_path / str(seed), seed)
