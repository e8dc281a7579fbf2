"""Run each task of a job as two attempts at the same time, as Spark does when it takes an executor for lost.

The first attempt stops in the middle of the first thing that it writes. Then the second one runs to its end, and only
then the first goes on: at once, so that its answer is what the driver gets; or when the driver has taken the answer of
the second, be that while the job goes on or when all of it is over.
"""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final
from unittest import mock

from loop_engine import LoopEngine
from spark_jobs.doctor import _check_tasks
from spark_jobs.places.hashed_file import HashedFile
from spark_jobs.run.blocks import BlockWriter
from storage.build.queue_file_writer import QueueFileWriter
from storage.files.direct_writer import GrowingFile

WHEN: Final = ("at once", "at the next phase", "after the job")
WRITES: Final = ((BlockWriter, "_write_all", 2), (HashedFile, "write", 2), (_check_tasks, "_write", 1))
WRITES += ((GrowingFile, "finish", 1), (QueueFileWriter, "_write", 1))
"""What tasks write with, and at which call the first attempt stops."""

END_SECONDS: Final = 60


class FirstAttempt(threading.Thread):
    def __init__(self, function: Callable[[Any], Any], task: Any) -> None:
        super().__init__(daemon=True)
        self._function, self._task = function, task
        self._calls = 0
        self.has_stopped = False
        self.stopped_or_ended, self.may_go_on = threading.Event(), threading.Event()
        self.answer: Any = None
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self.answer = self._function(self._task)
        except Exception as error:
            self.error = error
        self.stopped_or_ended.set()

    def note_call(self, number: int) -> None:
        """Stop at the so-manieth call of what writes."""
        self._calls += 1
        if self._calls == number:
            self.has_stopped = True
            self.stopped_or_ended.set()
            assert self.may_go_on.wait(END_SECONDS)

    def go_on(self) -> None:
        self.may_go_on.set()
        self.join(END_SECONDS)
        assert not self.is_alive()


class Overlapping(LoopEngine):
    """An engine that does; `stopped` are the names of the tasks whose first attempt was overtaken."""

    def __init__(self, when: str) -> None:
        super().__init__()
        self._when = when
        self._waiting: list[FirstAttempt] = []
        self.stopped: list[str] = []

    def run_tasks(self, name: str, tasks: Sequence[Any], function: Callable[[Any], Any], /) -> list[Any]:
        if self._when == "at the next phase":
            self.let_go()
        return super().run_tasks(name, tasks, function)

    def run(self, function: Callable[[Any], Any], task: Any) -> Any:
        first = FirstAttempt(function, task)
        first.start()
        assert first.stopped_or_ended.wait(END_SECONDS)
        answer = function(task)
        if first.has_stopped:
            self.stopped.append(task.name)
        self._waiting.append(first)
        if self._when == "at once":
            self.let_go()
            assert first.error is None
            return first.answer
        return answer

    def let_go(self) -> None:
        """Let all first attempts that still run come to their ends; a file that is gone is what they may find."""
        for first in self._waiting:
            first.go_on()
            assert first.error is None or "No such file" in str(first.error), first.error
        self._waiting.clear()


@contextlib.contextmanager
def overlapping_attempts(when: str) -> Iterator[Overlapping]:
    """Jobs that are run meanwhile run each of their tasks twice at the same time."""
    engine = Overlapping(when)
    with contextlib.ExitStack() as patches:
        for owner, name, number in WRITES:
            patches.enter_context(mock.patch.object(owner, name, _stopping(getattr(owner, name), number)))
        yield engine
        engine.let_go()


def _stopping(method: Callable[..., Any], number: int) -> Callable[..., Any]:
    @functools.wraps(method)
    def stopping(*arguments: Any, **named: Any) -> Any:
        attempt = threading.current_thread()
        if isinstance(attempt, FirstAttempt):
            attempt.note_call(number)
        return method(*arguments, **named)

    return stopping
