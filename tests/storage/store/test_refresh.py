"""What a broker appends is answered at once, in every way, and nothing else is taken for it."""

import os
import threading
from pathlib import Path

import pytest

from growing_store import Followed, GrowingStore
from protocol.question import KeyKind, Question
from storage.store import _log_follower, _refresh
from storage.store.message_store import MessageStore, StoreOptions

pytestmark = pytest.mark.usefixtures("hurried")


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
        queue = followed.store.queues.queue("T", 0)
        assert queue is not None
        assert queue.max_offset == 2
        followed.check()

    def test_a_rest_ends_when_something_comes(self, followed: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
        followed.settle()
        monkeypatch.setattr(_refresh, "MOST_RESTS", 2**31 - 1)
        resting = threading.Thread(target=followed.follower.rest, args=(0.001,), daemon=True)
        resting.start()
        followed.growing.add()
        resting.join(60)
        assert not resting.is_alive()

    def test_a_record_counts_at_once_when_another_one_follows(self, followed: Followed) -> None:
        first, second = followed.growing.add(), followed.growing.add()
        followed.poll(1)
        assert followed.store.record_at(first.physical_offset) == first.record
        assert followed.store.record_at(second.physical_offset) is None

    def test_a_message_whose_unit_comes_later_is_told_of_again_when_it_has_come(self, followed: Followed) -> None:
        followed.poll()
        followed.growing.add()
        told = followed.poll(4)
        assert [arrivals.queues for arrivals in told] == [{("T", 0)}] * 3
        queue = followed.store.queues.queue("T", 0)
        assert queue is not None
        assert queue.max_offset == 1
        followed.growing.flush()
        assert [arrivals.queues for arrivals in followed.poll(4)] == [{("T", 0)}]
        queue = followed.store.queues.queue("T", 0)
        assert queue is not None
        assert queue.max_offset == 2

    def test_a_message_that_a_refresh_took_in_is_told_of_when_its_unit_has_come(self, followed: Followed) -> None:
        followed.poll()
        written = followed.growing.add()
        followed.store.refresh()
        assert followed.store.record_at(written.physical_offset) == written.record
        assert [arrivals.queues for arrivals in followed.poll(2)] == [None, None]
        followed.growing.flush()
        assert [arrivals.queues for arrivals in followed.poll(4)] == [None]
        queue = followed.store.queues.queue("T", 0)
        assert queue is not None
        assert queue.max_offset == 2

    def test_units_on_their_way_when_a_log_is_opened_anew_are_told_of(self, followed: Followed) -> None:
        written = followed.growing.add(body=b"one")
        followed.growing.flush()
        followed.settle()
        os.truncate(followed.growing.root / "commitlog" / f"{0:020d}", written.physical_offset + written.size)
        followed.growing.writer.overwrite(written.physical_offset + 8, b"!")
        assert [arrivals.queues for arrivals in followed.poll(3)] == [None]
        queue = followed.store.queues.queue("T", 0)
        assert queue is not None
        assert queue.max_offset == 1

    @pytest.mark.parametrize("topic", ["../consumequeue/T", "..", ".", "a/b", "a\0b", "\udcff"])
    def test_a_record_of_any_topic_does_no_harm(self, followed: Followed, topic: str) -> None:
        written = followed.growing.writer.append(topic, queue=False)
        followed.poll(5)
        assert followed.store.record_at(written.physical_offset) == written.record
        assert followed.store.queues.topics() == ["T"]

    def test_messages_that_come_at_once_to_the_end_of_a_file_and_to_the_next_one_are_all_there(
        self, followed: Followed
    ) -> None:
        """Although the last message of all is one of another queue, so that nobody looks again."""
        for count in range(2, 29):
            followed.growing.add(queue_id=0)
            if count % 3 != 1:
                continue
            followed.growing.add(queue_id=1)
            followed.growing.flush()
            assert followed.poll()
            queue = followed.store.queues.queue("T", 0)
            assert queue is not None
            assert queue.max_offset == count
        followed.check()

    def test_much_is_taken_in_piece_by_piece(self, followed: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(_log_follower, "STEP_BYTES", 500)
        for _ in range(40):
            followed.growing.add(body=b"x" * 60)
        followed.growing.flush()
        ends = []
        while (arrivals := followed.follower.poll()) is not None and arrivals.more:
            ends.append(followed.store.commit_log.end)
        assert len(ends) > 10
        assert ends == sorted(set(ends))
        followed.settle()
        followed.check()


def test_options_hold_for_what_comes_later(tmp_path: Path) -> None:
    growing = GrowingStore(tmp_path / "store")
    growing.add()
    growing.flush()
    store = MessageStore.open(growing.root, StoreOptions(index_slots=7, index_entries=20, scan_budget=0))
    follower = store.follower()
    written = growing.add(keys="new")
    growing.flush()
    for _ in range(3):
        follower.poll()
    follower.watch()
    assert store.query(Question("T", "new")).physical_offsets == (written.physical_offset,)
