"""Waiting for a cluster's executors: said to the person who waits, once, and never where one is there."""

import threading
from typing import TYPE_CHECKING, cast

import pytest

from interop.stages import wait_until
from spark_jobs.run import executors
from spark_jobs.run.executors import PATIENCE_SECONDS, Executors, watched_executors

if TYPE_CHECKING:
    from pyspark import SparkContext

WAIT_SECONDS = 60
MASTER = "spark://cluster:7077"
STARTING = f"executors are starting: {MASTER} has given none yet"


class Counted:
    """Executors that are there when they are let in; each question advances the clock by ten seconds."""

    master = MASTER

    def __init__(self, there: int) -> None:
        self.there, self.questions = there, 0
        self.was_asked = threading.Event()

    def __call__(self) -> int:
        self.questions += 1
        self.was_asked.set()
        return self.there

    def clock(self) -> float:
        return self.questions * 10.0


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "LOOK_SECONDS", 0.01)


def test_nothing_is_said_where_an_executor_is_there() -> None:
    lines: list[str] = []
    counted = Counted(1)
    with watched_executors(cast("Executors", counted), lines.append, counted.clock):
        assert counted.was_asked.wait(WAIT_SECONDS)
    assert lines == []


def test_that_executors_start_is_said_once_and_when_the_first_has_come() -> None:
    lines: list[str] = []
    counted = Counted(0)
    with watched_executors(cast("Executors", counted), lines.append, counted.clock):
        wait_until(lambda: counted.questions >= 6, "a second line", WAIT_SECONDS)
        counted.there = 2
        wait_until(lambda: len(lines) == 3, "the line of the first executor", WAIT_SECONDS)
    assert lines[0] == STARTING
    assert lines[1] == (
        f"no executor for {PATIENCE_SECONDS:.0f} s: see at {MASTER} whether cores and memory are free for one"
    )
    assert lines[2].startswith("the first executor is there, after ")


def test_a_job_that_ends_before_there_is_an_executor_is_not_kept() -> None:
    lines: list[str] = []
    counted = Counted(0)
    with watched_executors(cast("Executors", counted), lines.append, counted.clock):
        wait_until(lambda: lines == [STARTING], "the first line", WAIT_SECONDS)
        (watcher,) = (thread for thread in threading.enumerate() if thread.name == "watch for executors")
    assert not watcher.is_alive()


def test_the_driver_is_no_executor(spark: "SparkContext") -> None:
    assert Executors(spark)() == 0
