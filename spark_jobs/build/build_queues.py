"""The task that builds a bundle of queues from the unit blocks of all segments.

A queue belongs to one bundle, so one task sees all of its units, in the order of the log. A queue that has far more
than others may be built in parts (:mod:`spark_jobs.build.split_queues`): a task each makes whole files of it. What the
queues of a bundle hold in memory together is bounded; how many bundles there are depends on the log alone, so that a
job goes on with the same ones wherever it is started again.
"""

import dataclasses
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from protocol.system_topics import LIGHT_PREFIX, SCHEDULE_TOPIC
from spark_jobs.build.moved_log import MovedLog
from spark_jobs.build.unit_blocks import UnitList, queue_names, queue_runs
from spark_jobs.run.attempt import Attempt, AttemptRecord, Notify, run_attempt
from spark_jobs.run.blocks import Block
from spark_jobs.run.work_directory import WorkDirectory, write_whole
from storage.build.batch_queue_builder import BatchQueueBuilder
from storage.build.existing_queue import OldQueue, ReadableLog
from storage.build.queue_builder import QueueBuilder, QueueSummary
from storage.build.queue_ext_builder import QueueExtBuilder
from storage.build.queue_file_writer import fsync_file, fsync_tree, sync_file_system
from storage.build.queue_plan import QueueKey, QueuePlan, Verdict
from storage.files.mapped_file import SEGMENT_NAME_DIGITS
from storage.layout.store_layout import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, CONSUME_QUEUE_EXT
from storage.queue.batch_consume_queue import UNIT as BATCH_UNIT
from storage.queue.consume_queue import UNIT

PHASE: Final = "build"
HELD_BYTES: Final = 64 * 1024 * 1024
"""Units in memory of all queues of a bundle."""

MOST_FSYNCS: Final = 256
"""Queues whose files are brought to the disk on their own; of more, all that was written is, by one call."""

SMALLEST_SHARE: Final = 1 << 30
LARGER_SHARE: Final = 8 << 30
"""Bytes of the log for each bundle up to `MANY_BUNDLES`, and for each beyond: every task reads of each segment."""

FEWEST_BUNDLES: Final = 4
MANY_BUNDLES: Final = 64

_NAME: Final = "queues.msgpack"

NOT_ADDED: Final = frozenset({"first", "next_offset"})
"""What of the summaries of parts is no sum."""

Builder = QueueBuilder | BatchQueueBuilder


class QueuesWanted(msgspec.Struct, frozen=True):
    """The common input of tasks that build queues, in a file: the plan, what of the log can be read, and its segments.

    Units of records at or beyond the end of `log` do not count. `moved`: the old queues are of a log whose records were
    elsewhere.
    """

    plan: QueuePlan
    log: ReadableLog
    segment_size: int
    moved: MovedLog | None = None

    def leave(self, work: WorkDirectory) -> str:
        """Write it into the work directory, without the queues that there are; returns the path."""
        plan = dataclasses.replace(self.plan, existing=frozenset(), misplaced=frozenset(), problems=())
        path = work.root / _NAME
        # The order of what is in sets would be another one in each process.
        wanted = msgspec.structs.replace(self, plan=plan)
        write_whole(path, msgspec.msgpack.encode(wanted, enc_hook=str, order="deterministic"))
        return str(path)

    @classmethod
    def read(cls, path: str) -> "QueuesWanted":
        """As the driver left it."""
        return msgspec.msgpack.decode(Path(path).read_bytes(), type=cls, dec_hook=lambda kind, text: kind(text))


class BuiltPart(msgspec.Struct, frozen=True, array_like=True):
    """A part of one plain queue: the units of queue offsets [first, stop), `first` being where one of its files starts.

    `number` distinguishes the parts of a bundle's queues; `is_last`: nothing of the queue lies behind.
    """

    topic: bytes
    queue_id: int
    number: int
    first: int
    stop: int
    is_last: bool


class BuildQueuesTask(msgspec.Struct, frozen=True):
    """A bundle of queues whose units are in the blocks of some segments; `wanted` is the path of a QueuesWanted.

    `apart` are queues (topic, queue id) that are built in parts; with `part`, this is one of these and nothing else.
    """

    work: str
    wanted: str
    bundle: int
    units: UnitList
    apart: tuple[tuple[bytes, int], ...] = ()
    part: BuiltPart | None = None

    @property
    def name(self) -> str:
        """The task's name."""
        part = "" if self.part is None else f"-part-{self.part.number:05d}"
        return f"{PHASE}-queues-{self.bundle:05d}{part}"


def bundle_count(log_bytes: int) -> int:
    """How many bundles the queues of a log are dealt out to."""
    few = min(log_bytes // SMALLEST_SHARE, MANY_BUNDLES)
    return max(few + max(log_bytes - MANY_BUNDLES * SMALLEST_SHARE, 0) // LARGER_SHARE, FEWEST_BUNDLES)


class BuiltQueues(AttemptRecord):
    """The queues of a bundle that have units: tree, topic, queue id and the fields of a QueueSummary of each.

    `left_out` are the queues that the log has and that were not built, by the reason; `unknown` the topics that
    topics.json does not know. `is_part`: there is one queue, and a part of it.
    """

    bundle: int
    units: int
    queues: list[list[Any]]
    left_out: dict[str, int]
    unknown: list[str]
    is_part: bool


def build_queues(task: BuildQueuesTask) -> BuiltQueues:
    """Build the queues of a bundle and fsync them; what became of each, as left in the work directory.

    The driver has to bring them to their places, by :func:`take_queues`.
    """

    def build(attempt: Attempt, notify: Notify) -> BuiltQueues:
        return BundleBuild(task, attempt, notify).run()

    return run_attempt(task.work, task.name, build, _are_whole)


def take_queues(work: WorkDirectory, done: BuiltQueues) -> None:
    """Move the queues of the valid attempt to the staging directory, unless they are there already."""
    made = work.partial / done["attempt"]
    for queue in made.glob("*/*/*"):
        place = work.staged / queue.relative_to(made)
        place.parent.mkdir(parents=True, exist_ok=True)
        if done["is_part"]:
            place.mkdir(exist_ok=True)
            for file in queue.iterdir():
                os.replace(file, place / file.name)
            fsync_file(place)
        else:
            shutil.rmtree(place, ignore_errors=True)
            os.rename(queue, place)
    shutil.rmtree(made, ignore_errors=True)


def join_parts(bundles: Iterable[BuiltQueues]) -> list[BuiltQueues]:
    """Join the summaries of queues that were built in parts, in the place of the first part; parts are in order."""
    whole: dict[tuple[Any, ...], dict[str, Any]] = {}
    joined: list[BuiltQueues] = []
    for bundle in bundles:
        queues = []
        for *names, summary in bundle["queues"]:
            first = whole.get(tuple(names)) if bundle["is_part"] else None
            if first is not None:
                first |= {field: first[field] + summary[field] for field in summary if field not in NOT_ADDED}
                first["next_offset"] = summary["next_offset"]
                continue
            summary = dict(summary)
            queues.append([*names, summary])
            if bundle["is_part"]:
                whole[tuple(names)] = summary
        joined.append({**bundle, "queues": queues})
    return joined


class BundleBuild:
    """The queues of one bundle, all being built side by side."""

    def __init__(self, task: BuildQueuesTask, attempt: Attempt, notify: Notify) -> None:
        """Build in the attempt's directory; `notify` is called with the number of units, twice."""
        self._task, self._partial, self._notify = task, attempt.partial, notify
        self._wanted = QueuesWanted.read(task.wanted)
        self._plan, self._log, self._moved = self._wanted.plan, self._wanted.log, self._wanted.moved
        self._verdicts: dict[tuple[bytes, int], Verdict] = {}
        self._builders: dict[QueueKey, Builder] = {}
        self._held = self._units = 0

    def run(self) -> BuiltQueues:
        """Build them all; what became of them."""
        self._partial.mkdir()
        for block in self._task.units.blocks(self._task.bundle, self._log.end):
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
            "left_out": dict(Counter(each.value for each in self._verdicts.values() if each is not Verdict.BUILD)),
            "unknown": sorted(set(self._unknown_topics())),
            "is_part": self._task.part is not None,
        }

    def _unknown_topics(self) -> Iterator[str]:
        for name in self._verdicts:
            key = self._plan.key(*name)
            if key is not None and self._plan.is_unknown(key.topic):
                yield key.topic

    def _put(self, block: Block) -> None:
        """Hand out the runs of a block."""
        part, apart = self._task.part, self._task.apart
        for name in queue_names(block) if part is None else ():
            if name not in self._verdicts:
                self._verdicts[name] = self._plan.verdict(*name)
        for run in queue_runs(block, self._log.end):
            if part is not None:
                if run.name != (part.topic, part.queue_id):
                    continue
                run = run.between(part.first, part.stop)
                if not len(run.units):
                    continue
            elif run.name in apart or self._verdicts[run.name] is not Verdict.BUILD:
                continue
            builder = self._builders.get(run.key)
            if builder is None:
                builder = self._builders[run.key] = self._new_builder(run.key)
            builder.put_run(run.first, run.units, run.timestamps)
            self._held += len(run.units)
            self._units += len(run.units) // (BATCH_UNIT.size if run.key.tree == BATCH_CONSUME_QUEUE else UNIT.size)

    def _new_builder(self, key: QueueKey) -> Builder:
        plan, directory = self._plan, self._partial / key.path
        is_batch = key.tree == BATCH_CONSUME_QUEUE
        born_at = partial(self._born_at, plan.root / key.path, batch=is_batch)
        if is_batch:
            return BatchQueueBuilder(directory, plan.file_sizes[BATCH_CONSUME_QUEUE], born_at=born_at)
        extension = None
        if plan.ext and not key.topic.startswith(LIGHT_PREFIX):
            path = self._partial / CONSUME_QUEUE_EXT / key.topic / str(key.queue_id)
            extension = QueueExtBuilder(path, plan.file_sizes[CONSUME_QUEUE_EXT])
        return QueueBuilder(
            directory,
            plan.file_sizes[CONSUME_QUEUE],
            self._wanted.segment_size,
            extension=extension,
            born_at=born_at,
            repeat=key.topic != SCHEDULE_TOPIC,
        )

    def _born_at(self, directory: Path, *, batch: bool) -> int | None:
        """Where the record of the old queue's first unit starts, None where it has none."""
        old = OldQueue(directory, batch=batch).born_at()
        return old if self._moved is None else self._moved.new_offset(old)

    def _flush(self) -> None:
        for builder in self._builders.values():
            builder.flush()
        self._held = 0

    def _finish(self, key: QueueKey) -> QueueSummary:
        """Complete one queue: its numbers go on from where they were, whatever was lost at its end."""
        builder, log, part = self._builders[key], self._log, self._task.part
        next_offset, last = builder.settle(), builder.last_physical_offset
        if self._moved is not None:
            log = self._moved.log
            last = self._moved.old_offset(last) if log.lost else last
        if (part is None or part.is_last) and log.loses_behind(last):
            old = OldQueue(self._plan.root / key.path, batch=key.tree == BATCH_CONSUME_QUEUE)
            builder.extend(old.offset_behind_lost(last, next_offset, log), self._log.end)
        return builder.finish()


def _are_whole(work: WorkDirectory, done: BuiltQueues) -> bool:
    """Whether all files of the queues are there, where the attempt left them or where they were brought."""
    places = work.partial / done["attempt"], work.staged
    is_whole = _is_whole_part if done["is_part"] else _is_whole
    return all(any(is_whole(place, queue) for place in places) for queue in done["queues"])


def _is_whole(place: Path, queue: list[Any]) -> bool:
    """Whether the files of a queue that was finished are all there."""
    tree, topic, queue_id, summary = queue
    try:
        sizes = [entry.stat().st_size for entry in os.scandir(place / QueueKey(tree, topic, queue_id).path)]
    except OSError:
        return False
    return bool(len(sizes) == summary["files"] and sum(sizes) == summary["bytes"])


def _is_whole_part(place: Path, queue: list[Any]) -> bool:
    """Whether the files of a part of a queue are all there; beside those of other parts they may be."""
    tree, topic, queue_id, summary = queue
    directory, size = place / QueueKey(tree, topic, queue_id).path, summary["bytes"] // summary["files"]
    start = summary["first"] * UNIT.size // size * size
    names = [f"{start + number * size:0{SEGMENT_NAME_DIGITS}d}" for number in range(summary["files"])]
    try:
        return all(os.stat(directory / name).st_size == size for name in names)
    except OSError:
        return False
