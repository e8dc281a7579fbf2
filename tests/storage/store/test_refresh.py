"""What a broker appends, removes or exchanges is followed at once, and nothing earlier is kept."""

import os
import shutil
import time
import weakref
from pathlib import Path

import pytest

from growing_store import Followed, GrowingStore, held
from kept_store import assert_all_found, incomplete, written
from protocol.errors import NotAStore
from protocol.question import KeyKind
from queue_stores import queue_of
from storage.store import _store_watch
from storage.store.message_store import MessageStore, StoreOptions


class TestGrowth:
    def test_a_message_is_answered_in_every_way_once_it_is_written(self, followed: Followed) -> None:
        followed.poll()
        written = followed.growing.add(keys="new", unique_key="unique", tags="tag")
        followed.growing.flush()
        arrivals = followed.poll(1)
        assert [a.queues for a in arrivals] == [{("T", 0)}]
        assert followed.store.record_at(written.physical_offset) == written.record
        assert followed.found("new") == [written.physical_offset]
        assert followed.found("unique", KeyKind.UNIQUE) == [written.physical_offset]
        assert followed.found("tag", KeyKind.TAG) == [written.physical_offset]
        assert queue_of(followed.store.queues).max_offset == 2
        followed.check()

    def test_a_message_whose_unit_comes_later_is_told_of_again_when_it_has_come(self, followed: Followed) -> None:
        followed.poll()
        followed.growing.add()
        told = followed.poll(4)
        assert [arrivals.queues for arrivals in told] == [{("T", 0)}] * 3
        assert queue_of(followed.store.queues).max_offset == 1
        followed.growing.flush()
        assert [arrivals.queues for arrivals in followed.poll(4)] == [{("T", 0)}]
        assert queue_of(followed.store.queues).max_offset == 2

    def test_a_record_of_any_topic_does_no_harm(self, followed: Followed) -> None:
        for topic in ("../consumequeue/T", "..", ".", "a/b", "a\0b", "\udcff"):
            written = followed.growing.writer.append(topic, queue=False)
            followed.poll(5)
            assert followed.store.record_at(written.physical_offset) == written.record
        assert followed.store.queues.topics() == ["T"]

    def test_messages_that_come_at_once_to_the_end_of_a_file_and_to_the_next_one_are_all_there(self, followed) -> None:
        """Although the last message of all is one of another queue, so that nobody looks again."""
        for count in range(2, 29):
            followed.growing.add(queue_id=0)
            if count % 3 != 1:
                continue
            followed.growing.add(queue_id=1)
            followed.growing.flush()
            assert followed.poll()
            assert queue_of(followed.store.queues).max_offset == count
        followed.check()


class TestFiles:
    def test_a_segment_that_was_cut_is_noticed_although_no_name_came_or_went(self, followed: Followed) -> None:
        for _ in range(80):
            followed.growing.add(body=b"x" * 50)
        followed.growing.flush()
        followed.settle()
        first, second = followed.store.commit_log.segments[:2]
        grow_old(followed.growing.root)
        followed.follower.watch()
        assert not followed.follower.watch()
        os.truncate(first.file.path, 700)
        assert followed.follower.watch()
        assert followed.store.commit_log.holes == ((700, second.base_offset),)
        written = followed.growing.writer.written[1]
        assert followed.store.record_at(written.physical_offset) == written.record

    @pytest.mark.parametrize("part", ["", "commitlog/00000000000000000000"])
    def test_a_store_that_is_taken_away_is_served_on_until_it_is_back(self, followed, tmp_path, part) -> None:
        followed.settle()
        written = followed.growing.writer.written[0]
        os.rename(followed.growing.root / part, tmp_path / "elsewhere")
        grow_old(followed.growing.root)
        for _ in range(3):
            with pytest.raises(NotAStore):
                followed.follower.watch()
            assert followed.store.record_at(written.physical_offset) == written.record
        os.rename(tmp_path / "elsewhere", followed.growing.root / part)
        followed.growing.add()
        followed.growing.flush()
        followed.settle()
        followed.check()

    def test_keys_of_a_segment_that_comes_back_are_found(self, tmp_path: Path) -> None:
        writer = written(tmp_path, 200)
        shutil.rmtree(writer.root / "index")
        lost = writer.log.segments[sorted(writer.log.segments)[3]]
        aside = lost.rename(tmp_path / "aside")
        store = MessageStore.open(writer.root, StoreOptions(scan_budget=0))
        store.finish_scan()
        assert "no segment holds" in (incomplete(store) or "")
        aside.rename(lost)
        assert store.renew()
        store.finish_scan()
        assert incomplete(store) is None
        assert_all_found(store, writer.records, writer.records[::3])

    def test_a_broker_that_stops_is_noticed(self, followed: Followed) -> None:
        assert followed.store.state.abort
        followed.growing.writer.close()
        followed.settle()
        assert not followed.store.state.abort


def grow_old(root: Path) -> None:
    for path in filter(Path.exists, (root, *root.rglob("*"))):
        os.utime(path, ns=(0, time.time_ns() - 2 * _store_watch.YOUNG_NS))


@pytest.mark.usefixtures("hurried")
class TestLeaks:
    def test_maps_and_descriptors_of_files_that_are_gone_are_let_go(self, tmp_path: Path) -> None:
        """Nothing is held of a file that was deleted, however often files were rolled over, expired and exchanged."""
        followed = Followed(tmp_path / "store", index_entries=12)
        growing = followed.growing
        most_files = 0
        for step in range(9):
            for number in range(12):
                growing.add(queue_id=number % 2, body=b"x" * 90)
            growing.flush()
            followed.settle()
            followed.check_queues()
            if step > 3:
                growing.expire(1 + step % 2)
            if step % 4 == 3:
                growing.exchange_index()
                growing.writer.index.files.clear()
                growing.exchange_queues()
            followed.settle()
            maps, descriptors = held(growing.root)
            files = {str(path) for path in growing.root.rglob("*") if path.is_file()}
            assert set(maps) <= files
            assert set(descriptors) <= files
            assert len(maps) == len(set(maps))
            assert len(descriptors) <= 2 * len(maps), "a map of Python's has a descriptor of its own"
            most_files = max(most_files, len(files))
        assert len(growing.log.segments) < most_files < 200

    def test_a_queue_file_that_goes_after_its_segment_was_missed_is_let_go(self, tmp_path, monkeypatch) -> None:
        """A broker removes queue files some time after segments, one by one; perhaps nothing else ever changes."""
        monkeypatch.setattr(_store_watch, "YOUNG_NS", 0)  # directories are as good as old
        followed = Followed(tmp_path / "store")
        for _ in range(12):
            followed.growing.add()
        followed.growing.flush()
        followed.settle()
        followed.check_queues()
        assert not followed.follower.watch()
        first = min((tmp_path / "store/consumequeue/T/0").iterdir())
        assert str(first) in held(tmp_path)[0]
        first.unlink()
        followed.follower.watch()
        maps, descriptors = held(tmp_path)
        assert not [path for path in (*maps, *descriptors) if path.endswith(" (deleted)")]
        followed.check_queues()
        assert not followed.follower.watch(), "nothing else has changed"


@pytest.fixture
def growing(tmp_path: Path) -> GrowingStore:
    growing = GrowingStore(tmp_path / "store")
    for _ in range(12):
        growing.add()
    growing.flush()
    return growing


class TestLettingGo:
    @pytest.mark.parametrize(
        "change",
        [
            lambda store, growing: store.refresh(),
            lambda store, growing: growing.exchange_index() or store.renew(),
            lambda store, growing: growing.expire() or store.renew(),
        ],
        ids=["growth", "index", "expiry"],
    )
    def test_a_snapshot_goes_with_the_next_one(self, growing, change) -> None:
        for _ in range(30):
            growing.add(body=b"x" * 100)
        growing.flush()
        store = MessageStore.open(growing.root)
        before = weakref.ref(store.snapshot)
        growing.add()
        change(store, growing)
        assert before() is None
