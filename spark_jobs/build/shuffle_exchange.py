"""The exchange between tasks that share no disk: blocks go through Spark's own shuffle.

    scan    a task a segment makes its blocks as rows, which its executor keeps (:mod:`spark_jobs.scan.scanned_rows`);
            the driver gets the summaries, counts as always
    make    the same for other tasks that leave blocks. Those that read blocks of earlier ones are sent the rows, and
            from then on only what they have left is kept
    look    what the driver has to know of entries or units besides is looked up where the rows are
    build   the rows go to the build tasks by number (:mod:`spark_jobs.build._routes`). Each writes its own, in the
            order of the log, into a work directory of its own on a disk of its executor, and builds from that

Finished files go into the job's work directory, or, where it has none that all machines see, straight to the output's
URL. An executor that is lost takes its rows along: Spark has its segments scanned again, up to the same end of the log.

Rows are kept until the driver has looked up what counts do not say, where in a block an index file begins and whether
the units of a hot queue follow one another: what goes where depends on that, and to scan a second time would cost more.
A block with units of a queue that is built in parts is cut before it is sent, or the task of its bundle would get all
of the hot queue too, which the parts are there to spare it.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
from msgspec.structs import replace

from protocol.errors import StoreError
from spark_jobs.build._routes import Goal, Routes
from spark_jobs.build.build_index_file import PHASE, BuildIndexTask, BuiltIndexFile, seed_behind
from spark_jobs.build.build_queues import BuildQueuesTask
from spark_jobs.build.exchange import SCAN, SURVEY, BlockStep, BuildTask, Built, Made, Task, build, take
from spark_jobs.build.place_entries import (
    EntryBlock,
    Piece,
    PlacedFile,
    Question,
    ask_here,
    entry_places,
)
from spark_jobs.build.split_queues import SegmentExtent, SurveyTask, join_extents, survey_queues
from spark_jobs.build.unit_blocks import UnitList, has_bundle
from spark_jobs.places.placed_run import PlacedAttempt, PlacedRecord, PlacedRun, run_placed
from spark_jobs.run.attempt import block_file, run_phase
from spark_jobs.run.blocks import BlockWriter
from spark_jobs.run.kept_rows import KeptRows, Rows, local_work
from spark_jobs.run.progress import JobProgress, Phase
from spark_jobs.run.work_directory import VERSION, JobIdentity, WorkDirectory
from spark_jobs.scan.scan_log import ScanOptions, scan_tasks
from spark_jobs.scan.scan_segment import ENTRIES, UNITS, ScanSummary
from spark_jobs.scan.scanned_rows import (
    RowKind,
    check_came,
    land,
    land_some,
    read_summary,
    rows_of_file,
    summary_row,
)
from spark_jobs.scan.source import StoreSource
from storage.layout.store_layout import INDEX

if TYPE_CHECKING:  # pyspark takes long to import: it is when a session starts
    from pyspark import SparkContext

LOOK: Final = "look"


class Target(msgspec.Struct, frozen=True):
    """The URL to which tasks send what they have built: the `run` there, and attempts that earlier ones finished.

    `identity` distinguishes jobs: an attempt of another one does not count.
    """

    run: PlacedRun
    found: dict[str, list[str]]
    identity: JobIdentity


class ReceiveTask(msgspec.Struct, frozen=True):
    """A task to be run with the rows that it is sent.

    `ranges` are the entries [first, stop) of segments that go into an index file, by the number of the segment;
    `wanted` is the file of that name of a task that builds queues, and `senders` the number of segments that have units
    for it. With a `run` the files are sent to its URL, as the placed task `name`; one of the attempts `found` may have
    done so before.
    """

    task: BuildTask
    ranges: dict[int, tuple[int, int]] = {}
    wanted: bytes = b""
    senders: int = 0
    run: PlacedRun | None = None
    name: str = ""
    found: tuple[str, ...] = ()


class ShuffleExchange:
    """By Spark's own shuffle."""

    def __init__(
        self, context: "SparkContext", work: WorkDirectory, progress: JobProgress, target: Target | None = None
    ) -> None:
        """Nothing is read yet. With a `target`, `work` is the driver's alone; else all machines see it."""
        self._context, self._work, self._progress, self._target = context, work, progress, target
        self._rows: KeptRows[Any] | None = None
        self._routes = Routes({}, {})
        self._files: dict[str, int] = {}
        self._with_units: list[int] = []
        self._bundles: list[bytes] = []
        self._sent: list[PlacedRecord] = []

    def scan(self, source: StoreSource, options: ScanOptions) -> list[ScanSummary]:
        """Scan; the executors keep the blocks."""
        summaries = self.make(SCAN, scan_tasks(self._work.root, source, options), source.size)
        self._with_units = [number for number, summary in enumerate(summaries) if summary["unit_table"] >= 0]
        self._bundles = [summary["unit_bundles"] for summary in summaries]
        return summaries

    def make(self, step: BlockStep[Task, Made], tasks: Sequence[Task], amount: int) -> list[Made]:
        """Make blocks; the executors keep them, and of those that they are made of no more."""
        if not tasks:
            return []
        phase, before = Phase(step.phase, amount, step.unit), self._rows
        numbered, make = list(enumerate(tasks)), partial(make_rows, replace(step, route=None))
        self._work.enter(phase.name)
        self._progress.begin(*phase)
        try:
            if step.route is None:
                self._rows = KeptRows.of(self._context, phase.title, numbered, make)
            else:
                self._rows = self._kept.remade(phase.title, step.route, numbered, make)
            summaries: list[Made] = [read_summary(head) for head in self._rows.heads()]
            # How far a phase is, is known only when it is over.
            self._progress.update(amount, sum(cast("Any", summary).get("records", 0) for summary in summaries))
        finally:
            self._progress.end()
        if before is not None:
            before.forget()
        self._files = {
            str(step.left(self._work, number, summary)[0][0]): number for number, summary in enumerate(summaries)
        }
        return summaries

    def ask(self, questions: Sequence[Question]) -> list[Any]:
        """Have each segment's questions answered where its rows are."""
        wanted = ((self._files[block.path], number) for number, (block, _) in enumerate(questions))
        found = dict(self._look(LOOK, wanted, lambda _, numbers: partial(_answer, [questions[n] for n in numbers])))
        return [found[number] for number in range(len(questions))]

    def survey(self, tasks: Sequence[SurveyTask]) -> list[list[list[SegmentExtent] | None]]:
        """Have the queues looked at segment by segment, where the rows are."""
        wanted = (
            (segment, number)
            for number, task in enumerate(tasks)
            for segment in self._with_units[task.units.start : task.units.stop]
        )

        def question(segment: int, numbers: list[int]) -> Callable[[Rows], list[Any]]:
            return partial(_survey, [tasks[number] for number in numbers], bisect_left(self._with_units, segment))

        found: list[list[list[list[SegmentExtent] | None]]] = [[[] for _ in task.queues] for task in tasks]
        for number, of_queues in self._look(SURVEY, wanted, question):
            for queue, extents in enumerate(of_queues):
                found[number][queue].append(extents)
        return [[join_extents(stretches) for stretches in of_task] for of_task in found]

    def _look(
        self,
        name: str,
        wanted: Iterable[tuple[int, int]],
        question: Callable[[int, list[int]], Callable[[Rows], list[Any]]],
    ) -> Iterator[tuple[int, Any]]:
        """Look at things by number in segments, as pairs of both say; number and answer of each, in the log's order."""
        numbers: dict[int, list[int]] = {}
        for segment, number in wanted:
            numbers.setdefault(segment, []).append(number)
        answers = self._kept.ask(name, {segment: question(segment, asked) for segment, asked in numbers.items()})
        for segment, asked in sorted(numbers.items()):
            yield from zip(asked, answers[segment], strict=True)

    def build(self, tasks: Sequence[BuildTask], amount: int) -> list[Built]:
        """Build; each task is sent the blocks that it needs."""
        self._routes = self._route(tasks)
        phase = Phase(PHASE, amount, "entries")
        built = run_phase(self._send, self._work, self._progress, phase, self._received(tasks), _without_rows)
        if self._target is None:
            take(self._work, tasks, built)
        else:
            self._sent = [cast("PlacedRecord", each) for each in built]
        return built

    def close(self) -> None:
        """Have the executors delete the rows."""
        if self._rows is not None:
            self._rows.release()

    @property
    def sent(self) -> Sequence[PlacedRecord]:
        """Records of tasks that have sent what they built to the target."""
        return self._sent

    @property
    def _kept(self) -> KeptRows[Any]:
        assert self._rows is not None, "nothing was scanned"
        return self._rows

    def _send(self, name: str, tasks: Sequence[Any], _: object) -> list[Any]:
        """Run tasks of building with the rows that they get; else as :class:`RunTasks`."""
        return self._kept.send(name, self._routes, tasks, receive)

    def _route(self, tasks: Sequence[BuildTask]) -> Routes:
        """Say which of the tasks gets what."""
        entries: dict[int, list[Goal]] = {}
        units: dict[int, list[Goal]] = {}
        for number, task in enumerate(tasks):
            if isinstance(task, BuildIndexTask):
                for segment, (first, stop) in self._ranges(task.placed).items():
                    entries.setdefault(segment, []).append(Goal(number, first, stop))
                continue
            first, stop = 0, len(self._bundles)
            if task.part is not None:
                first, last = self._with_units[task.units.start], self._with_units[task.units.stop - 1]
                stop = last + 1
            units.setdefault(task.bundle, []).append(Goal(number, first, stop, task.part))
        return Routes(entries, units)

    def _ranges(self, placed: PlacedFile) -> dict[int, tuple[int, int]]:
        """List the ranges of entries of each segment that belong to a file."""
        return {self._files[piece.block.path]: (piece.skip, piece.skip + piece.count) for piece in placed.pieces}

    def _received(self, tasks: Sequence[BuildTask]) -> list[ReceiveTask]:
        """The tasks as they are sent, without what they would read of the driver's files."""
        indexes = [
            task
            for task in tasks
            # A compacted file does not begin as the one before it ended.
            if isinstance(task, BuildIndexTask) and task.placed.before is not None and not task.compact
        ]
        places = entry_places([cast("Piece", task.placed.before) for task in indexes], self.ask)
        seeds = {task.number: seed_behind(place) for task, place in zip(indexes, places, strict=True)}
        wanted: dict[str, bytes] = {}
        received = []
        for task in tasks:
            if isinstance(task, BuildIndexTask):
                plain = replace(task, placed=PlacedFile((), None), seed=seeds.get(task.number, task.seed))
                each = ReceiveTask(plain, ranges=self._ranges(task.placed))
            else:
                if task.wanted not in wanted:
                    wanted[task.wanted] = Path(task.wanted).read_bytes()
                each = ReceiveTask(task, wanted=wanted[task.wanted], senders=self._senders(task))
            received.append(each if self._target is None else _sent(each, self._target))
        return received

    def _senders(self, task: BuildQueuesTask) -> int:
        """How many of the segments that a task reads have units of its bundle."""
        segments = self._with_units[task.units.start : task.units.stop]
        return sum(has_bundle(self._bundles[segment], task.bundle) for segment in segments)


def _without_rows(received: ReceiveTask) -> Built:
    """Stand for :func:`receive` where functions of tasks have no rows."""
    return next(receive(received, iter(())))


def receive(received: ReceiveTask, rows: Rows) -> Iterator[Built]:
    """Build one file or bundle from the received rows; the record, as of the task without a shuffle."""
    with local_work() as work:
        if received.run is None:
            yield build(_landed(received, rows, work))
            return

        def make(attempt: PlacedAttempt) -> PlacedRecord:
            task = replace(_landed(received, rows, work), work=str(work.root))
            return _send_built(task, build(task), work, attempt)

        yield cast("Built", run_placed(received.run, received.name, received.found, make))


def _landed(received: ReceiveTask, rows: Rows, work: WorkDirectory) -> BuildTask:
    """Store the rows in files, and make the task read these."""
    task = received.task
    if isinstance(task, BuildIndexTask):
        with BlockWriter(work.blocks / ENTRIES, task.path) as writer:
            landed = land_some(rows, {RowKind.ENTRIES}, writer)
        pieces = []
        for head, position in landed:
            first, stop = received.ranges[head.segment]
            skip, end = max(first - head.first, 0), min(stop - head.first, head.entries)
            # Where the range ends, and the last record, matters only until it is decided what goes where.
            block = EntryBlock(str(writer.path), position, head.base, head.base, head.entries, head.base)
            pieces.append(Piece(block, skip, end - skip))
        expected = sum(stop - first for first, stop in received.ranges.values())
        if (found := sum(piece.count for piece in pieces)) != expected:
            raise StoreError(task.path, expected=f"{expected} entries", found=found,
                             what="cannot be built, the log was changed while it was read")  # fmt: skip
        return replace(task, placed=PlacedFile(tuple(pieces), None))
    wanted = work.root / UNITS
    wanted.write_bytes(received.wanted)
    with BlockWriter(work.blocks / UNITS, task.name) as writer:
        landed = land_some(rows, {RowKind.UNITS}, writer)
        check_came(task.name, "segments", received.senders, len({head.segment for head, _ in landed}))
        units = UnitList.of_bundle(work, writer, task.bundle, [position for _, position in landed])
    return replace(task, wanted=str(wanted), units=units)


def _send_built(task: BuildTask, built: Built, work: WorkDirectory, attempt: PlacedAttempt) -> PlacedRecord:
    """Send the files of a task that was run in a work directory of its own; the record names their paths."""
    made = work.partial / built["attempt"]
    if isinstance(task, BuildIndexTask):
        files = {f"{INDEX}/{cast('BuiltIndexFile', built)['name']}": made}
    else:
        files = {str(path.relative_to(made)): path for path in sorted(made.rglob("*")) if path.is_file()}
    for name, path in files.items():
        attempt.send(path, name)
    return {**built, "paths": list(files)}


def _sent(received: ReceiveTask, target: Target) -> ReceiveTask:
    """Copy a task so that it sends what it builds: named by all that this depends on."""
    task = replace(received.task, work="")
    if isinstance(task, BuildIndexTask):
        task = replace(task, path=Path(task.path).name)
    else:
        task = replace(task, wanted="", units=replace(task.units, path=""))
    depends = [VERSION, target.identity, task, sorted(received.ranges.items()), received.wanted]
    digest = hashlib.sha256(msgspec.msgpack.encode(depends)).hexdigest()
    name = f"{task.name}-{digest[:16]}"
    return replace(received, task=task, run=target.run, name=name, found=tuple(target.found.get(name, ())))


def make_rows(step: BlockStep[Task, Made], numbered: tuple[int, Task], rows: Rows | None = None) -> Rows:
    """Run a task with the rows that it received, if it reads any; its record, then the blocks that it has left."""
    number, task = numbered
    with local_work() as work:
        if step.land is not None and rows is not None:
            task = step.land(task, rows, work)
        made = step.run(cast("Task", replace(cast("Any", task), work=str(work.root))))
        yield summary_row(number, made)
        for path, heads in step.left(work, number, made):
            yield from rows_of_file(path, heads)


def _answer(questions: Sequence[Question], rows: Rows) -> list[Any]:
    """Answer questions about all entries of a segment."""
    with local_work() as work:
        path = str(block_file(work, land(rows, work, ENTRIES), ENTRIES))
        return ask_here([(replace(table, path=path), function) for table, function in questions])


def _survey(tasks: Sequence[SurveyTask], listed: int, rows: Rows) -> list[list[list[SegmentExtent] | None]]:
    """Look at the queues of several tasks in a segment, which the list of those with units has under a number."""
    with local_work() as work:
        units = UnitList.leave(work, [land(rows, work, UNITS)])
        answers = [survey_queues(replace(task, units=units)) for task in tasks]
    return [
        [None if extents is None else [each._replace(segment=listed) for each in extents] for extents in of_task]
        for of_task in answers
    ]
