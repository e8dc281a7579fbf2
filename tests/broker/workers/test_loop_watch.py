"""A worker counts as stuck by how often the supervisor looked at it in vain, not by the time of a clock."""

import asyncio
import threading
from functools import partial

import pytest

from broker.metrics import metrics_rows as places
from broker.metrics.metrics_rows import MetricsRows
from broker.server import _repeat
from broker.service.dispatcher import Dispatcher
from broker.workers.loop_watch import LoopWatch
from broker_harness import until
from still_clock import StillClock

LIMIT_SECONDS = 8.0


class Watched:
    """Three workers, and looks at them an interval apart."""

    def __init__(self) -> None:
        self.rows, self.clock = MetricsRows(3), StillClock()
        self.watch = LoopWatch(self.rows, LIMIT_SECONDS, self.clock)

    def look(self, *turning: int, serving: tuple[int, ...] = (0, 1, 2), seconds: float = 1.0) -> list[int]:
        """Put the clock forward, have some loops turn, and look."""
        self.clock.seconds += seconds
        for number in turning:
            self.rows.beat(number)
        return self.watch.look(serving)


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_a_loop_that_stands_still_is_told_after_so_long_and_the_others_are_not(watched: Watched) -> None:
    assert watched.look(0, 1, 2) == []
    for _ in range(7):
        assert watched.look(0, 2) == []
    assert watched.look(0, 2) == [1]


def test_a_loop_that_turned_in_between_begins_anew(watched: Watched) -> None:
    for turning in [(0, 1, 2), *[(0, 2)] * 7, (0, 1, 2), *[(0, 2)] * 7]:
        assert watched.look(*turning) == []
    assert watched.look(0, 2) == [1]


def test_nobody_is_silent_while_the_machine_is_suspended(watched: Watched) -> None:
    """Neither when all stood still for an hour nor when that happens again and again."""
    watched.look(0, 1, 2)
    for _ in range(3):
        assert watched.look(seconds=3600) == []
        assert watched.look(0, 1, 2) == []
    # Of the supervisor's own time, it counts.
    assert watched.look(seconds=3600) == []
    assert [watched.look() for _ in range(6)] == [[], [], [], [], [], [0, 1, 2]]


def test_who_does_not_serve_yet_is_not_looked_at_and_a_successor_begins_anew(watched: Watched) -> None:
    watched.look(0, 1, 2)
    for _ in range(20):
        assert watched.look(0, 2, serving=(0, 2)) == []
    for _ in range(8):
        assert watched.look(0, 2) == []
    assert watched.look(0, 2) == [1]


def test_who_was_ended_is_counted_and_keeps_its_count_in_the_next_life(watched: Watched) -> None:
    watched.watch.count(1)
    watched.rows.begin(1)
    watched.watch.count(1)
    assert watched.rows.column(places.STUCK) == [0, 2, 0]


@pytest.mark.asyncio
async def test_work_on_a_thread_is_not_a_loop_that_stands_still(watched: Watched) -> None:
    release = threading.Event()
    dispatcher = Dispatcher([], 1)
    loop = asyncio.get_running_loop()
    _repeat(loop, partial(watched.rows.beat, 0), 0.001)
    working = dispatcher.run_in_pool(lambda: release.wait(60))
    for _ in range(20):
        heard = watched.rows.column(places.HEARTBEAT)
        await until(lambda: watched.rows.column(places.HEARTBEAT) != heard)  # noqa: B023 - called at once
        assert watched.look(serving=(0,)) == []
    release.set()
    assert await working
    # The loop does not turn while this looks.
    assert [watched.look(serving=(0,)) for _ in range(9)][-1] == [0]
    dispatcher.close()
