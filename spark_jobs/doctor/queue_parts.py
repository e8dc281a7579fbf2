"""Check one queue that has far more units than others by several tasks, as such a queue is built.

A queue is cut as a rebuild cuts it (:mod:`spark_jobs.build.split_queues`): then its messages are numbered without gap
or repeat, and for each part a task sees how far its units are in their places, byte for byte. The driver joins what
they say. One more task then has the queue without that front: what lies before it and behind it, and the messages from
the first unit on that differs, which it diagnoses as if it had read all of them itself.

So a sound queue is read by many tasks, and of a damaged one what lies before the damage. Of a queue behind a URL each
task fetches the files that it reads, and is sent the names of these and of a few behind them.
"""

import shutil
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import msgspec
import numpy as np

from spark_jobs.build.build_queues import QueuePart
from spark_jobs.build.split_queues import QueueName
from spark_jobs.build.unit_blocks import UnitList, queue_runs
from spark_jobs.doctor.check_queues import PHASE, CheckQueuesTask, KnownFront
from spark_jobs.doctor.work_files import LogTable
from spark_jobs.places.remote_tree import HollowCopy, RemoteEntry, RemoteTree
from spark_jobs.run.attempt import Attempt, AttemptRecord, Notify, run_attempt
from spark_jobs.scan.scan_segment import GATHERED_BYTES
from storage.build.queue_plan import QueueKey
from storage.doctor.queues.clean_front import FrontCheck
from storage.doctor.queues.unit_files import UnitFiles
from storage.files.mapped_file import segment_offset
from storage.layout.store_layout import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, CONSUME_QUEUE_EXT
from storage.queue.consume_queue import UNIT, UNIT_DTYPE
from storage.queue.queue_files import UNITS_OF_PLAIN
from storage.queue.queue_store import is_queue_id

Parts: TypeAlias = Mapping[QueueName, Sequence[tuple[QueuePart, UnitList]]]


QUEUE_TREES: Final = (CONSUME_QUEUE, BATCH_CONSUME_QUEUE, CONSUME_QUEUE_EXT)

LONGEST_RUN: Final = 2 * GATHERED_BYTES // UNIT.size
"""No run of units in a block is longer: a run of a part may end so far behind it."""


class CheckPartTask(msgspec.Struct, frozen=True):
    """A part of a queue of the store at a path, and the segments that have units of it.

    Of a store behind a URL `tree` has the files of the queue in which the part's units may be.
    """

    work: str
    store: str
    bundle: int
    units: UnitList
    part: QueuePart
    tree: RemoteTree | None = None

    @property
    def name(self) -> str:
        """The task's name."""
        return f"{PHASE}-part-{self.bundle:05d}-{self.part.number:05d}"


class CheckedPart(AttemptRecord):
    """The units of a part that are as they should be: the fields of a CleanFront, its last unit as bytes.

    `is_clean`: they are all that the part has. A run of messages is of the part in which it begins, up to its end.
    """

    start: int
    end: int
    last: bytes
    is_clean: bool


def check_queue_part(task: CheckPartTask) -> CheckedPart:
    """See how far the units of a part are in their places."""

    def check(attempt: Attempt, notify: Notify) -> CheckedPart:
        part, log = task.part, LogTable.read(attempt.work)
        key = QueueKey(CONSUME_QUEUE, part.topic.decode(), part.queue_id)
        if task.tree is None:
            files = UnitFiles(Path(task.store) / key.path, UNIT_DTYPE, UNITS_OF_PLAIN)
        else:
            copy = HollowCopy(task.tree, attempt.partial)
            files = UnitFiles(attempt.partial / key.path, UNIT_DTYPE, UNITS_OF_PLAIN, copy.fill)
        front = FrontCheck(files)
        is_clean = _is_clean(task, front, log.end, notify)
        clean = front.front
        shutil.rmtree(attempt.partial, ignore_errors=True)
        return {"start": clean.start, "end": clean.end, "last": clean.last.tobytes(), "is_clean": is_clean}

    done: CheckedPart = run_attempt(task.work, task.name, check)
    return done


def _is_clean(task: CheckPartTask, front: FrontCheck, end: int, notify: Notify) -> bool:
    """Whether all units of a part are in their places; the first that is not ends the task."""
    part, units = task.part, 0
    for block in task.units.blocks(task.bundle, end):
        for run in queue_runs(block, end):
            if run.name == (part.topic, part.queue_id) and part.first <= run.first < part.stop:
                messages = np.frombuffer(run.units, UNIT_DTYPE)
                if not front.stand_in_place(run.first, messages):
                    return False
                units += len(messages)
        notify(units, units)
    return True


def queue_entries(tree: RemoteTree) -> Iterator[tuple[str, QueueName, RemoteEntry]]:
    """The files of queues: the directory of the store that they are below, the queue, the file."""
    for each in tree.files:
        parts = each.path.split("/")
        if len(parts) == 4 and parts[0] in QUEUE_TREES and is_queue_id(parts[2]):
            yield parts[0], (parts[1].encode(), int(parts[2])), each


def trees_apart(tree: RemoteTree | None, parts: Parts) -> dict[QueueName, RemoteTree]:
    """The files of each queue that is checked in parts, of those of a store behind a URL."""
    if tree is None:
        return {}
    found: dict[QueueName, list[RemoteEntry]] = {name: [] for name in parts}
    for place, name, each in queue_entries(tree):
        if place == CONSUME_QUEUE and name in found:
            found[name].append(each)
    return {name: RemoteTree(tree.url, tree.storage, tuple(files)) for name, files in found.items()}


def part_tasks(
    tasks: Sequence[CheckQueuesTask], parts: Parts, trees: Mapping[QueueName, RemoteTree]
) -> list[CheckPartTask]:
    """A task for each part of a queue, queue by queue; `tasks` are those of the bundles, `trees` of trees_apart."""
    return [
        CheckPartTask(task.work, task.store, task.bundle, units, part, files)
        for task in tasks
        for name in task.apart
        for (part, units), files in zip(parts[name], _part_trees(parts[name], trees.get(name)), strict=True)
    ]


def _part_trees(parts: Sequence[tuple[QueuePart, UnitList]], tree: RemoteTree | None) -> Iterator[RemoteTree | None]:
    """The files in which each part of a queue may have units; the first part has those before it, too."""
    if tree is None:
        yield from [None] * len(parts)
        return
    named = ((segment_offset(each.path.rpartition("/")[2]), each) for each in tree.files)
    files = sorted((start // UNIT.size, each) for start, each in named if start is not None)
    starts = [start for start, _ in files]
    for number, (part, _) in enumerate(parts):
        first = max(bisect_right(starts, part.first) - 1, 0) if number else 0
        behind = bisect_left(starts, part.stop + LONGEST_RUN)
        yield msgspec.structs.replace(tree, files=tuple(each for _, each in files[first:behind]))


def rest_tasks(
    tasks: Sequence[CheckQueuesTask],
    parts: Parts,
    checked: Sequence[CheckedPart],
    trees: Mapping[QueueName, RemoteTree],
) -> list[CheckQueuesTask]:
    """A task for each queue that was checked in parts: `checked` is what :func:`part_tasks` have said, in order."""
    left, rests = iter(checked), list[CheckQueuesTask]()
    for task in tasks:
        for name in task.apart:
            of_queue = [(units, next(left)) for _, units in parts[name]]
            names = (CONSUME_QUEUE, name[0].decode(), name[1])
            front, units = _joined(len(rests), of_queue, task.units.stop)
            changes = {"existing": (names,), "apart": (), "rest": front, "tree": trees.get(name)}
            rests.append(msgspec.structs.replace(task, units=units, **changes))
    return rests


def _joined(number: int, parts: Sequence[tuple[UnitList, CheckedPart]], stop: int) -> tuple[KnownFront, UnitList]:
    """The front of the queue of a number, up to the first unit that differs, and the segments that have more of it."""
    first = parts[0][1]
    front = KnownFront(number, first["start"], first["end"], first["last"])
    for units, part in parts:
        if part["end"] > part["start"] >= front.end:
            front = msgspec.structs.replace(front, end=part["end"], last=part["last"])
        if not part["is_clean"]:
            return front, msgspec.structs.replace(units, stop=stop)
    return front, msgspec.structs.replace(parts[-1][0], start=stop, stop=stop)
