"""The task that builds a bundle of queues from the unit blocks of all segments.

A queue belongs to one bundle, so one task sees all of its units, in the order of the log. What the queues of a bundle
hold in memory together is bounded; how many bundles there are depends on the log alone, so that a job goes on with the
same ones wherever it is started again.
"""

import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from spark_jobs.run.attempt import Attempt, AttemptRecord, Notify, run_attempt
from spark_jobs.run.blocks import Block, read_block
from spark_jobs.run.work_directory import WorkDirectory
from storage.build.batch_queue_builder import BatchQueueBuilder
from storage.build.dispatch_scan import BATCH, PLAIN
from storage.build.existing_queue import OldQueue, ReadableLog
from storage.build.queue_builder import QueueBuilder, QueueSummary
from storage.build.queue_ext_builder import QueueExtBuilder
from storage.build.queue_file_writer import fsync_tree, sync_file_system
from storage.build.queue_plan import QueueKey, directory_name
from storage.build.queue_units import units_before
from storage.layout.store_layout import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, CONSUME_QUEUE_EXT
from storage.queue.batch_consume_queue import UNIT as BATCH_UNIT
from storage.queue.consume_queue import UNIT
from storage.queue.queue import SCHEDULE_TOPIC
from storage.queue.queue_record import LIGHT_PREFIX

PHASE: Final = "build"
HELD_BYTES: Final = 64 * 1024 * 1024
"""Units in memory of all queues of a bundle."""

MOST_FSYNCS: Final = 256
"""Queues whose files are brought to the disk on their own; of more, all that was written is, by one call."""

SMALLEST_SHARE: Final = 1 << 30
FEWEST_BUNDLES: Final = 4
MOST_BUNDLES: Final = 64

Builder = QueueBuilder | BatchQueueBuilder


class UnitBlocks(msgspec.Struct, frozen=True, array_like=True):
    """Where the blocks of a bundle are in a file that a scan left."""

    path: str
    positions: tuple[int, ...]


def blocks_before(files: Iterable[UnitBlocks], end: int) -> Iterator[Block]:
    """Blocks of files, one in memory at a time, without those that begin at or beyond a physical offset."""
    for file in files:
        path = Path(file.path)
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            for position in file.positions:
                block, _ = read_block(path, descriptor, position)
                if block.header["range"][0] < end:
                    yield block
        finally:
            os.close(descriptor)


class QueueRun(NamedTuple):
    """Messages of one queue as the log has them: their units, of consecutive queue offsets but for batches.

    `timestamps` (ms) of units that lead to extensions, if they were asked for.
    """

    name: tuple[bytes, int]
    key: QueueKey
    first: int
    units: memoryview
    timestamps: npt.NDArray[np.int64] | None


def queue_runs(block: Block, end: int) -> Iterator[QueueRun]:
    """The runs of a block, without units of records at or beyond `end`, and queues that can have no directory."""
    names = [(bytes(topic), int(queue_id)) for topic, queue_id in block.header["queues"]]
    units, timestamps = block.columns["units"].data, block.columns["timestamps"]
    is_cut = block.header["range"][1] > end
    position = number = 0
    for queue, kind, first, count in block.columns["runs"].reshape(-1, 4).tolist():
        unit_size = BATCH_UNIT.size if kind == BATCH else UNIT.size
        run = units[position : position + count * unit_size]
        run = units_before(run, unit_size, end) if is_cut else run
        topic = directory_name(names[queue][0])
        if topic is not None and len(run):
            key = QueueKey(BATCH_CONSUME_QUEUE if kind == BATCH else CONSUME_QUEUE, topic, names[queue][1])
            # The units of light queues lead to no extension, though the store has one.
            stamped = timestamps.size and kind == PLAIN
            stamps = timestamps[number : number + len(run) // unit_size] if stamped else None
            yield QueueRun(names[queue], key, first, run, stamps)
        position, number = position + count * unit_size, number + count


class BuildQueuesTask(msgspec.Struct, frozen=True):
    """A bundle: its blocks in the order of the log, and what the files are to be like.

    `skipped` queues (topic, queue id) are not built. `file_sizes` by tree. Units of records at or beyond `end` do not
    count; between `minimum` and `end` the `lost` ranges of the log cannot be read.
    """

    work: str
    store: str
    bundle: int
    units: tuple[UnitBlocks, ...]
    skipped: tuple[tuple[bytes, int], ...]
    file_sizes: dict[str, int]
    segment_size: int
    ext: bool
    minimum: int
    end: int
    lost: tuple[tuple[int, int], ...]

    @property
    def name(self) -> str:
        """The task's name."""
        return f"{PHASE}-queues-{self.bundle:05d}"

    @property
    def log(self) -> ReadableLog:
        """What of the log can be read."""
        return ReadableLog(self.minimum, self.end, self.lost)


def bundle_count(log_bytes: int) -> int:
    """How many bundles the queues of a log are dealt out to."""
    return min(max(log_bytes // SMALLEST_SHARE, FEWEST_BUNDLES), MOST_BUNDLES)


class BuiltQueues(AttemptRecord):
    """The queues of a bundle that have units: tree, topic, queue id and the fields of a QueueSummary of each."""

    bundle: int
    units: int
    queues: list[list[Any]]


def build_queues(task: BuildQueuesTask) -> BuiltQueues:
    """Build the queues of a bundle and fsync them; what became of each, as left in the work directory.

    The driver has to bring them to their places, by :func:`take_queues`.
    """

    def build(attempt: Attempt, notify: Notify) -> BuiltQueues:
        return BundleBuild(task, attempt, notify).run()

    return run_attempt(task.work, task.name, build, _are_whole)


def take_queues(work: WorkDirectory, done: BuiltQueues) -> None:
    """Bring the queues of the attempt that counts to where they are published from, as far as they are not there."""
    made = work.partial / done["attempt"]
    for queue in made.glob("*/*/*"):
        place = work.staged / queue.relative_to(made)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(place, ignore_errors=True)
        os.rename(queue, place)
    shutil.rmtree(made, ignore_errors=True)


class BundleBuild:
    """The queues of one bundle, all being built side by side."""

    def __init__(self, task: BuildQueuesTask, attempt: Attempt, notify: Notify) -> None:
        """Build in the attempt's directory; `notify` is called with the number of units, twice."""
        self._task, self._partial, self._notify = task, attempt.partial, notify
        self._skipped = set(task.skipped)
        self._builders: dict[QueueKey, Builder] = {}
        self._held = self._units = 0

    def run(self) -> BuiltQueues:
        """Build them all; what became of them."""
        self._partial.mkdir()
        for block in blocks_before(self._task.units, self._task.end):
            self._put(block)
            if self._held > HELD_BYTES:
                self._flush()
            self._notify(self._units, self._units)
        queues = [
            [key.tree, key.topic, key.queue_id, msgspec.to_builtins(self._finish(key))]
            for key in sorted(self._builders)
        ]
        if len(self._builders) <= MOST_FSYNCS:
            fsync_tree(self._partial)
        else:
            sync_file_system(self._partial)
        return {
            "bundle": self._task.bundle,
            "units": self._units,
            "queues": [each for each in queues if each[3]["units"]],
        }

    def _put(self, block: Block) -> None:
        """Hand out the runs of a block."""
        for run in queue_runs(block, self._task.end):
            if run.name in self._skipped:
                continue
            builder = self._builders.get(run.key)
            if builder is None:
                builder = self._builders[run.key] = self._new_builder(run.key)
            builder.put_run(run.first, run.units, run.timestamps)
            self._held += len(run.units)
            self._units += len(run.units) // (BATCH_UNIT.size if run.key.tree == BATCH_CONSUME_QUEUE else UNIT.size)

    def _new_builder(self, key: QueueKey) -> Builder:
        task, directory = self._task, self._partial / key.path
        old = Path(task.store) / key.path
        if key.tree == BATCH_CONSUME_QUEUE:
            return BatchQueueBuilder(
                directory, task.file_sizes[BATCH_CONSUME_QUEUE], born_at=lambda: OldQueue(old, batch=True).born_at()
            )
        extension = None
        if task.ext and not key.topic.startswith(LIGHT_PREFIX):
            path = self._partial / CONSUME_QUEUE_EXT / key.topic / str(key.queue_id)
            extension = QueueExtBuilder(path, task.file_sizes[CONSUME_QUEUE_EXT])
        return QueueBuilder(
            directory,
            task.file_sizes[CONSUME_QUEUE],
            task.segment_size,
            extension=extension,
            born_at=lambda: OldQueue(old).born_at(),
            repeat=key.topic != SCHEDULE_TOPIC,
        )

    def _flush(self) -> None:
        for builder in self._builders.values():
            builder.flush()
        self._held = 0

    def _finish(self, key: QueueKey) -> QueueSummary:
        """Complete one queue: its numbers go on from where they were, whatever was lost at its end."""
        builder, log = self._builders[key], self._task.log
        next_offset = builder.settle()
        if log.loses_behind(builder.last_physical_offset):
            old = OldQueue(Path(self._task.store) / key.path, batch=key.tree == BATCH_CONSUME_QUEUE)
            builder.extend(old.offset_behind_lost(builder.last_physical_offset, next_offset, log), log.end)
        return builder.finish()


def _are_whole(work: WorkDirectory, done: BuiltQueues) -> bool:
    """Whether all files of the queues are there, where the attempt left them or where they were brought."""
    places = work.partial / done["attempt"], work.staged
    return all(any(_is_whole(place, queue) for place in places) for queue in done["queues"])


def _is_whole(place: Path, queue: list[Any]) -> bool:
    """Whether the files of a queue that was finished are all there."""
    tree, topic, queue_id, summary = queue
    try:
        sizes = [entry.stat().st_size for entry in os.scandir(place / QueueKey(tree, topic, queue_id).path)]
    except OSError:
        return False
    return bool(len(sizes) == summary["files"] and sum(sizes) == summary["bytes"])
