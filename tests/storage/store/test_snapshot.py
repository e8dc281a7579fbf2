"""One moment of a store: what is taken over from the moment before, and that nothing keeps earlier ones."""

import weakref
from collections.abc import Callable
from pathlib import Path

import pytest

from growing_store import GrowingStore
from storage.store._log_follower import LogFollower
from storage.store.message_store import MessageStore
from storage.store.snapshot import (
    Snapshot,
    StoreOptions,
    open_snapshot,
    with_all_growth,
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


class TestGrowth:
    def test_what_did_not_change_is_the_same_object(self, growing: GrowingStore) -> None:
        before = open_snapshot(growing.root, StoreOptions())
        after = grown(before, growing)
        assert after.commit_log.end == growing.log.end > before.commit_log.end
        for name in ("layout", "state", "config", "index"):
            assert getattr(after, name) is getattr(before, name), name
        assert after.queues.is_of(before.queues)
        assert after.queues is not before.queues


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
