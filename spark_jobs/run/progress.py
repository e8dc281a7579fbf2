"""How far a job is, shown while Spark works: the driver reads what the tasks report into the work directory."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

from spark_jobs.run.work_directory import WorkDirectory
from storage.amounts import amount_text

INTERVAL_SECONDS: Final = 0.2


class JobProgress(Protocol):
    """Shows how far a job is: as a bar, in plain lines, or not at all."""

    def begin(self, phase: str, total: int, unit: str) -> None:
        """Begin a phase that is over at `total` of `unit` ("bytes" of log, or "entries")."""

    def update(self, done: int, messages: int) -> None:
        """Take note of how much of the phase is done."""

    def end(self) -> None:
        """End the phase."""

    def note(self, text: str) -> None:
        """Show one line to the person who waits."""


class Silence:
    """Shows no progress: for a program that reads the output, and for tests."""

    def begin(self, phase: str, total: int, unit: str) -> None:
        """Do nothing."""

    def update(self, done: int, messages: int) -> None:
        """Do nothing."""

    def end(self) -> None:
        """Do nothing."""

    def note(self, text: str) -> None:
        """Do nothing."""


class Phase(NamedTuple):
    """A part of a job by its name, which is over at `total` of `unit` ("bytes" of log, or "entries")."""

    name: str
    total: int
    unit: str

    @property
    def title(self) -> str:
        """The phase and its size, as the Spark UI shows it: `scan 4.3 GB`."""
        return f"{self.name} {amount_text(self.total, self.unit)}"


@contextlib.contextmanager
def shown(progress: JobProgress, work: WorkDirectory, phase: Phase) -> Iterator[None]:
    """Show the progress of a phase's tasks while the body runs."""
    progress.begin(phase.name, phase.total, phase.unit)
    _show_once(progress, work, phase.name)  # what an earlier run has done is no speed of this one
    over = threading.Event()

    def look() -> None:
        while not over.wait(INTERVAL_SECONDS):
            _show_once(progress, work, phase.name)

    watcher = threading.Thread(target=look, name=f"progress of {phase.name}", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
        _show_once(progress, work, phase.name)
        progress.end()


def _show_once(progress: JobProgress, work: WorkDirectory, phase: str) -> None:
    reports = list(work.progress(phase))
    progress.update(sum(done for done, _ in reports), sum(messages for _, messages in reports))
