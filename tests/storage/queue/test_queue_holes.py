"""What is known of holes: shared, bounded, and no longer than the files are the same."""

import os
from pathlib import Path

import pytest

from doctoring import make_store, put
from protocol.errors import BeingSearched
from protocol.question import KeyKind, Question
from storage.files.waiting import finish
from storage.log.commit_log import CommitLog
from storage.queue import _shared_pass as shared_pass
from storage.queue import queue_hole
from storage.queue import queue_holes as module
from storage.queue.queue import Queue
from storage.queue.queue_hole import QueueHole
from storage.queue.queue_holes import QueueHoles
from storage.queue.queue_store import QueueStore
from storage.store.message_store import MessageStore
from store_queries import wait_of
from store_writer import StoreWriter, Written

COUNT = 404


@pytest.fixture
def made(tmp_path: Path) -> tuple[StoreWriter, list[Written]]:
    """Two queues of 202 messages each, with holes of 100 units from 50 on, and of a lost file in queue 1."""
    writer, written = make_store(tmp_path, COUNT)
    writer.flush()
    for queue_id in (0, 1):
        directory = tmp_path / "consumequeue" / "T" / str(queue_id)
        put(directory / f"{1000:020d}", 0, bytes(1000))
        put(directory / f"{2000:020d}", 0, b"\x7f" * 1000)
    return writer, written


def opened(root: Path, holes: QueueHoles) -> QueueStore:
    log = CommitLog.open([root / "commitlog"])
    return QueueStore(root, log, holes=holes)


def queue_of(queues: QueueStore, queue_id: int = 0) -> Queue:
    queue = queues.queue("T", queue_id)
    assert queue is not None
    return queue


def searches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many holes each piece that is searched from now on is for."""
    found: list[int] = []
    search = queue_hole.search_piece

    def count(log: CommitLog, wanted: list[object], start: int, stop: int) -> int:
        found.append(len(wanted))
        return search(log, wanted, start, stop)  # type: ignore[arg-type]

    monkeypatch.setattr(queue_hole, "search_piece", count)
    return found


def places(queue: Queue) -> list[int | None]:
    return [queue.message_in_log(number) for number in range(queue.max_offset)]


def expected(written: list[Written], queue_id: int = 0) -> list[int]:
    return [each.physical_offset for each in written if each.queue_id == queue_id]


def test_one_pass_serves_all_offsets_and_all_snapshots(
    made: tuple[StoreWriter, list[Written]], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, written = made
    store = MessageStore.open(writer.root)
    pieces = searches(monkeypatch)
    assert places(queue_of(store.queues)) == expected(written)
    made_by = len(pieces)
    assert made_by <= len(list((writer.root / "commitlog").iterdir()))
    for _ in range(3):
        last = writer.append("T", b"more", queue=False)
        store.refresh()
        assert store.commit_log.end > last.physical_offset
        assert places(queue_of(store.queues)) == expected(written)
    assert len(pieces) == made_by


def test_other_files_of_queue_or_log_are_searched_anew(
    made: tuple[StoreWriter, list[Written]], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, written = made
    holes = QueueHoles()
    assert places(queue_of(opened(writer.root, holes))) == expected(written)
    pieces = searches(monkeypatch)
    path = writer.root / "consumequeue" / "T" / "0" / f"{1000:020d}"
    whole = path.read_bytes()
    path.unlink()
    assert places(queue_of(opened(writer.root, holes))) == expected(written)
    assert pieces
    path.write_bytes(whole)
    pieces.clear()
    (segment,) = [each for each in (writer.root / "commitlog").iterdir() if each.name.endswith("16384")]
    os.utime(segment, ns=(1, 1))
    assert places(queue_of(opened(writer.root, holes))) == expected(written)
    assert pieces
    holes.forget()
    pieces.clear()
    assert places(queue_of(opened(writer.root, holes))) == expected(written)
    assert pieces


@pytest.mark.parametrize("most", [7, 64])
def test_a_long_hole_is_searched_in_parts_that_go_on_from_each_other(
    made: tuple[StoreWriter, list[Written]], monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    writer, written = made
    monkeypatch.setattr(module, "MOST_AT_ONCE", most)
    told: list[QueueHole] = []
    holes = QueueHoles()
    holes.connect(report=told.append)
    assert places(queue_of(opened(writer.root, holes))) == expected(written)
    assert [(hole.first, hole.stop) for hole in told] == [(n, min(n + most, 150)) for n in range(50, 150, most)]
    assert [hole.lost for hole in told] == [0] * len(told)
    starts = [hole.start for hole in told]
    assert starts == sorted(starts)
    assert len(set(starts)) == len(starts)
    last = QueueHoles()
    assert queue_of(opened(writer.root, last)).message_in_log(149) == expected(written)[149]


def test_what_is_not_used_is_forgotten(
    made: tuple[StoreWriter, list[Written]], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, written = made
    monkeypatch.setattr(module, "MOST_AT_ONCE", 10)
    monkeypatch.setattr(module, "REMEMBERED", 3 * (10 * 20 + queue_hole.HOLE_WEIGHT))
    holes = QueueHoles()
    queue = queue_of(opened(writer.root, holes))
    for _ in range(2):
        assert places(queue) == expected(written)
        assert len(holes._holes) == 3


def test_a_long_search_is_handed_on_and_made_in_pieces(
    made: tuple[StoreWriter, list[Written]], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, written = made
    monkeypatch.setattr(module, "SEARCHED_AT_ONCE", 1)
    monkeypatch.setattr(shared_pass, "PIECE", 1500)
    holes = QueueHoles()
    handed: list[int] = []
    holes.connect(hand_on=lambda: handed.append(1))
    queues = opened(writer.root, holes)
    assert "are to be found in the log" in str(wait_of(queue_of(queues).hole_at_lookup(60)))
    for queue_id in (0, 1, 0, 1):
        with pytest.raises(BeingSearched, match=f"queue offsets 50 to 149 of T, queue {queue_id} have damaged units"):
            finish(queue_of(queues, queue_id).hole_at_lookup(60))
    assert (len(handed), holes.searching) == (2, 2)
    pieces = searches(monkeypatch)
    while holes.searching:
        holes.step()
    assert set(pieces[2:-2]) == {2}, "both go on together"
    for queue_id in (0, 1):
        assert places(queue_of(queues, queue_id)) == expected(written, queue_id)
    holes.step()  # nothing is left


def test_a_hole_without_an_end_is_looked_into_again_when_the_log_has_grown(tmp_path: Path) -> None:
    writer, written = make_store(tmp_path, 100, queue_file_size=20_000)
    writer.flush()
    path = tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}"
    put(path, 20 * 40, b"\x7f" * 100)
    writer.overwrite(written[88].physical_offset, bytes(written[88].size))
    for number in range(90, 100, 2):  # no unit behind leads to an intact message
        writer.overwrite(written[number].physical_offset + 88, b"\xff")
    store = MessageStore.open(tmp_path)
    told: list[QueueHole] = []
    store.queue_holes.connect(report=told.append)
    queue = store.queues.queue("T", 0)
    assert queue is not None
    hole = finish(queue.hole_at_lookup(44))
    assert (hole.is_open, hole.lost, hole.place(44)) == (True, 6, None)
    end = hole.end
    writer.append("T", b"", queue_id=1)
    store.refresh()
    later = store.queues.queue("T", 0)
    assert later is not None
    assert finish(later.hole_at_lookup(44)) is hole
    assert hole.end > end
    assert (hole.lost, hole.place(44), len(told)) == (6, None, 1)


@pytest.mark.parametrize("damage", ["unit", "all units"])
def test_a_search_of_a_log_without_a_record_is_over_at_once(tmp_path: Path, damage: str) -> None:
    """By a command, which has no search in the background that would end it."""
    writer, _ = make_store(tmp_path, 8)
    writer.flush()
    (segment,) = (tmp_path / "commitlog").iterdir()
    segment.write_bytes(bytes(segment.stat().st_size))
    put(tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}", 0, b"\x7f" * 8 if damage == "unit" else bytes(20 * 4))
    store = MessageStore.open(tmp_path)
    assert (store.commit_log.minimum, store.commit_log.end) == (0, 0)
    answer = store.query(Question("T", "A", KeyKind.TAG))
    assert (list(answer.physical_offsets), bytes(answer.records)) == ([], b"")
