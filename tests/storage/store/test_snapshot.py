"""One moment of a store: what is taken over from the moment before, and that nothing keeps earlier ones."""

import weakref
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest

from growing_store import GrowingStore
from storage.index.tail_index import extend_tail
from storage.log.commit_log import CommitLog
from storage.store._log_follower import LogFollower
from storage.store.message_store import MessageStore
from storage.store.snapshot import (
    Snapshot,
    StoreOptions,
    open_snapshot,
    with_all_growth,
    with_growth,
    with_tail,
)


@pytest.fixture
def growing(tmp_path: Path) -> GrowingStore:
    growing = GrowingStore(tmp_path / "store")
    for _ in range(12):
        growing.add()
    growing.flush()
    return growing


def follower_of(snapshot: Snapshot) -> LogFollower:
    follower = LogFollower(snapshot.layout.commit_log_directories)
    follower.adopt(snapshot.commit_log)
    return follower


def grown(snapshot: Snapshot, growing: GrowingStore, count: int = 1, **message: object) -> Snapshot:
    """The snapshot with so many more messages."""
    follower = follower_of(snapshot)
    for _ in range(count):
        growing.add(**message)
    return with_all_growth(snapshot, follower)


class TestOptions:
    @pytest.mark.parametrize(("slots", "entries", "counts"), [(None, None, None), (5, None, None), (5, 20, (5, 20))])
    def test_counts_are_vouched_for_when_both_are_told(
        self, slots: int | None, entries: int | None, counts: tuple[int, int] | None
    ) -> None:
        assert StoreOptions(index_slots=slots, index_entries=entries).vouched_counts == counts


class TestOpening:
    def test_a_snapshot_cannot_be_changed(self, growing: GrowingStore) -> None:
        snapshot = open_snapshot(growing.root, StoreOptions())
        with pytest.raises(FrozenInstanceError):
            snapshot.commit_log = CommitLog([], [])  # type: ignore[misc]

    def test_the_view_shows_kernels_log_index_and_tail(self, growing: GrowingStore) -> None:
        snapshot = open_snapshot(growing.root, StoreOptions())
        assert snapshot.view.log is snapshot.commit_log.view
        assert len(snapshot.commit_log.view) == len(snapshot.commit_log.segments) > 0
        assert len(snapshot.index.view) == len(snapshot.index.files) > 0
        assert len(snapshot.tail.view) == len(snapshot.tail.runs) > 0

    def test_where_the_scan_is_put_off_the_snapshot_says_so(self, growing: GrowingStore) -> None:
        snapshot = open_snapshot(growing.root, StoreOptions(scan_budget=0))
        left = snapshot.tail.remaining_bytes
        assert snapshot.incomplete == f"{left} bytes of the log beyond the index are still to be scanned"
        whole = with_tail(snapshot, extend_tail(snapshot.tail, snapshot.commit_log, 2**62))
        assert whole.incomplete is None
        assert len(whole.tail.view) > len(snapshot.tail.view) == 0

    def test_what_lies_beyond_the_index_is_counted_from_its_last_record(self, growing: GrowingStore) -> None:
        assert open_snapshot(growing.root, StoreOptions()).beyond_index == 0
        first = growing.add(index=False)
        second = growing.add(index=False)
        assert open_snapshot(growing.root, StoreOptions()).beyond_index == first.size + second.size

    def test_without_an_index_all_of_the_log_lies_beyond_it(self, tmp_path: Path) -> None:
        growing = GrowingStore(tmp_path / "store")
        written = growing.add(index=False)
        assert open_snapshot(growing.root, StoreOptions()).beyond_index == written.size


class TestGrowth:
    def test_what_did_not_change_is_the_same_object(self, growing: GrowingStore) -> None:
        before = open_snapshot(growing.root, StoreOptions())
        after = grown(before, growing)
        assert after.commit_log.end == growing.log.end > before.commit_log.end
        for name in ("layout", "state", "config", "index"):
            assert getattr(after, name) is getattr(before, name), name
        assert after.queues.is_of(before.queues)
        assert after.queues is not before.queues

    def test_keys_that_came_are_known_and_those_of_before_are_kept(self, growing: GrowingStore) -> None:
        before = open_snapshot(growing.root, StoreOptions())
        after = grown(before, growing, 3, keys="new")
        assert after.tail.remaining == ()
        assert after.tail.entry_count > before.tail.entry_count
        assert after.view is not before.view

    def test_records_of_a_new_segment_are_seen(self, growing: GrowingStore) -> None:
        before = open_snapshot(growing.root, StoreOptions())
        after = grown(before, growing, 30, body=b"x" * 100)
        added = after.commit_log.segments[len(before.commit_log.segments) :]
        assert added
        for segment in added:
            assert after.view.log.find_segment(segment.base_offset) >= len(before.commit_log.segments)
            assert before.view.log.find_segment(segment.base_offset) == -1

    def test_nothing_new_is_the_same_snapshot(self, growing: GrowingStore) -> None:
        snapshot = open_snapshot(growing.root, StoreOptions())
        assert with_all_growth(snapshot, follower_of(snapshot)) is snapshot

    def test_an_earlier_snapshot_answers_on_as_before(self, growing: GrowingStore) -> None:
        before = open_snapshot(growing.root, StoreOptions())
        end = before.commit_log.end
        grown(before, growing, 30, body=b"x" * 100)
        assert before.commit_log.end == end
        assert before.view.log.find_segment(end) == -1


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
    def test_a_snapshot_goes_with_the_next_one(
        self, growing: GrowingStore, change: Callable[[MessageStore, GrowingStore], object]
    ) -> None:
        for _ in range(30):
            growing.add(body=b"x" * 100)
        growing.flush()
        store = MessageStore.open(growing.root)
        before = weakref.ref(store.snapshot)
        growing.add()
        change(store, growing)
        assert before() is None

    def test_growth_keeps_no_earlier_log(self, growing: GrowingStore) -> None:
        snapshot = open_snapshot(growing.root, StoreOptions())
        follower = follower_of(snapshot)
        before = weakref.ref(snapshot)
        for _ in range(3):
            growing.add()
            growth = follower.look(snapshot.commit_log, lambda *_: True)
            assert growth is not None
            snapshot = with_growth(snapshot, growth)
        assert before() is None
