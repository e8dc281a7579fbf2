"""Calls into Spark: errors of tasks come back as sentences, Ctrl-C cancels, and who waits for executors is told."""

import os
import signal
import tempfile
import threading
import time
from pathlib import Path
from typing import cast

import pytest

from blocking_client import eventually
from protocol.errors import StoreError, is_out_of_room
from spark_jobs.run import _executors
from spark_jobs.run._executors import PATIENCE_SECONDS, Executors, watched_executors
from spark_jobs.run._spark_calls import SparkFailed, TaskFailed, call_apart, spark_failure
from spark_jobs.run.session import FEW_TASKS, run_tasks

WAIT_SECONDS = 180

# Functions of tasks are local ones: workers get those by value, and cannot import test modules.


def raising(error):
    def fail(_):
        raise error

    return fail


def test_results_come_in_the_order_of_the_tasks(spark) -> None:
    squares = run_tasks(spark, "square", [3, 1, 2], lambda number: {"square": number * number})
    assert squares == [{"square": 9}, {"square": 1}, {"square": 4}]
    many = list(range(FEW_TASKS + 1))
    assert run_tasks(spark, "square", many, lambda number: number * number) == [number * number for number in many]
    assert run_tasks(spark, "nothing", [], lambda number: {"number": number}) == []


def test_an_error_that_a_task_raises_on_purpose_arrives_with_its_text(spark) -> None:
    error = StoreError("/a/store/index/2024", what='holds "quotes", 订单,\nand two lines \\ ')
    with pytest.raises(TaskFailed) as caught:
        run_tasks(spark, "fail", [1, 2], raising(error))
    assert str(caught.value) == str(error)
    assert not is_out_of_room(caught.value)


def test_workers_of_another_python_are_named_with_what_to_install(spark) -> None:
    def differ(_):
        from pyspark.errors import PySparkRuntimeError

        versions = {"worker_version": "3.12", "driver_version": "3.11"}
        raise PySparkRuntimeError(errorClass="PYTHON_VERSION_MISMATCH", messageParameters=versions)

    with pytest.raises(SparkFailed) as caught:
        run_tasks(spark, "differ", [1], differ)
    assert str(caught.value) == (
        "RocketLens cannot run: Spark's workers have Python 3.12, this command has 3.11; "
        "install requirements-spark.lock for 3.11 there, and name that Python by --conf spark.pyspark.python=PATH"
    )


def test_a_worker_that_a_signal_ended_is_told_with_what_may_be_the_reason(spark) -> None:
    def die(_):
        os.kill(os.getpid(), signal.SIGBUS)
        return {}

    with pytest.raises(SparkFailed, match=r"^a worker of Spark was ended by a signal: a file of the store became sh"):
        run_tasks(spark, "die", [0], die)


def test_any_other_error_is_a_bug_and_keeps_its_trace(spark) -> None:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors.exceptions.captured import CapturedException

    with pytest.raises((Py4JJavaError, CapturedException), match="list index out of range"):
        run_tasks(spark, "fail", [1], raising(IndexError("list index out of range")))


def test_ctrl_c_cancels_the_job_and_leaves_the_session_fit_for_the_next(spark, tmp_path) -> None:
    started = tmp_path / "started"

    def never_ends(path):
        import pathlib
        import time

        pathlib.Path(path).touch()
        while True:
            time.sleep(0.1)

    def interrupt() -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while not started.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    watcher = threading.Thread(target=interrupt)
    watcher.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            run_tasks(spark, "endless", [str(started)], never_ends)
    finally:
        watcher.join()
        signal.signal(signal.SIGINT, previous)
    assert started.exists()
    assert spark.statusTracker().getActiveJobsIds() == []
    assert run_tasks(spark, "next", [7], lambda number: {"number": number}) == [{"number": 7}]


LOST = (
    "Lost task 0.1 in stage 3.0 (TID 7) (10.0.0.7 executor 2): java.io.IOException: Cannot run program "
    '"/opt/python3": error=2, No such file or directory'
)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "Job aborted due to stage failure: \nAborting TaskSet 3.0 because task 0 (partition 0)\n"
            "cannot run anywhere due to node and executor excludeOnFailure.\nMost recent failure:\n"
            f"{LOST}\n\tat a.B(C.java)\n\nExecutionExclusion behavior can be configured via "
            "spark.excludeOnFailure.*.\n\nDriver stacktrace:",
            LOST,
        ),
        (
            f"Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times, most recent failure: {LOST}\n"
            "\tat java.base/java.lang.ProcessBuilder.start(Unknown Source)\n\t... 3 more\nDriver stacktrace:",
            f"Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times, most recent failure: {LOST}",
        ),
        (
            "Job 0 cancelled because SparkContext was shut down",
            "the cluster has ended the application: its executors could not be started, or ended again and again "
            "(their stderr, on the pages of the cluster's workers, says why), or somebody stopped it",
        ),
    ],
)
def test_a_failure_of_a_cluster_is_told_with_its_reason(said: str, told: str) -> None:
    """The texts are those of Spark's TaskSetManager and DAGScheduler."""
    assert str(spark_failure("Spark gave up", RuntimeError(said))) == f"Spark gave up: {told}"


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


def test_an_executor_is_there_where_a_task_runs_and_nobody_knows_without_any(spark) -> None:
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
