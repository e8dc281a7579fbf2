"""How what a scan finds comes to the tasks that build of it: one interface, two ways.

FileExchange      by files in the work directory, which all machines see under the same path
ShuffleExchange   by Spark's own shuffle, where they share no disk (:mod:`spark_jobs.build.shuffle_exchange`)

What is built is the same. Which entries and units go where is decided by the driver in either case, from counts.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar, cast

import msgspec

from spark_jobs.build.build_index_file import PHASE, BuildIndexTask, BuiltIndexFile, build_index_file, take_index_file
from spark_jobs.build.build_queues import BuildQueuesTask, BuiltQueues, build_queues, take_queues
from spark_jobs.build.place_entries import Question, ask_here
from spark_jobs.build.split_queues import SegmentExtent, SurveyTask, survey_queues
from spark_jobs.places.placed_run import PlacedRecord
from spark_jobs.run.attempt import AttemptRecord, run_phase
from spark_jobs.run.engine import Engine
from spark_jobs.run.kept_rows import Route, Rows
from spark_jobs.run.progress import JobProgress, Phase
from spark_jobs.run.work_directory import WorkDirectory
from spark_jobs.scan import scan_segment as scanning
from spark_jobs.scan.scan_log import ScanOptions, scan_tasks
from spark_jobs.scan.scan_segment import ScanSummary, ScanTask
from spark_jobs.scan.scanned_rows import Left, scanned
from spark_jobs.scan.source import StoreSource

Task = TypeVar("Task")
Made = TypeVar("Made", bound=AttemptRecord)

SURVEY: Final = "survey"

BuildTask: TypeAlias = BuildIndexTask | BuildQueuesTask
Built: TypeAlias = BuiltIndexFile | BuiltQueues


class BlockStep(msgspec.Struct, Generic[Task, Made], frozen=True):
    """Tasks that make blocks: of files of the store, or of blocks that were made before.

    `run` does one in its work directory. Where none is shared, what the task of a number has `left` there becomes rows.
    Before that `land` writes down the rows that have come for the task by `route`, and has it read from there; both are
    None where tasks read nothing but the store. `unit` is that of progress.
    """

    phase: str
    run: Callable[[Task], Made]
    left: Callable[[WorkDirectory, int, Made], Left]
    land: Callable[[Task, Rows, WorkDirectory], Task] | None = None
    route: Route | None = None
    unit: str = "entries"


SCAN: Final = BlockStep[ScanTask, ScanSummary](scanning.PHASE, scanning.scan_segment, scanned, unit="bytes")
"""The step that makes blocks of segments."""


class Exchange(Protocol):
    """Scans a log, or has tasks make blocks; answers what the driver has to know of these, and builds of them."""

    def scan(self, source: StoreSource, options: ScanOptions) -> list[ScanSummary]:
        """Scan the segments; their summaries in the order of the log."""

    def make(self, step: BlockStep[Task, Made], tasks: Sequence[Task], amount: int) -> list[Made]:
        """Have the tasks of a step make blocks, of `amount` of its unit together; their records, in order.

        From then on these are the blocks that are asked about, read by later steps, and built of.
        """

    def ask(self, questions: Sequence[Question]) -> list[Any]:
        """Answer questions about entries of segments, as :data:`spark_jobs.build.place_entries.Ask`."""

    def survey(self, tasks: Sequence[SurveyTask]) -> list[list[list[SegmentExtent] | None]]:
        """Look at queues that may be split, as :data:`spark_jobs.build.split_queues.Survey`."""

    def build(self, tasks: Sequence[BuildTask], amount: int) -> list[Built]:
        """Build of `amount` entries and units together what the tasks say; their records, in order.

        Finished files are where they are published from then.
        """

    @property
    def sent(self) -> Sequence[PlacedRecord]:
        """Records of tasks that have sent what they built to a URL: `paths` of files in the store, and `objects`."""

    def close(self) -> None:
        """Let go of what was found: nothing more will be built of it."""


class FileExchange:
    """By files in the work directory."""

    def __init__(self, engine: Engine, work: WorkDirectory, progress: JobProgress) -> None:
        """Nothing is read yet."""
        self._engine, self._work, self._progress = engine, work, progress

    def scan(self, source: StoreSource, options: ScanOptions) -> list[ScanSummary]:
        """Scan; the blocks lie in the work directory."""
        return self.make(SCAN, scan_tasks(self._work.root, source, options), source.size)

    def make(self, step: BlockStep[Task, Made], tasks: Sequence[Task], amount: int) -> list[Made]:
        """Make blocks, which lie in the work directory."""
        phase = Phase(step.phase, amount, step.unit)
        return run_phase(self._engine.run_tasks, self._work, self._progress, phase, tasks, step.run)

    def ask(self, questions: Sequence[Question]) -> list[Any]:
        """Look into the files of blocks."""
        return ask_here(questions)

    def survey(self, tasks: Sequence[SurveyTask]) -> list[list[list[SegmentExtent] | None]]:
        """Look at queues in tasks that read the files of blocks."""
        return self._engine.run_tasks(SURVEY, tasks, survey_queues)

    def build(self, tasks: Sequence[BuildTask], amount: int) -> list[Built]:
        """Build; each task reads the blocks that it needs."""
        phase = Phase(PHASE, amount, "entries")
        built = run_phase(self._engine.run_tasks, self._work, self._progress, phase, tasks, build)
        take(self._work, tasks, built)
        return built

    @property
    def sent(self) -> Sequence[PlacedRecord]:
        """None: the files are in the work directory."""
        return ()

    def close(self) -> None:
        """Do nothing: the files go with the work directory."""


def build(task: BuildTask) -> Built:
    """Run a task of either kind."""
    return build_index_file(task) if isinstance(task, BuildIndexTask) else build_queues(task)


def take(work: WorkDirectory, tasks: Sequence[BuildTask], built: Sequence[Built]) -> None:
    """Bring the files of the attempts that count from the work directory to where they are published from."""
    for task, made in zip(tasks, built, strict=True):
        if isinstance(task, BuildIndexTask):
            take_index_file(task, cast("BuiltIndexFile", made))
        else:
            take_queues(work, cast("BuiltQueues", made))
