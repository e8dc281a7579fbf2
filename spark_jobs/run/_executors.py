"""The executors of a cluster's session: whether any has come, and a line for the person who waits for the first.

PySpark counts no executors. It does count tasks, which run where there is one; and of an executor that ends as soon as
it has started only the driver's log says so, at the level INFO, which it has while somebody waits.
"""

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spark_jobs.run._spark_calls import JOB_GROUP, SparkFailed

if TYPE_CHECKING:  # pyspark takes long to import: it is when a session starts
    from pyspark import SparkContext

LOOK_SECONDS: Final = 0.5
PATIENCE_SECONDS: Final = 30.0
"""How long executors take to start where a cluster has room for them; afterwards the line says what may be missing."""


MOST_ENDED: Final = 20
"""Executors that may end before any has taken a task: a master starts new ones without end, some thirty a second."""

_ENDED: Final = re.compile(r"Executor updated: \S+ is now (?:EXITED|FAILED)(?: \((.*)\))?")


class Executors:
    """Looks whether a running context has executors."""

    def __init__(self, context: "SparkContext", log: Path | None = None) -> None:
        """Nothing is asked yet; `log` is what the driver says, None where that is not known."""
        self._context, self._log, self._group = context, log, JOB_GROUP.get()
        self._tracker = context.statusTracker()
        self.master = context.master or ""

    def listen(self, *, on: bool) -> None:
        """Have the driver write down what becomes of executors, or be as quiet as always."""
        if self._log is not None:
            self._context.setLogLevel("INFO" if on else "ERROR")

    def ended(self) -> list[str]:
        """Why executors have ended, of each a few words."""
        if self._log is None or not self._log.exists():
            return []
        return [found[1] or "" for found in _ENDED.finditer(self._log.read_text(errors="replace"))]

    def give_up(self) -> None:
        """Cancel the jobs that wait for executors."""
        self._context.cancelJobGroup(self._group)

    def __call__(self) -> bool | None:
        """Whether any task has been started, None where there is none to start. Raises Py4JError without a JVM."""
        stages = [info for stage in self._tracker.getActiveStageIds() if (info := self._tracker.getStageInfo(stage))]
        if not stages:
            return None
        return any(each.numActiveTasks or each.numCompletedTasks or each.numFailedTasks for each in stages)


@contextlib.contextmanager
def watched_executors(
    executors: Executors,
    notify: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[None]:
    """While the body runs, say that the cluster has no executor for it yet, and then that the first has come.

    Nothing is said where one takes the tasks that there are before the second look. `clock` returns seconds. Raises
    SparkFailed where executors end as soon as they have started, again and again.
    """
    over, failures = threading.Event(), list[str]()

    def watch() -> None:
        with contextlib.suppress(Exception):  # the JVM went, and what waits for it says so
            while executors() is None and not over.wait(LOOK_SECONDS):
                pass
            if not over.wait(LOOK_SECONDS) and executors() is False:
                executors.listen(on=True)
                for failure in _wait_for_one(executors, notify, clock, over):
                    failures.append(failure)
                executors.listen(on=False)

    watcher = threading.Thread(target=watch, name="watch for executors", daemon=True)
    watcher.start()
    try:
        yield
    except SparkFailed as error:
        if failures:
            raise SparkFailed(failures[0]) from error
        raise
    finally:
        over.set()
        watcher.join(LOOK_SECONDS)


def _wait_for_one(
    executors: Executors, notify: Callable[[str], None], clock: Callable[[], float], over: threading.Event
) -> Iterator[str]:
    """Wait for the first executor; why that has no purpose, where it has none."""
    began, is_late = clock(), False
    notify(f"executors are starting: {executors.master} has given none yet")
    while not over.wait(LOOK_SECONDS):
        waited = clock() - began
        if executors():
            notify(f"the first executor is there, after {waited:.1f} s")
            return
        ended = executors.ended()
        if len(ended) >= MOST_ENDED:
            yield (
                f"{len(ended)} executors of {executors.master} ended as soon as they had started, the last one by: "
                f"{ended[-1]}; their stderr, on the pages of the cluster's workers, says why"
            )
            executors.give_up()
            return
        if waited >= PATIENCE_SECONDS and not is_late:
            is_late = True
            notify(
                f"no executor for {waited:.0f} s: see at {executors.master} whether cores and memory are free for one, "
                "and at its workers whether executors start and end at once: their stderr says why"
            )
