"""Rows that tasks make, kept by their executors, and sent on to other tasks by Spark's own shuffle.

The first row that a task makes is small, and says what the others are: the driver gets these rows alone. All rows of a
task are those of one partition, kept on the disks of the executor that made them (Spark makes them again where that is
lost). Later tasks read them where they are, or have them sent to where they are needed, by `RDD.partitionBy`.

That one gathers a thousand rows at first, and then as many as make some megabytes for each receiver, so a row is a
piece of a block of :data:`PIECE_BYTES` at most. PySpark takes rows that break off, as where an executor is lost that
still had some, for their end: who receives rows counts them (:func:`spark_jobs.scan.scanned_rows.land_some`).
"""

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from spark_jobs.run._spark_calls import guarding, run_job
from spark_jobs.run.arrival import Sendable
from spark_jobs.run.work_directory import WorkDirectory

if TYPE_CHECKING:  # pyspark takes long to import: it is when a session starts
    from pyspark import RDD, Broadcast, SparkContext

Task = TypeVar("Task")
Other = TypeVar("Other")
Result = TypeVar("Result")

PIECE_BYTES: Final = 1 << 18
"""Bytes of a block that one row has at most. The C library takes less than 128 KiB from its heap, which keeps holes."""


SPARK_DIRECTORIES: Final = "SPARK_LOCAL_DIRS"
"""Where Spark has a Python worker know the directories of its executor; it deletes them when the executor ends."""


class Row(NamedTuple):
    """A piece of a block of `size` bytes, from its byte `start` on; `head` says which block that is."""

    head: Any
    size: int
    start: int
    data: bytes


Rows: TypeAlias = Iterator[Row]
Route: TypeAlias = Callable[[Rows], Iterator[tuple[int, Row]]]
"""Says of the rows of a partition which goes where, as (number of a task, row)."""


class _MadeOf(NamedTuple):
    """What rows are made of: other rows, which a route sends to tasks."""

    rows: "KeptRows[Any]"
    tasks: "Broadcast[list[Any]]"
    route: "Broadcast[Route]"

    def destroy(self) -> None:
        """Have the executors delete what they were sent."""
        self.tasks.destroy()
        self.route.destroy()


class KeptRows(Generic[Task]):
    """The rows of some tasks; they are made when they are first asked for."""

    def __init__(self, context: "SparkContext", name: str, rows: "RDD[Row]", made_of: "_MadeOf | None" = None) -> None:
        """Keep rows that tasks are going to make, and what they are made of. See :meth:`of`."""
        # As pyspark above.
        from pyspark import StorageLevel

        self._context, self._name, self._made_of = context, name, made_of
        self._rows = rows.setName(name).persist(StorageLevel.DISK_ONLY)

    @classmethod
    def of(
        cls, context: "SparkContext", name: str, tasks: Sequence[Task], function: Callable[[Task], Rows]
    ) -> "KeptRows[Task]":
        """Name the tasks, of which there is at least one; executors must be able to import the function."""
        return cls(
            context, name, context.parallelize(tasks, len(tasks)).mapPartitions(_OfRows(partial(_make, function)))
        )

    def remade(
        self, name: str, route: Route, tasks: Sequence[Other], function: Callable[[Other, Rows], Rows]
    ) -> "KeptRows[Other]":
        """The rows that other tasks make of these, of which each gets its own as of :meth:`send`.

        From then on these are needed only where an executor is lost; see :meth:`forget`.
        """
        rows, made_of = self._shuffled(route, tasks, function)
        return KeptRows(self._context, name, rows, made_of)

    def heads(self) -> list[Row]:
        """The first row of each task, in order. Errors of tasks are raised as by `run_tasks`."""
        return list(self.ask(self._name, dict.fromkeys(range(self._rows.getNumPartitions()), _first)).values())

    def ask(self, name: str, questions: Mapping[int, Callable[[Rows], Result]]) -> dict[int, Result]:
        """What functions make of all rows of some tasks, by the numbers of these; each runs where the rows are."""
        numbers = sorted(questions)
        if not numbers:
            return {}

        def collect() -> list[Result]:
            sent = self._context.broadcast(dict(questions))
            try:
                return self._context.runJob(self._rows.mapPartitionsWithIndex(_OfRows(_answer, sent)), list, numbers)
            finally:
                sent.destroy()

        return dict(zip(numbers, run_job(self._context, name, collect), strict=True))

    def send(
        self, name: str, route: Route, tasks: Sequence[Other], function: Callable[[Other, Rows], Iterator[Result]]
    ) -> list[Result]:
        """Send rows to other tasks, each of which gets its own in any order; the results of these, in order."""
        if not tasks:
            return []

        def collect() -> list[Result]:
            results, made_of = self._shuffled(route, tasks, function)
            try:
                return self._context.runJob(results, list)
            finally:
                made_of.destroy()

        return run_job(self._context, name, collect)

    def forget(self) -> None:
        """Have the executors delete the rows; they are made again if they are needed again."""
        self._rows.unpersist()

    def release(self) -> None:
        """Have the executors delete the rows, and all that they would be made again of."""
        self.forget()
        if self._made_of is not None:
            self._made_of.rows.release()
            self._made_of.destroy()

    def _shuffled(
        self, route: Route, tasks: Sequence[Other], function: Callable[[Other, Rows], Iterator[Result]]
    ) -> "tuple[RDD[Result], _MadeOf]":
        """What tasks make of the rows that a route sends them, and what it is made of."""
        sent = _MadeOf(self, self._context.broadcast(list(tasks)), self._context.broadcast(route))
        rows = self._rows.mapPartitions(_OfRows(_send, sent.route)).partitionBy(len(tasks), int)
        return rows.mapPartitionsWithIndex(_OfRows(partial(_receive, function), sent.tasks)), sent


class _OfRows(Sendable):
    """A function that makes rows or results of those of a partition, with what was broadcast in front of them."""

    def __init__(self, function: Callable[..., Iterable[Any]], *sent: "Broadcast[Any]") -> None:
        self._function, self._sent = function, sent

    def __call__(self, *given: Any) -> Iterator[Any]:
        with guarding():
            yield from self._function(*(each.value for each in self._sent), *given)


def _make(function: Callable[[Task], Rows], tasks: Iterable[Task]) -> Rows:
    """Make the rows of a partition's task."""
    return chain.from_iterable(map(function, tasks))


def _send(route: Route, rows: Iterable[Row]) -> Iterator[tuple[int, Row]]:
    """Put the number of its task in front of each row."""
    return route(iter(rows))


def _answer(questions: Mapping[int, Callable[[Rows], Result]], number: int, rows: Iterable[Row]) -> list[Result]:
    """Answer the question that there is about a partition."""
    return [questions[number](iter(rows))]


def _receive(
    function: Callable[[Task, Rows], Iterator[Result]],
    tasks: Sequence[Task],
    number: int,
    rows: Iterable[tuple[int, Row]],
) -> Iterator[Result]:
    """Run the task of a number with its rows."""
    return function(tasks[number], (row for _, row in rows))


def _first(rows: Rows) -> Row:
    """Return the first row of a partition.

    The others are read, too: a task that leaves rows that are kept unread may end while the JVM still reads them, which
    then fails at its own locks (`AssertionError` of its BlockInfoManager, now and then).
    """
    first = next(rows)
    for _ in rows:
        pass
    return first


@contextlib.contextmanager
def local_work() -> Iterator[WorkDirectory]:
    """Make a work directory of one task alone, below one of its executor's where there are any; it is gone afterwards.

    Raises OSError where the disk has no room, or is not there.
    """
    directories = [path for path in os.environ.get(SPARK_DIRECTORIES, "").split(",") if os.path.isdir(path)]
    below = directories[os.getpid() % len(directories)] if directories else None
    with tempfile.TemporaryDirectory(prefix="rocketlens-", dir=below) as root:
        work = WorkDirectory(Path(root))
        work.make()
        yield work
