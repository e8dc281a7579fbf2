"""What the log has in the place of lost units is found once, shared, bounded, and searched anew in other files."""

import contextlib
import os
import shutil
from pathlib import Path

import pytest

from doctoring import make_store, put
from protocol.errors import BeingSearched, QueueBeingSearched
from protocol.question import KeyKind, Question
from queue_stores import directory_of, queue_of
from storage.files.waiting import finish
from storage.layout.store_config import UsedQueues
from storage.log.commit_log import CommitLog
from storage.queue import _shared_pass as shared_pass
from storage.queue import queue_hole, queue_holes
from storage.queue.queue import Queue
from storage.queue.queue_hole import QueueHole
from storage.queue.queue_holes import QueueHoles
from storage.queue.queue_store import QueueStore
from storage.store.message_store import MessageStore
from store_writer import StoreWriter, Written


@pytest.fixture
def made(tmp_path: Path) -> tuple[StoreWriter, list[Written]]:
    """Two queues of 202 messages each, with holes of 100 units from 50 on, and of a lost file in queue 1."""
    writer, written = make_store(tmp_path, 404)
    writer.flush()
    for queue_id in (0, 1):
        directory = tmp_path / "consumequeue" / "T" / str(queue_id)
        put(directory / f"{1000:020d}", 0, bytes(1000))
        put(directory / f"{2000:020d}", 0, b"\x7f" * 1000)
    return writer, written


def searches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Where each piece begins that is searched from now on."""
    pieces: list[int] = []
    search = queue_hole.search_piece

    def piece(log: CommitLog, wanted: list[object], start: int, stop: int) -> int:
        pieces.append(start)
        return search(log, wanted, start, stop)  # type: ignore[arg-type]

    monkeypatch.setattr(queue_hole, "search_piece", piece)
    return pieces


def places(queue: Queue, first: int = 0) -> list[int | None]:
    return [queue.message_in_log(number) for number in range(first, queue.max_offset)]


def expected(written: list[Written], queue_id: int = 0) -> list[int]:
    return [each.physical_offset for each in written if each.queue_id == queue_id]


def test_one_pass_serves_all_offsets_and_all_snapshots(
    made: tuple[StoreWriter, list[Written]], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, written = made
    store = MessageStore.open(writer.root)
    pieces = searches(monkeypatch)
    assert places(queue_of(store.queues)) == expected(written)
    hole = finish(queue_of(store.queues).hole_at_lookup(60))
    assert (hole.first, hole.stop) == (50, 150)
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
    assert places(Opened(writer.root, holes).queue()) == expected(written)
    pieces = searches(monkeypatch)
    path = writer.root / "consumequeue" / "T" / "0" / f"{1000:020d}"
    whole = path.read_bytes()
    path.unlink()
    assert places(Opened(writer.root, holes).queue()) == expected(written)
    assert pieces
    path.write_bytes(whole)
    pieces.clear()
    (segment,) = [each for each in (writer.root / "commitlog").iterdir() if each.name.endswith("16384")]
    os.utime(segment, ns=(1, 1))
    assert places(Opened(writer.root, holes).queue()) == expected(written)
    assert pieces
    holes.forget()
    pieces.clear()
    assert places(Opened(writer.root, holes).queue()) == expected(written)
    assert pieces


def test_what_is_not_used_is_forgotten(
    made: tuple[StoreWriter, list[Written]], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, written = made
    monkeypatch.setattr(queue_holes, "MOST_AT_ONCE", 10)
    monkeypatch.setattr(queue_holes, "REMEMBERED", 3 * (10 * 20 + queue_hole.HOLE_WEIGHT))
    holes = QueueHoles()
    queue = Opened(writer.root, holes).queue()
    for _ in range(2):
        assert places(queue) == expected(written)
        assert len(holes._holes) == 3


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
    queue = queue_of(store.queues)
    hole = finish(queue.hole_at_lookup(44))
    assert (hole.is_open, hole.lost, hole.place(44)) == (True, 6, None)
    end = hole.end
    writer.append("T", b"", queue_id=1)
    store.refresh()
    later = queue_of(store.queues)
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


UNITS_A_FILE = 50


class Opened:
    """The queues of a store that is opened again and again, as a server does while its log grows."""

    def __init__(self, root: Path, holes: QueueHoles | None = None) -> None:
        self.root, self.holes = root, holes or QueueHoles()

    def queue(self, queue_id: int = 0) -> Queue:
        return queue_of(
            QueueStore(self.root, CommitLog.open([self.root / "commitlog"]), holes=self.holes), "T", queue_id
        )


def written_in(writer: StoreWriter, queue_id: int = 0) -> list[Written]:
    return [each for each in writer.written if each.topic == "T" and each.queue_id == queue_id]


def check(queue: Queue, expected: list[Written], first: int = 0) -> None:
    assert (queue.min_offset, queue.max_offset) == (first, expected[-1].queue_offset + 1)
    assert places(queue, first) == [each.physical_offset for each in expected[first:]]


def test_all_queues_whose_directories_are_lost_are_searched_in_one_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = StoreWriter(tmp_path, segment_size=1 << 14)
    for number in range(900):
        writer.append(f"T{number % 45}", b"%d" % number, queue_id=number // 45 % 2)
    batches = [writer.append_inner_batch("B", [(b"", {})] * 3) for _ in range(5)]
    writer.append("Whole", b"")
    writer.close()
    used = {f"T{number}": UsedQueues(False, {0, 1}) for number in range(45)}
    used |= {"B": UsedQueues(True, {0}), "Expired": UsedQueues(False, {0, 3}), "../T": UsedQueues(False, {0, -1})}
    shutil.rmtree(tmp_path / "batchconsumequeue")
    for number in range(45):
        shutil.rmtree(tmp_path / "consumequeue" / f"T{number}" / str(number % 2))
    for number in range(20):
        shutil.rmtree(tmp_path / "consumequeue" / f"T{number}")
    log, pieces = CommitLog.open([tmp_path / "commitlog"]), searches(monkeypatch)
    queues = QueueStore(tmp_path, log, used=used)
    for number in range(45):
        for queue_id in (0, 1):
            queue = queue_of(queues, f"T{number}", queue_id)
            check(queue, [each for each in writer.written if (each.topic, each.queue_id) == (f"T{number}", queue_id)])
    queue = queue_of(queues, "B", 0)
    assert (queue.has_batches, queue.min_offset, queue.max_offset) == (True, 0, 15)
    assert [queue.message_in_log(number) for number in (0, 2, 14)] == [
        batches[number].physical_offset for number in (0, 0, 4)
    ]
    assert [queues.queue_ids(topic) for topic in ("Expired", "../T")] == [(0, 3), ()]
    assert [queue.max_offset for queue in queues.queues_of("Expired")] == [0, 0]
    assert pieces == sorted(pieces), "no part of the log is read twice"
    assert len(pieces) == len(set(pieces))


def test_a_message_that_lies_about_its_offset_ends_the_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_hole, "MOST_AT_ONCE", 1 << 14)
    writer, _ = make_store(tmp_path, 100)
    writer.flush()
    directory = directory_of(tmp_path)
    for path in directory.iterdir():
        path.write_bytes(bytes(path.stat().st_size))
    honest = written_in(writer)
    for number in range(200):
        writer.append("T", b"far", queue_id=0, queue_offset=10**9 + number, queue=False)
    check(Opened(tmp_path).queue(), honest)


def test_a_search_that_fails_is_left_to_the_background(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, _ = make_store(tmp_path, 390)
    writer.flush()
    put(directory_of(tmp_path) / f"{3 * UNITS_A_FILE * 20:020d}", 0, bytes(UNITS_A_FILE * 20))
    opened, handed, search = Opened(tmp_path), list[int](), queue_hole.search_piece
    opened.holes.connect(hand_on=lambda: handed.append(1))

    def fail(*_: object) -> int:
        monkeypatch.setattr(queue_hole, "search_piece", search)
        raise OSError(5, "a bad disk")

    monkeypatch.setattr(queue_hole, "search_piece", fail)
    with pytest.raises(OSError, match="a bad disk"):
        _ = opened.queue().max_offset
    assert handed == [1]
    with pytest.raises(QueueBeingSearched):
        _ = opened.queue().max_offset
    while opened.holes.searching:
        opened.holes.step()
    check(opened.queue(), written_in(writer))


def test_what_is_found_behind_many_queues_is_bounded_and_every_search_comes_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_holes, "SEARCHED_AT_ONCE", 1)
    monkeypatch.setattr(shared_pass, "PIECE", 3000)
    monkeypatch.setattr(queue_holes, "TAILS_REMEMBERED", 2 * 64 * 20)
    writer, _ = make_store(tmp_path, 390)
    writer.flush()
    for queue_id in (0, 1):
        for path in directory_of(tmp_path, queue_id=queue_id).iterdir():
            path.unlink()
    opened, found = Opened(tmp_path), dict[int, int]()
    opened.holes.connect(hand_on=lambda: None)
    for _ in range(200):
        for queue_id in (0, 1):
            with contextlib.suppress(QueueBeingSearched):
                found[queue_id] = opened.queue(queue_id).max_offset
        opened.holes.step()
        assert sum(tail.weight > 0 for tail in opened.holes._tails.values()) <= 2
    assert found == {queue_id: len(written_in(writer, queue_id)) for queue_id in (0, 1)}
    for queue_id in (0, 1):
        queue, expected = opened.queue(queue_id), written_in(writer, queue_id)
        with pytest.raises(BeingSearched):
            queue.message_in_log(70)
        while opened.holes.searching:
            opened.holes.step()
        assert [queue.message_in_log(number) for number in range(queue.max_offset)] == [
            each.physical_offset for each in expected
        ]
