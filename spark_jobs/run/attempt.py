"""One attempt of a task among several: each writes under a name of its own, and one of them counts.

Spark may run a task twice at the same time: a lost executor's task is started elsewhere while the first attempt still
runs, and with speculation slow tasks are. An attempt leaves its files under its random name, then its record, which
only the first attempt to get there can. Every attempt returns that record, which names the attempt whose files count
(`attempt`) and the sizes of its files of blocks (`files`). The driver refers to these files alone, in what later tasks
read and in what is published, and removes the others.

A task's files while it runs, TASK being its name and TOKEN of its attempt:

    blocks/TASK.TOKEN.KIND       what later tasks read
    partial/TASK.TOKEN           a file or directory that the driver will bring to its place
    progress/TASK.TOKEN          how far the attempt is
    done/TASK.msgpack            the record of the attempt that counts
"""

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol, TypeAlias, TypedDict, TypeVar, cast

from spark_jobs.run.progress import JobProgress, Phase, shown
from spark_jobs.run.work_directory import WorkDirectory
from storage.files.attempt_names import attempt_name
from storage.files.own_directories import remove_path

Task = TypeVar("Task")
Result = TypeVar("Result")
Notify: TypeAlias = Callable[[int, int], None]
"""Called with the bytes, or entries, and the messages that are done so far."""


class AttemptRecord(TypedDict, total=False):
    """What :func:`run_attempt` adds to the summary of a task: which attempt counts, the sizes of its files, times in s.

    Summaries are dicts that extend this one, since they lie in the work directory as msgpack, and come back from
    Spark, as what they are.
    """

    attempt: str
    files: dict[str, int]
    began: float
    seconds: float


BOOKKEEPING: Final = frozenset(AttemptRecord.__annotations__)
"""What of a record is no part of the summary."""

Record = TypeVar("Record", bound=AttemptRecord)


class RunTasks(Protocol):
    """Runs tasks under a name, each by a function that executors can import; their answers in order."""

    def __call__(self, name: str, tasks: Sequence[Task], function: Callable[[Task], Result], /) -> list[Result]:
        """Run them."""


class Attempt:
    """Where one attempt of a task writes; nobody else knows the names."""

    def __init__(self, work: WorkDirectory, task: str) -> None:
        """Choose the name; nothing is made."""
        self.work = work
        self.name = attempt_name(task)
        self.partial = work.partial / self.name

    def blocks(self, kind: str) -> Path:
        """A file of the attempt for later tasks to read."""
        return block_file(self.work, {"attempt": self.name}, kind)

    def sizes(self) -> dict[str, int]:
        """The sizes in bytes of the files for later tasks that there are, by kind."""
        start = f"{self.name}."
        with os.scandir(self.work.blocks) as entries:
            return {
                entry.name.removeprefix(start): entry.stat().st_size
                for entry in entries
                if entry.name.startswith(start)
            }

    def discard(self) -> None:
        """Remove what the attempt has written."""
        with contextlib.suppress(OSError):
            for kind in self.sizes():
                remove_path(self.blocks(kind))
        for path in (self.partial, self.work.report_file(self.name)):
            with contextlib.suppress(OSError):
                remove_path(path)


def run_attempt(
    root: str,
    task: str,
    make: Callable[[Attempt, Notify], Record],
    is_whole: Callable[[WorkDirectory, Record], bool] = lambda *_: True,
) -> Record:
    """Do what a task has to do, in the work directory at `root`; the record of the attempt that counts.

    Where a finished attempt's record is there, its files are, and `is_whole`, nothing is done. An attempt that fails,
    or ends behind another, removes its files.
    """
    work = WorkDirectory(Path(root))
    if (done := cast("Record | None", work.done(task))) is not None:
        if has_blocks(work, done) and is_whole(work, done):
            return done
        work.forget(task)
    attempt, began = Attempt(work, task), time.time()
    try:
        with contextlib.closing(work.report(attempt.name)) as progress:
            summary = make(attempt, progress.update)
        record = {
            **summary,
            "attempt": attempt.name,
            "files": attempt.sizes(),
            "began": began,
            "seconds": time.time() - began,
        }
        counts = cast("Record", work.finish_first(task, record))
    except BaseException:
        attempt.discard()
        raise
    if counts["attempt"] != attempt.name:
        attempt.discard()
    return counts


def block_file(work: WorkDirectory, record: AttemptRecord, kind: str) -> Path:
    """The file of blocks of a kind that the attempt left which a record names."""
    return work.blocks / f"{record['attempt']}.{kind}"


def has_blocks(work: WorkDirectory, record: AttemptRecord) -> bool:
    """Whether the files of blocks that a record lists are there in their sizes."""
    try:
        return all(block_file(work, record, kind).stat().st_size == size for kind, size in record["files"].items())
    except (OSError, KeyError):
        return False


def take_made(root: str, record: AttemptRecord, out: str) -> None:
    """Bring the file of the attempt that counts to its place, unless it is there already. The driver does it."""
    made = WorkDirectory(Path(root)).partial / record["attempt"]
    if made.exists():
        os.replace(made, out)


def is_made(work: WorkDirectory, record: AttemptRecord, out: str, size: int) -> bool:
    """Whether a file of so many bytes is there, where the attempt left it or where it was brought."""
    made = work.partial / record["attempt"]
    try:
        return os.stat(made if made.exists() else out).st_size == size
    except OSError:
        return False


def run_phase(
    run: RunTasks,
    work: WorkDirectory,
    progress: JobProgress,
    phase: Phase,
    tasks: Sequence[Task],
    function: Callable[[Task], Record],
) -> list[Record]:
    """Run the tasks of a phase, whose names begin with its own, and show how much of it they have done.

    What attempts have left that none of the returned records names is removed.
    """
    work.enter(phase.name)
    with shown(progress, work, phase):
        records = run(phase.title, tasks, function)
    work.keep_attempts(phase.name, {record["attempt"] for record in records})
    return records
