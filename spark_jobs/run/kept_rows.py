"""Rows of bytes that tasks make, kept by their executors, and sent on to other tasks by Spark's own shuffle.

The first row that a task makes is small, and says what the others are: the driver gets these rows alone. All rows of a
task are those of one partition, kept on the disks of the executor that made them (Spark makes them again where that is
lost). Later tasks read them where they are, or have them sent to where they are needed.

Rows pass through the JVM as they are, one at a time. PySpark's own `partitionBy` would pickle each of them, and gather
as many as a thousand in memory before it hands them on; so what it does in the JVM is called here directly.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Generic, NamedTuple, TypeAlias, TypeVar

from spark_jobs.run.arrival import Travelling
from spark_jobs.run.spark_calls import guarding, run_job

if TYPE_CHECKING:  # pyspark takes long to import: it is when a session starts
    from pyspark import Broadcast, SparkContext

Task = TypeVar("Task")
Other = TypeVar("Other")
Result = TypeVar("Result")

Row: TypeAlias = bytes | bytearray
"""Far less than the 2 GB that a row may have in the JVM."""

Rows: TypeAlias = Iterator[bytes]
Route: TypeAlias = Callable[[Rows], Iterator[tuple[int, Row]]]
"""Says of the rows of a partition which goes where, as (number of a task, row); a row may be sent in parts."""

_LENGTH: Final = Struct(">i")
_END: Final = -1
"""In the place of a length: the JVM has sent all rows (`SpecialLengths.END_OF_DATA_SECTION`)."""

_NUMBER: Final = Struct(">q")
"""How the JVM gets the number of the task that a row goes to (`PairwiseRDD`)."""


class _MadeOf(NamedTuple):
    """What rows are made of: other rows, which a route sends to tasks."""

    rows: "KeptRows[Any]"
    tasks: "Broadcast[list[Any]]"
    route: "Broadcast[Route]"


class KeptRows(Generic[Task]):
    """The rows of some tasks; they are made when they are first asked for."""

    def __init__(self, context: "SparkContext", name: str, rows: Any, made_of: "_MadeOf | None" = None) -> None:
        """Keep rows that tasks are going to make: an RDD, and what it is made of. See :meth:`of`."""
        # As pyspark above.
        from pyspark import StorageLevel

        self._context, self._name, self._made_of = context, name, made_of
        self._rows = _raw(rows)
        self._rows.persist(StorageLevel.DISK_ONLY)

    @classmethod
    def of(
        cls, context: "SparkContext", name: str, tasks: Sequence[Task], function: Callable[[Task], Iterator[Row]]
    ) -> "KeptRows[Task]":
        """Name the tasks, of which there is at least one; executors must be able to import the function."""
        return cls(context, name, context.parallelize(tasks, len(tasks)).mapPartitions(_Make(function)))

    def remade(
        self, name: str, route: Route, tasks: Sequence[Other], function: Callable[[Other, Rows], Iterator[Row]]
    ) -> "KeptRows[Other]":
        """The rows that other tasks make of these, of which each gets its own as of :meth:`send`.

        From then on these are needed only where an executor is lost; see :meth:`forget`.
        """
        sent = _MadeOf(self, self._context.broadcast(list(tasks)), self._context.broadcast(route))
        rows = self._shuffled(_raw(self._rows.mapPartitions(_Send(sent.route))), len(tasks))
        return KeptRows(self._context, name, rows.mapPartitionsWithIndex(_Remake(sent.tasks, function)), sent)

    def heads(self) -> list[bytes]:
        """The first row of each task, in order. Errors of tasks are raised as by `run_tasks`."""

        def collect() -> list[bytes]:
            heads: list[bytes] = self._rows.mapPartitions(_First()).collect()
            return heads

        return run_job(self._context, self._name, collect)

    def ask(self, name: str, questions: Mapping[int, Callable[[Rows], Result]]) -> dict[int, Result]:
        """What functions make of all rows of some tasks, by the numbers of these; each runs where the rows are."""
        numbers = sorted(questions)
        if not numbers:
            return {}

        def collect() -> list[Result]:
            sent = self._context.broadcast(dict(questions))
            try:
                return self._context.runJob(self._rows.mapPartitionsWithIndex(_Answer(sent)), list, numbers)
            finally:
                sent.destroy()

        return dict(zip(numbers, run_job(self._context, name, collect), strict=True))

    def send(
        self, name: str, route: Route, tasks: Sequence[Other], function: Callable[[Other, Rows], Result]
    ) -> list[Result]:
        """Send rows to other tasks, each of which gets its own in any order; the results of these, in order."""
        if not tasks:
            return []

        def collect() -> list[Result]:
            sent, routed = self._context.broadcast(list(tasks)), self._context.broadcast(route)
            try:
                rows = self._shuffled(_raw(self._rows.mapPartitions(_Send(routed))), len(tasks))
                results: list[Result] = rows.mapPartitionsWithIndex(_Receive(sent, function)).collect()
                return results
            finally:
                sent.destroy()
                routed.destroy()

        return run_job(self._context, name, collect)

    def forget(self) -> None:
        """Have the executors delete the rows; they are made again if they are needed again."""
        self._rows.unpersist()

    def release(self) -> None:
        """Have the executors delete the rows, and all that they would be made again of."""
        self.forget()
        if self._made_of is not None:
            self._made_of.rows.release()
            self._made_of.tasks.destroy()
            self._made_of.route.destroy()

    def _shuffled(self, numbered: Any, count: int) -> Any:
        """The rows by the numbers in front of them: what `RDD.partitionBy` does with pairs of pickled objects."""
        # As pyspark above.
        from pyspark import RDD

        jvm: Any = self._context._jvm
        reader: Any = WholeRows()
        pairs = jvm.PairwiseRDD(numbered._jrdd.rdd()).asJavaPairRDD()
        sent = pairs.partitionBy(jvm.PythonPartitioner(count, 0))
        return RDD(jvm.PythonRDD.valueOfPair(sent), self._context, reader)


def _raw(rows: Any) -> Any:
    """Have rows of bytes leave Python as they are, and be read so."""
    rows._bypass_serializer = True
    return rows


class WholeRows(Travelling):
    """How a task reads the rows that the JVM sends it: each as its length and its bytes, and an end mark.

    PySpark's own readers take rows that break off for their end. But where an executor is lost that still had some, or
    the task is stopped, the JVM breaks off, and a task that ended then would leave a record of half of its work.
    """

    def load_stream(self, stream: BinaryIO) -> Rows:
        """The rows; raises EOFError where they break off."""
        while (length := _LENGTH.unpack(_whole(stream, _LENGTH.size))[0]) != _END:
            yield _whole(stream, length)


def _whole(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) != size:
        raise EOFError(f"rows break off: expected {size} bytes more, found {len(data)}")
    return data


class _Make(Travelling):
    """Makes the rows of a partition's task."""

    def __init__(self, function: Callable[[Any], Iterator[Row]]) -> None:
        self._function = function

    def __call__(self, tasks: Iterable[Any]) -> Iterator[Row]:
        with guarding():
            for task in tasks:
                yield from self._function(task)


class _Answer(Travelling):
    """Answers the question that there is about a partition."""

    def __init__(self, sent: "Broadcast[dict[int, Any]]") -> None:
        self._sent = sent

    def __call__(self, number: int, rows: Rows) -> Iterator[Any]:
        with guarding():
            yield self._sent.value[number](rows)


class _Send(Travelling):
    """Puts the number of its task in front of each row."""

    def __init__(self, route: "Broadcast[Route]") -> None:
        self._route = route

    def __call__(self, rows: Rows) -> Iterator[Row]:
        with guarding():
            for number, row in self._route.value(rows):
                yield _NUMBER.pack(number)
                yield row


class _Receive(Travelling):
    """Runs the task of a number with its rows."""

    def __init__(self, sent: "Broadcast[list[Any]]", function: Callable[[Any, Rows], Any]) -> None:
        self._sent, self._function = sent, function

    def __call__(self, number: int, rows: Rows) -> Iterator[Any]:
        with guarding():
            yield self._function(self._sent.value[number], rows)


class _Remake(Travelling):
    """Has the task of a number make rows of its own."""

    def __init__(self, sent: "Broadcast[list[Any]]", function: Callable[[Any, Rows], Iterator[Row]]) -> None:
        self._sent, self._function = sent, function

    def __call__(self, number: int, rows: Rows) -> Iterator[Row]:
        with guarding():
            yield from self._function(self._sent.value[number], rows)


class _First(Travelling):
    """Gives the first row of a partition.

    The others are read, too: a task that leaves rows that are kept unread may end while the JVM still reads them, which
    then fails at its own locks (`AssertionError` of its BlockInfoManager, now and then).
    """

    def __call__(self, rows: Rows) -> Iterator[bytes]:
        first = next(rows)
        for _ in rows:
            pass
        yield first
