"""Locks of queues: granted to one member, renewed, given back, and run out after a minute."""

from typing import Any

import pytest

from broker.service.consumers import queue_locks
from broker.service.consumers.queue_locks import LOCK_SECONDS, QueueLocks
from broker.service.registry_budget import RegistryBudget
from protocol.bodies import MessageQueue
from still_clock import StillClock

Q0, Q1, Q2 = (MessageQueue("broker-a", number, "T") for number in range(3))


@pytest.fixture
def locks(clock: StillClock) -> QueueLocks:
    return QueueLocks(clock)


def test_a_queue_is_granted_to_the_first_who_asks(locks: QueueLocks) -> None:
    assert locks.lock("G", "c1", [Q0, Q1]) == [Q0, Q1]
    assert locks.lock("G", "c2", [Q1, Q2]) == [Q2]
    assert locks.lock("G", "c1", [Q0, Q1, Q2]) == [Q0, Q1]


def test_a_lock_given_back_can_be_had_at_once_but_only_its_owner_gives_it_back(locks: QueueLocks) -> None:
    locks.lock("G", "c1", [Q0, Q1])
    locks.unlock("G", "c2", [Q0])
    locks.unlock("H", "c1", [Q0])
    assert locks.lock("G", "c2", [Q0]) == []
    locks.unlock("G", "c1", [Q0, Q2])
    assert locks.lock("G", "c2", [Q0, Q1]) == [Q0]


def test_a_lock_that_is_not_renewed_runs_out_after_a_minute(locks: QueueLocks, clock: StillClock) -> None:
    locks.lock("G", "c1", [Q0])
    clock.seconds += LOCK_SECONDS
    assert locks.lock("G", "c2", [Q0]) == []
    clock.seconds += 1
    assert locks.lock("G", "c2", [Q0]) == [Q0]
    assert locks.lock("G", "c1", [Q0]) == []


def test_asking_again_renews_a_lock(locks: QueueLocks, clock: StillClock) -> None:
    for _ in range(10):
        assert locks.lock("G", "c1", [Q0]) == [Q0]
        clock.seconds += LOCK_SECONDS - 1
    assert locks.lock("G", "c2", [Q0]) == []


def test_locks_beyond_the_limit_are_not_granted_until_old_ones_run_out(
    locks: QueueLocks, clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_locks, "LOCKS_LIMIT", 2)
    assert locks.lock("G", "c1", [Q0, Q1, Q2]) == [Q0, Q1]
    assert locks.lock("G", "c1", [Q0]) == [Q0]
    clock.seconds += LOCK_SECONDS + 1
    assert locks.lock("G", "c2", [Q2]) == [Q2]
    assert len(locks) == 1


def test_locks_are_counted_in_bytes_and_given_back(locks: QueueLocks, clock: StillClock) -> None:
    locks.lock("G", "c1", [Q0, Q1])
    clock.seconds += LOCK_SECONDS + 1
    locks.lock("G", "c" * 200, [Q0])
    used = locks.room.used
    locks.unlock("G", "c1", [Q1])
    locks.unlock("G", "c" * 200, [Q0])
    assert (used > 1000, locks.room.used, len(locks)) == (True, 0, 0)


def test_without_room_old_locks_give_way_and_live_ones_stay(locks: QueueLocks, clock: StillClock) -> None:
    locks.room = RegistryBudget(2000).room("locks", 1)
    assert locks.lock("G", "c1", [Q0, Q1]) == [Q0, Q1]
    assert locks.lock("H" * 200, "c2" * 100, [Q0, Q1, Q2]) == []
    assert locks.lock("G", "c1", [Q0, Q1]) == [Q0, Q1], "who has a lock keeps it"
    clock.seconds += LOCK_SECONDS + 1
    assert locks.lock("H" * 200, "c2" * 100, [Q0]) == [Q0]
    assert len(locks) == 1


def test_that_there_is_no_room_is_not_looked_into_for_each_queue(locks: QueueLocks) -> None:
    locks.room = RegistryBudget(2000).room("locks", 1)
    looked: list[int] = []
    locks._locks = CountedLocks(looked)
    many = [MessageQueue("broker-a", number, "T") for number in range(1000)]
    assert len(locks.lock("G", "c1", many)) < 10
    assert len(looked) == 1


class CountedLocks(dict[Any, Any]):
    """Locks that note when all of them are looked at."""

    def __init__(self, looked: list[int]) -> None:
        super().__init__()
        self._looked = looked

    def items(self) -> Any:
        self._looked.append(len(self))
        return super().items()
