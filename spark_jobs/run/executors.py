"""The executors of a cluster's session: how many there are, and a line for the person who waits for the first."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:  # pyspark takes long to import: it is when a session starts
    from pyspark import SparkContext

LOOK_SECONDS: Final = 0.5
PATIENCE_SECONDS: Final = 30.0
"""How long executors take to start where a cluster has room for them; afterwards the line says what may be missing."""


class Executors:
    """Counts the executors that a running context has."""

    def __init__(self, context: "SparkContext") -> None:
        """Nothing is asked yet."""
        self._context = context
        self.master = context.master or ""

    def __call__(self) -> int:
        """How many have registered; the driver does not count. Raises Py4JError where the JVM is gone."""
        java: Any = self._context._jsc
        return int(java.sc().getExecutorMemoryStatus().size()) - 1


@contextlib.contextmanager
def watched_executors(
    executors: Executors,
    notify: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[None]:
    """While the body runs, say that the cluster has no executor for it yet, and then that the first has come.

    Nothing is said where one is there at the first look. `clock` returns seconds.
    """
    over = threading.Event()

    def watch() -> None:
        with contextlib.suppress(Exception):  # the JVM went, and what waits for it says so
            if not executors():
                _wait_for_one(executors, notify, clock, over)

    watcher = threading.Thread(target=watch, name="watch for executors", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join(LOOK_SECONDS)


def _wait_for_one(
    executors: Executors, notify: Callable[[str], None], clock: Callable[[], float], over: threading.Event
) -> None:
    began, is_late = clock(), False
    notify(f"executors are starting: {executors.master} has given none yet")
    while not over.wait(LOOK_SECONDS):
        waited = clock() - began
        if executors():
            notify(f"the first executor is there, after {waited:.1f} s")
            return
        if waited >= PATIENCE_SECONDS and not is_late:
            is_late = True
            notify(
                f"no executor for {waited:.0f} s: see at {executors.master} whether cores and memory are free for one"
            )
