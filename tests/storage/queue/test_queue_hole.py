"""What the log has behind a queue's files is found once, extended as the log grows, and no more than there is."""

import contextlib
import shutil
import struct
from pathlib import Path

import pytest

from doctoring import make_store, put
from protocol.errors import BeingSearched, QueueBeingSearched
from queue_stores import directory_of
from storage.layout.store_config import UsedQueues
from storage.log.commit_log import CommitLog
from storage.queue import _shared_pass as shared_pass
from storage.queue import queue_hole, queue_holes
from storage.queue.queue import Queue
from storage.queue.queue_hole import QueueHole
from storage.queue.queue_holes import QueueHoles
from storage.queue.queue_store import QueueStore
from store_writer import StoreWriter, Written

UNITS_A_FILE = 50


class Opened:
    """The queues of a store that is opened again and again, as a server does while its log grows."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.holes = QueueHoles()
        self.told: list[QueueHole] = []
        self.holes.connect(report=self.told.append)

    def queue(self, queue_id: int = 0) -> Queue:
        log = CommitLog.open([self.root / "commitlog"])
        queue = QueueStore(self.root, log, holes=self.holes).queue("T", queue_id)
        assert queue is not None
        return queue


def written_in(writer: StoreWriter, queue_id: int = 0) -> list[Written]:
    return [each for each in writer.written if each.topic == "T" and each.queue_id == queue_id]


def check(queue: Queue, expected: list[Written], first: int = 0) -> None:
    assert (queue.min_offset, queue.max_offset) == (first, expected[-1].queue_offset + 1)
    places = [queue.message_in_log(number) for number in range(first, queue.max_offset)]
    assert places == [each.physical_offset for each in expected[first:]]


def count_pieces(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    pieces: list[int] = []
    search = queue_hole.search_piece

    def piece(log: CommitLog, wanted: list[object], start: int, stop: int) -> int:
        pieces.append(start)
        return search(log, wanted, start, stop)  # type: ignore[arg-type]

    monkeypatch.setattr(queue_hole, "search_piece", piece)
    return pieces


@pytest.mark.parametrize(("lost", "room"), [([3], 4096), ([0, 3], 1)])
def test_messages_of_lost_last_files_are_found(
    lost: list[int], room: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_hole, "FIRST_ROOM", room)
    writer, _ = make_store(tmp_path, 390)
    writer.flush()
    for number in lost:
        (directory_of(tmp_path) / f"{number * UNITS_A_FILE * 20:020d}").unlink()
    check(Opened(tmp_path).queue(), written_in(writer))


def test_messages_that_come_to_the_log_are_found_without_a_new_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, _ = make_store(tmp_path, 100)
    writer.flush()
    shutil.rmtree(directory_of(tmp_path))
    directory_of(tmp_path).mkdir()
    opened, pieces = Opened(tmp_path), count_pieces(monkeypatch)
    check(opened.queue(), written_in(writer))
    searched = len(pieces)
    for number in range(5):
        end = writer.log.end
        writer.append("T", b"more", queue_id=number % 2, queue=False)
        check(opened.queue(), written_in(writer))
        assert min(pieces[searched:]) >= end, "what was searched is not searched again"
        searched = len(pieces)
    assert len(opened.told) == 1


def test_what_expires_meanwhile_starts_no_search_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = StoreWriter(tmp_path, segment_size=2048)
    for number in range(200):
        writer.append("T", b"%d" % number)
    writer.close()
    shutil.rmtree(directory_of(tmp_path))
    directory_of(tmp_path).mkdir()
    opened, pieces = Opened(tmp_path), count_pieces(monkeypatch)
    check(opened.queue(), written_in(writer))
    searched = len(pieces)
    for path in sorted((tmp_path / "commitlog").iterdir())[:4]:
        path.unlink()
        live = [each for each in written_in(writer) if each.physical_offset >= int(path.name) + 2048]
        check(opened.queue(), written_in(writer), live[0].queue_offset)
    assert len(pieces) == searched


def test_searches_that_share_a_pass_find_nothing_before_their_start(tmp_path: Path) -> None:
    """A topic that was deleted and made anew has old messages of the same queue offsets in the log."""
    writer, _ = make_store(tmp_path, 390)
    writer.flush()
    renewed = [writer.append("T", b"new %d" % number, queue_id=0, queue_offset=number) for number in range(100)]
    for _ in range(9):
        writer.append("U", b"other", queue_id=0)
    writer.flush()
    shutil.rmtree(directory_of(tmp_path))
    directory_of(tmp_path).mkdir()
    units = b"".join(struct.pack(">qiq", each.physical_offset, each.size, 0) for each in renewed)
    for start in (0, 1000):
        (directory_of(tmp_path) / f"{start:020d}").write_bytes(units[start : start + 1000])
    shutil.rmtree(tmp_path / "consumequeue" / "U" / "0")
    (tmp_path / "consumequeue" / "U" / "0").mkdir()
    opened = Opened(tmp_path)
    opened.holes.connect(hand_on=lambda: None, report=opened.told.append)
    log = CommitLog.open([tmp_path / "commitlog"])
    queues = QueueStore(tmp_path, log, holes=opened.holes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(queue_holes, "SEARCHED_AT_ONCE", 1)
        for topic in ("U", "T"):
            queue = queues.queue(topic, 0)
            assert queue is not None
            with pytest.raises(QueueBeingSearched):
                _ = queue.max_offset
    while opened.holes.searching:
        opened.holes.step()
    queue = queues.queue("T", 0)
    assert queue is not None
    assert (queue.min_offset, queue.max_offset) == (0, 100)
    assert [queue.message_in_log(number) for number in range(100)] == [each.physical_offset for each in renewed]


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
    log, pieces = CommitLog.open([tmp_path / "commitlog"]), count_pieces(monkeypatch)
    queues = QueueStore(tmp_path, log, used=used)
    for number in range(45):
        for queue_id in (0, 1):
            queue = queues.queue(f"T{number}", queue_id)
            assert queue is not None
            check(queue, [each for each in writer.written if (each.topic, each.queue_id) == (f"T{number}", queue_id)])
    queue = queues.queue("B", 0)
    assert queue is not None
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
