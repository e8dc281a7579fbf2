"""Waiting for a cluster's executors: said to the person who waits, once, and never where one is there."""

import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from blocking_client import eventually
from spark_jobs.run import _executors
from spark_jobs.run._executors import PATIENCE_SECONDS, Executors, watched_executors
from spark_jobs.run._spark_calls import SparkFailed, call_apart

if TYPE_CHECKING:
    from pyspark import SparkContext

WAIT_SECONDS = 60
MASTER = "spark://cluster:7077"
STARTING = f"executors are starting: {MASTER} has given none yet"


class Counted:
    """Executors that are there when they are let in; each question advances the clock by ten seconds."""

    master = MASTER

    def __init__(self, there: int) -> None:
        self.there, self.questions, self.dying = there, 0, 0
        self.heard: list[bool] = []
        self.gave_up = threading.Event()

    def __call__(self) -> bool | None:
        self.questions += 1
        return None if self.questions == 1 else self.there > 0

    def clock(self) -> float:
        return self.questions * 10.0

    def listen(self, *, on: bool) -> None:
        self.heard.append(on)

    def ended(self) -> list[str]:
        return ["Command exited with code 1"] * (self.dying * self.questions)

    def give_up(self) -> None:
        self.gave_up.set()


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_executors, "LOOK_SECONDS", 0.01)


def test_nothing_is_said_where_an_executor_is_there() -> None:
    lines: list[str] = []
    counted = Counted(1)
    with watched_executors(cast("Executors", counted), lines.append, counted.clock):
        eventually(lambda: counted.questions >= 3, "a third look", WAIT_SECONDS)
    assert lines == []


def test_that_executors_start_is_said_once_and_when_the_first_has_come() -> None:
    lines: list[str] = []
    counted = Counted(0)
    with watched_executors(cast("Executors", counted), lines.append, counted.clock):
        eventually(lambda: len(lines) == 2, "a second line", WAIT_SECONDS)
        counted.there = 2
        eventually(lambda: len(lines) == 3, "the line of the first executor", WAIT_SECONDS)
    assert lines[0] == STARTING
    assert lines[1] == (
        f"no executor for {PATIENCE_SECONDS:.0f} s: see at {MASTER} whether cores and memory are free for one, "
        "and at its workers whether executors start and end at once: their stderr says why"
    )
    assert lines[2].startswith("the first executor is there, after ")


def test_executors_that_end_as_soon_as_they_start_end_the_command_with_the_reason() -> None:
    lines: list[str] = []
    counted = Counted(0)
    counted.dying = 3

    def run() -> None:
        with watched_executors(cast("Executors", counted), lines.append, counted.clock):
            assert counted.gave_up.wait(WAIT_SECONDS)
            raise SparkFailed("Spark gave up: Job 0 cancelled part of cancelled job group rebuild")

    with pytest.raises(SparkFailed) as found:
        run()
    assert str(found.value) == (
        f"21 executors of {MASTER} ended as soon as they had started, the last one by: Command exited with code 1; "
        "their stderr, on the pages of the cluster's workers, says why"
    )
    assert counted.heard[0]


def test_an_executor_is_there_where_a_task_runs_and_nobody_knows_without_any(spark: "SparkContext") -> None:
    def wait(path: str) -> None:
        import pathlib
        import time

        while not pathlib.Path(path).exists():
            time.sleep(0.02)

    _executors = Executors(spark)
    assert _executors() is None
    with tempfile.TemporaryDirectory() as directory:
        job = call_apart(lambda: spark.parallelize([f"{directory}/end"], 1).foreach(wait))
        eventually(lambda: _executors() is True, "a task that runs", WAIT_SECONDS)
        Path(directory, "end").touch()
        job.result(WAIT_SECONDS)
    eventually(lambda: _executors() is None, "the end of the stage", WAIT_SECONDS)
