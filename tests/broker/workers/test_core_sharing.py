"""When a worker lets others on its core finish first, and when it does not."""

import os
import threading
from collections.abc import Callable

import pytest

from broker.workers.core_sharing import BUSY_SHARE, IDLE_SHARE, CoreSharing

SOME = 5


class Thread:
    """What a thread's clocks say: moved by hand."""

    def __init__(self) -> None:
        self.now = self.spent = 0.0
        self.sharing = CoreSharing(lambda: self.now, lambda: self.spent)

    def look_after(self, share: float, connections: int = SOME) -> int:
        """Have a tenth of a second pass of which the thread has run a share; how it is scheduled then."""
        self.now += 0.1
        self.spent += 0.1 * share
        self.sharing.look(connections)
        return os.sched_getscheduler(0)


def on_a_thread(work: Callable[[], list[int]]) -> list[int]:
    """What comes of work whose scheduling concerns no other test."""
    found: list[list[int]] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found[0]


def test_a_busy_worker_of_several_clients_shares_its_core_until_it_is_idle() -> None:
    def work() -> list[int]:
        thread = Thread()
        between = (BUSY_SHARE + IDLE_SHARE) / 2
        return [thread.look_after(share) for share in (0.0, between, BUSY_SHARE + 0.01, between, IDLE_SHARE - 0.01)]

    normal, batch = os.SCHED_OTHER, os.SCHED_BATCH
    assert on_a_thread(work) == [normal, normal, batch, batch, normal]


def test_a_single_client_is_answered_promptly_however_busy_it_keeps_the_worker() -> None:
    def work() -> list[int]:
        thread = Thread()
        return [thread.look_after(1.0, connections) for connections in (1, SOME, 1)]

    assert on_a_thread(work) == [os.SCHED_OTHER, os.SCHED_BATCH, os.SCHED_OTHER]


def test_a_scheduling_that_somebody_chose_is_left_alone() -> None:
    def work() -> list[int]:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        thread = Thread()
        return [thread.look_after(share) for share in (1.0, 0.0)]

    assert on_a_thread(work) == [os.SCHED_IDLE, os.SCHED_IDLE]


def test_where_it_is_forbidden_the_worker_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", forbidden)
    thread = Thread()
    assert thread.look_after(1.0) == os.SCHED_OTHER
    assert not thread.sharing.is_possible
    assert thread.look_after(1.0) == os.SCHED_OTHER
