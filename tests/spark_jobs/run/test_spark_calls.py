"""Calls into Spark: errors of tasks come back as sentences, Ctrl-C cancels, and the session can go on."""

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from protocol.errors import StoreError, is_out_of_room
from spark_jobs.run._spark_calls import JOB_GROUP, SparkFailed, TaskFailed, call_apart, spark_failure
from spark_jobs.run.session import FEW_TASKS, run_tasks

if TYPE_CHECKING:
    from pyspark import SparkContext

WAIT_SECONDS = 180

# Functions of tasks are local ones: workers get those by value, and cannot import test modules.


def raising(error: Exception) -> Callable[[int], dict[str, Any]]:
    def fail(_: int) -> NoReturn:
        raise error

    return fail


def test_results_come_in_the_order_of_the_tasks(spark: "SparkContext") -> None:
    assert run_tasks(spark, "square", [3, 1, 2], lambda number: {"square": number * number}) == [
        {"square": 9},
        {"square": 1},
        {"square": 4},
    ]
    many = list(range(FEW_TASKS + 1))
    assert run_tasks(spark, "square", many, lambda number: number * number) == [number * number for number in many]
    assert run_tasks(spark, "nothing", [], lambda number: {"number": number}) == []


def test_an_error_that_a_task_raises_on_purpose_arrives_with_its_text(spark: "SparkContext") -> None:
    error = StoreError("/a/store/index/2024", what='holds "quotes", 订单,\nand two lines \\ ')
    with pytest.raises(TaskFailed) as caught:
        run_tasks(spark, "fail", [1, 2], raising(error))
    assert str(caught.value) == str(error)
    assert not is_out_of_room(caught.value)


def test_errors_are_told_alike_once_there_is_a_session_too(spark: "SparkContext") -> None:
    """A SparkSession has all of its process's errors from the JVM changed into errors of its own."""
    from pyspark.sql import SparkSession

    SparkSession(spark)
    with pytest.raises(TaskFailed) as caught:
        run_tasks(spark, "fail", [1], raising(OSError(28, "No space left on device", "/a/work/blocks/1")))
    assert str(caught.value) == "/a/work/blocks/1: No space left on device"
    assert is_out_of_room(caught.value)


def test_workers_of_another_python_are_named_with_what_to_install(spark: "SparkContext") -> None:
    def differ(_: int) -> NoReturn:
        from pyspark.errors import PySparkRuntimeError

        versions = {"worker_version": "3.12", "driver_version": "3.11"}
        raise PySparkRuntimeError(errorClass="PYTHON_VERSION_MISMATCH", messageParameters=versions)

    with pytest.raises(SparkFailed) as caught:
        run_tasks(spark, "differ", [1], differ)
    assert str(caught.value) == (
        "RocketLens cannot run: Spark's workers have Python 3.12, this command has 3.11; "
        "install requirements-spark.lock for 3.11 there, and name that Python by --conf spark.pyspark.python=PATH"
    )


def test_a_worker_that_a_signal_ended_is_told_with_what_may_be_the_reason(spark: "SparkContext") -> None:
    def die(_: int) -> dict[str, Any]:
        os.kill(os.getpid(), signal.SIGBUS)
        return {}

    with pytest.raises(SparkFailed, match=r"^a worker of Spark was ended by a signal: a file of the store became sh"):
        run_tasks(spark, "die", [0], die)


def test_any_other_error_is_a_bug_and_keeps_its_trace(spark: "SparkContext") -> None:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors.exceptions.captured import CapturedException

    with pytest.raises((Py4JJavaError, CapturedException), match="list index out of range"):
        run_tasks(spark, "fail", [1], raising(IndexError("list index out of range")))


def test_ctrl_c_cancels_the_job_and_leaves_the_session_fit_for_the_next(spark: "SparkContext", tmp_path: Path) -> None:
    started = tmp_path / "started"

    def never_ends(path: str) -> dict[str, Any]:
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


def test_a_job_is_cancelled_with_its_group_and_nobody_else_s(spark: "SparkContext", tmp_path: Path) -> None:
    """In a session that is somebody else's their jobs go on when ours is stopped."""
    from spark_jobs.run.session import spark_context

    started, may_end = tmp_path / "started", tmp_path / "may_end"

    def waits(path: str) -> str:
        import pathlib
        import time

        pathlib.Path(path).touch()
        while not pathlib.Path(path).with_name("may_end").exists():
            time.sleep(0.02)
        return "ended"

    theirs = call_apart(lambda: spark.parallelize([str(started)], 1).map(waits).collect())
    deadline = time.monotonic() + WAIT_SECONDS
    while not started.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert started.exists()
    with spark_context("search", "", tmp_path):
        ours = JOB_GROUP.get()
        assert run_tasks(spark, "search", [1], lambda number: number) == [1]
        assert len(spark.statusTracker().getJobIdsForGroup(ours)) == 1
        spark.cancelJobGroup(ours)
    assert JOB_GROUP.get() != ours
    may_end.touch()
    assert theirs.result(WAIT_SECONDS) == ["ended"]


def test_what_spark_says_is_told_in_one_line() -> None:
    error = spark_failure("Spark does not start", ValueError("no such master\n\tat somewhere"))
    assert (type(error), str(error)) == (SparkFailed, "Spark does not start: no such master")


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


def test_an_error_of_a_jvm_that_is_gone_is_told_all_the_same() -> None:
    """py4j asks the JVM for the text of an error."""

    class Gone(Exception):
        @property
        def java_exception(self) -> NoReturn:
            raise AttributeError

        def __str__(self) -> NoReturn:
            raise ConnectionRefusedError

    assert str(spark_failure("Spark gave up", Gone())) == "Spark gave up: its JVM has ended"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "Invalid maximum heap size: -Xmx9t\nError: Could not create the Java Virtual Machine.\n"
            "Error: A fatal exception has occurred. Program will exit.\n",
            "Invalid maximum heap size: -Xmx9t",
        ),
        ("Error: Could not create the Java Virtual Machine.\n", "Error: Could not create the Java Virtual Machine."),
        ("Picked up\nno such master\n\tat a.B(C.java)\n\t... 3 more\n\n", "no such master"),
    ],
)
def test_a_jvm_that_ended_at_once_is_told_by_its_last_words(tmp_path: Path, said: str, told: str) -> None:
    log = tmp_path / "spark.log"
    log.write_text(said)
    error = spark_failure("Spark does not start", RuntimeError("[JAVA_GATEWAY_EXITED] Java gateway …"), log)
    assert str(error) == f"Spark does not start: {told}; more in {log}"
