"""Calls into Spark's JVM that Ctrl-C can end cleanly, and whose errors have a text of one sentence.

py4j has a connection for each thread. An exception that breaks a call off in the middle of an answer leaves the
thread's connection there, so that the calls that should cancel the job and end the session fail or hang. Calls that
take long are therefore made in threads of their own, and only the waiting for them is broken off.
"""

import contextlib
import errno
import json
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from protocol.errors import RocketLensError, is_out_of_room
from spark_jobs.run.arrival import CANNOT_RUN, Sendable

if TYPE_CHECKING:  # pyspark takes long to import: it is when a session starts
    from pyspark import SparkContext

Result = TypeVar("Result")
Task = TypeVar("Task")

JOB_GROUP: ContextVar[str] = ContextVar("JOB_GROUP", default="rocketlens")
"""The Spark job group of the command that runs: `rocketlens NAME TOKEN`, which the Spark UI shows with each of its jobs
and by which they are cancelled, without those that somebody else runs on the same context."""

CANCEL_SECONDS: Final = 20.0
"""How long a cancelled job may take to end; its session ends in any case."""

_CALL_SITE: Final = "callSite.short"
"""What the UI calls a job and its stages by."""

_ASK_AGAIN_SECONDS: Final = 0.5
_FRAME: Final = re.compile(r"\s+(at |\.\.\. \d+ more)")
_HOLLOW: Final = ("Error: Could not create the Java Virtual Machine.", "Error: A fatal exception has occurred.")
"""What a JVM says behind the reason."""

_FAILED: Final = re.compile(r'TaskFailed: (\[(?:true|false), "(?:[^"\\]|\\.)*"\])')
_CANNOT_RUN: Final = re.compile(rf"ImportError: ({CANNOT_RUN}.*)")
_OTHER_PYTHON: Final = re.compile(r"\[PYTHON_VERSION_MISMATCH\] .*?(\d+\.\d+).*?(\d+\.\d+)")
_CRASHED: Final = "Python worker exited unexpectedly (crashed)"
"""What Spark says where a signal ended a worker: SIGBUS, as a file was cut under its map, or the kernel's SIGKILL."""

_RECENT: Final = "Most recent failure:"
"""What Spark says in front of the reason where a task cannot run on any machine that there is."""

_ENDED: Final = re.compile(r"stopped SparkContext|SparkContext (was|has been) shut ?down")
_DISK_FULL: Final = os.strerror(errno.ENOSPC)
"""As Java says it too, of what Spark writes itself."""


class TaskFailed(RocketLensError):
    """A task found something that cannot be: the text is that of its own error."""


class SparkFailed(RocketLensError):
    """Spark could not start, or lost what ran a task."""


class Guarded(Sendable, Generic[Task, Result]):
    """A task's function whose expected errors are raised as TaskFailed, so that the driver knows them from bugs."""

    def __init__(self, function: Callable[[Task], Result]) -> None:
        """The function must be one that executors can import."""
        self._function = function

    def __call__(self, task: Task) -> Result:
        """Run it."""
        with guarding():
            return self._function(task)


@contextlib.contextmanager
def guarding() -> Iterator[None]:
    """Raise the expected errors of a task as TaskFailed."""
    try:
        yield
    except (RocketLensError, OSError) as error:
        # Only text comes back through the JVM, in the middle of a trace: quoted, so that its end can be found.
        raise TaskFailed(json.dumps([is_out_of_room(error), sentence_of(error)])) from error


def call_apart(function: Callable[[], Result]) -> "Future[Result]":
    """Call a function in a thread of its own, which does not keep the process alive."""
    future: Future[Result] = Future()

    def call() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=call, name="call into Spark", daemon=True).start()
    return future


def wait_for(future: "Future[Any]", seconds: float) -> bool:
    """Whether a call ends, well or not, within some time."""
    return bool(wait([future], seconds).done)


@contextlib.contextmanager
def in_group(name: str) -> Iterator[None]:
    """Have the jobs that the body runs be a group of their own, which is named after the command."""
    before = JOB_GROUP.get()
    JOB_GROUP.set(f"rocketlens {name} {secrets.token_hex(3)}")
    try:
        yield
    finally:
        JOB_GROUP.set(before)


def run_job(context: "SparkContext", name: str, job: Callable[[], Result]) -> Result:
    """Call what submits a job and waits for it; where Ctrl-C ends the waiting the job is cancelled.

    The Spark UI shows the job and its stages as `COMMAND: NAME`, in the group of the command (:func:`in_group`), where
    the job is that of `SparkContext.runJob`: PySpark names those of an RDD's methods after the line of the call. Raises
    TaskFailed for an error that a task raised on purpose, SparkFailed where no task is to blame.
    """
    # As pyspark above.
    from py4j.protocol import Py4JError
    from pyspark.errors.exceptions.captured import CapturedException

    group = JOB_GROUP.get()
    command = " ".join(group.split()[1:-1])

    def submit() -> Result:
        shown = f"{command}: {name}" if command else name
        context.setJobGroup(group, shown)
        context.setLocalProperty(_CALL_SITE, shown)  # of this thread, which has no other job
        return job()

    future = call_apart(submit)
    try:
        return future.result()
    except KeyboardInterrupt:
        _cancel(context, group, future)
        raise
    except (Py4JError, CapturedException) as error:  # the latter where a SparkSession was made in this process
        text = _text(error)
        if found := _FAILED.search(text):
            is_full, sentence = json.loads(found[1])
            raise TaskFailed(sentence) from (_no_room() if is_full else None)
        if found := _CANNOT_RUN.search(text):
            raise SparkFailed(found[1]) from None
        if found := _OTHER_PYTHON.search(text):
            raise SparkFailed(
                f"{CANNOT_RUN}Spark's workers have Python {found[1]}, this command has {found[2]}; "
                f"install requirements-spark.lock for {found[2]} there, and name that Python by "
                "--conf spark.pyspark.python=PATH"
            ) from None
        if _CRASHED in text:
            raise SparkFailed(
                "a worker of Spark was ended by a signal: a file of the store became shorter, or cannot be read any "
                "more, while it was read, or the machine has too little memory; run it again"
            ) from error
        if "Traceback" in text:
            raise
        raise spark_failure("Spark gave up", cause_of(error, context)) from (
            _no_room() if _DISK_FULL in text else error
        )


def _no_room() -> OSError:
    """Return the error of a task that found the disk full: the errors of tasks come back as texts alone."""
    return OSError(errno.ENOSPC, _DISK_FULL)


def spark_failure(what: str, error: Exception, log: Path | None = None) -> SparkFailed:
    """Put a failure of Spark into a sentence; `log` is where there is more."""
    text = _text(error, short=True)
    if "JAVA_GATEWAY_EXITED" in text and log is not None:
        text = _last_words(log) or text
    return SparkFailed(f"{what}: {_reason(text)}" + (f"; more in {log}" if log is not None and log.exists() else ""))


def cause_of(error: Exception, context: "SparkContext | None") -> Exception:
    """The error that a context gives which a cluster has ended, in place of whatever comes of that; else the error."""
    try:
        if context is not None:
            _ = context.defaultParallelism
    except Exception as ended:
        return ended if _ENDED.search(_text(ended)) else error
    return error


def _text(error: Exception, *, short: bool = False) -> str:
    """What an error says, of one from the JVM with its traces unless it is to be `short`: py4j asks the JVM for it."""
    java_exception: Any = getattr(error, "java_exception", None)
    try:
        return str(java_exception.getMessage() if short and java_exception is not None else error)
    except Exception:
        return "its JVM has ended"


def _reason(text: str) -> str:
    """The lines of what Spark says that are no trace, as one, without what it says in front of a task's failure."""
    if _ENDED.search(text):
        return (
            "the cluster has ended the application: its executors could not be started, or ended again and again "
            "(their stderr, on the pages of the cluster's workers, says why), or somebody stopped it"
        )
    lines: list[str] = []
    for line in (text.partition(_RECENT)[2] or text).strip().split("\n"):
        if not line.strip() or _FRAME.match(line) or line.startswith("Driver stacktrace:"):
            break
        lines.append(line.strip())
    return " ".join(lines)


def _cancel(context: "SparkContext", group: str, future: "Future[Any]") -> None:
    """Cancel a group, and nobody else's jobs, until it is over: one not submitted yet outlives the first call."""
    deadline = time.monotonic() + CANCEL_SECONDS
    while not future.done() and time.monotonic() < deadline:
        context.cancelJobGroup(group)
        try:
            future.exception(_ASK_AGAIN_SECONDS)
        except TimeoutError:
            continue


def sentence_of(error: Exception) -> str:
    """What an error that a task expects says to a person."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def _last_words(log: Path) -> str:
    """The last line that is no frame of a Java trace, and says more than that there will be no JVM."""
    try:
        lines = log.read_text(errors="replace").split("\n")
    except OSError:
        return ""
    said = [line.strip() for line in reversed(lines) if line.strip() and not _FRAME.match(line)]
    return next((line for line in said if not line.startswith(_HOLLOW)), said[0] if said else "")
