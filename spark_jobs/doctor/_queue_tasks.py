"""Cut the check of all queues into tasks: of bundles of queues, and of parts of a queue that has far more units.

Such a queue is cut as a rebuild cuts it (:mod:`spark_jobs.build.split_queues`): then its messages are numbered without
gap or repeat, and for each part a task sees how far its units are in their places, byte for byte. The driver joins what
they say. One more task then has the queue without that front: what lies before it and behind it, and the messages from
the first unit on that differs, which it diagnoses as if it had read all of them itself.

So a sound queue is read by many tasks, and of a damaged one what lies before the damage. Of a queue behind a URL each
task fetches the files that it reads, and is sent the names of these and of a few behind them.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from spark_jobs.build.build_queues import BuiltPart, bundle_count
from spark_jobs.build.split_queues import QueueName
from spark_jobs.build.unit_blocks import UnitList
from spark_jobs.doctor._check_tasks import CheckedPart, CheckPartTask, CheckQueuesTask
from spark_jobs.places.remote_tree import RemoteEntry, RemoteTree
from spark_jobs.run.work_directory import WorkDirectory
from spark_jobs.scan.scan_segment import GATHERED_BYTES, bundle_of
from spark_jobs.scan.source import StoreSource
from storage.build.queue_plan import QueuePlan
from storage.doctor.queues.clean_front import CleanFront
from storage.files.mapped_file import segment_offset
from storage.layout.store_layout import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, CONSUME_QUEUE_EXT
from storage.queue.consume_queue import UNIT
from storage.queue.queue_store import is_queue_id

Parts: TypeAlias = Mapping[QueueName, Sequence[tuple[BuiltPart, UnitList]]]


QUEUE_TREES: Final = (CONSUME_QUEUE, BATCH_CONSUME_QUEUE, CONSUME_QUEUE_EXT)

LONGEST_RUN: Final = 2 * GATHERED_BYTES // UNIT.size
"""No run of units in a block is longer: a run of a part may end so far behind it."""


def check_tasks(
    plan: QueuePlan,
    work: WorkDirectory,
    source: StoreSource,
    units: UnitList,
    used: Collection[int],
    parts: Parts,
    limit: int,
) -> list[CheckQueuesTask]:
    """A task for each bundle that has units, or queues in the store; `used` are numbers of bundles that have units.

    `parts` are queues that are checked in parts; of a file `limit` findings of a kind are listed.
    """
    bundles, tree = bundle_count(source.size), source.tree
    existing: list[list[tuple[str, str, int]]] = [[] for _ in range(bundles)]
    apart: list[list[QueueName]] = [[] for _ in range(bundles)]
    for key in sorted(plan.existing):
        name = key.topic.encode(), key.queue_id
        if key.tree != CONSUME_QUEUE or name not in parts:
            existing[bundle_of(*name, bundles)].append((key.tree, key.topic, key.queue_id))
    for name in sorted(parts):
        apart[bundle_of(*name, bundles)].append(name)
    trees = deal_tree(tree, bundles, parts)
    return [
        CheckQueuesTask(
            work=str(work.root),
            store=str(plan.root) if tree is None else tree.url,
            tree=trees.get(bundle, tree and msgspec.structs.replace(tree, files=())),
            bundle=bundle,
            units=units,
            existing=tuple(queues),
            ext=(plan.root / CONSUME_QUEUE_EXT).is_dir(),
            limit=limit,
            apart=tuple(apart[bundle]),
        )
        for bundle, queues in enumerate(existing)
        if bundle in used or queues
    ]


def deal_tree(tree: RemoteTree | None, bundles: int, apart: Collection[QueueName]) -> dict[int | QueueName, RemoteTree]:
    """The files of each bundle's queues, of a store behind a URL, and those of each plain queue that is checked apart.

    A queue's path is the directory of the store, topic, queue id, file.
    """
    dealt: dict[int | QueueName, list[RemoteEntry]] = {}
    for each in () if tree is None else tree.files:
        parts = each.path.split("/")
        if len(parts) == 4 and parts[0] in QUEUE_TREES and is_queue_id(parts[2]):
            name = parts[1].encode(), int(parts[2])
            is_apart = parts[0] == CONSUME_QUEUE and name in apart
            dealt.setdefault(name if is_apart else bundle_of(*name, bundles), []).append(each)
    return {key: msgspec.structs.replace(tree, files=tuple(files)) for key, files in dealt.items() if tree is not None}


def part_tasks(
    tasks: Sequence[CheckQueuesTask], parts: Parts, trees: Mapping[int | QueueName, RemoteTree]
) -> list[CheckPartTask]:
    """A task for each part of a queue, queue by queue; `tasks` are those of the bundles, `trees` of deal_tree."""
    return [
        CheckPartTask(task.work, task.store, task.bundle, units, part, files)
        for task in tasks
        for name in task.apart
        for (part, units), files in zip(parts[name], _part_trees(parts[name], trees.get(name)), strict=True)
    ]


def _part_trees(parts: Sequence[tuple[BuiltPart, UnitList]], tree: RemoteTree | None) -> Iterator[RemoteTree | None]:
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
    trees: Mapping[int | QueueName, RemoteTree],
) -> list[CheckQueuesTask]:
    """A task for each queue that was checked in parts: `checked` is what :func:`part_tasks` have said, in order."""
    left, rests = iter(checked), list[CheckQueuesTask]()
    for task in tasks:
        for name in task.apart:
            of_queue = [(units, next(left)) for _, units in parts[name]]
            names = (CONSUME_QUEUE, name[0].decode(), name[1])
            front, units = _joined(of_queue, task.units.stop)
            changes = {"existing": (names,), "apart": (), "tree": trees.get(name), "units": units}
            rests.append(msgspec.structs.replace(task, rest=front, rest_number=len(rests), **changes))
    return rests


def _joined(parts: Sequence[tuple[UnitList, CheckedPart]], stop: int) -> tuple[CleanFront, UnitList]:
    """The front of a queue, up to the first unit that differs, and the segments that have more of the queue."""
    first = parts[0][1]
    front = CleanFront(first["start"], first["end"], first["last"])
    for units, part in parts:
        if part["end"] > part["start"] >= front.end:
            front = CleanFront(front.start, part["end"], part["last"])
        if not part["is_clean"]:
            return front, msgspec.structs.replace(units, stop=stop)
    return front, msgspec.structs.replace(parts[-1][0], start=stop, stop=stop)
