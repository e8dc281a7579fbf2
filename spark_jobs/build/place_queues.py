"""The driver's part in rebuilding queues: assign them to tasks, carry over the others, report on both."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from spark_jobs.build.build_queues import NOT_ADDED, BuildQueuesTask, BuiltQueues, QueuesWanted
from spark_jobs.build.moved_log import MovedLog
from spark_jobs.build.split_queues import Survey, split_queues
from spark_jobs.build.unit_blocks import UnitList, used_bundles
from spark_jobs.run.report import Damage
from spark_jobs.run.work_directory import WorkDirectory
from spark_jobs.scan.scan_segment import ScanSummary, bundle_of
from storage.amounts import counted
from storage.build.existing_queue import ReadableLog
from storage.build.queue_builder import QueueSummary
from storage.build.queue_carry import carry_queue
from storage.build.queue_plan import QueueKey, QueuePlan
from storage.layout.store_layout import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, CONSUME_QUEUE_EXT

MOST_REPORTED: Final = 20
"""Topics and queues that a report names; it says how many more there are."""

OTHER_TOPICS: Final = "otherTopics"
WITHOUT_RECORDS: Final = "withoutRecords"
"""Why a queue was carried over as it was: it is of no topic asked for, or the log has no message of it any more."""

_SUMS: Final = tuple(name for name in QueueSummary.__struct_fields__ if name not in NOT_ADDED)
"""What the summaries of queues count, so that it can be added up."""

_NOTES: Final = {
    "repeated": (
        "lost message",
        "replaced by a copy of a neighbour's unit, so that all others keep their offsets",
    ),
    "unreadable": ("lost message", "with an empty place in the queue"),
    "dropped": ("record", "without a unit, because the queue offset is impossible or belongs to another record"),
    "misnumbered": ("record", "with a wrong queue offset, placed between its neighbours"),
    "shifted": ("record", "behind an implausible jump of queue offsets, placed as by a broker"),
    "restarts": ("record", "with queue offset 0 behind others, appended as a broker does"),
    "earlier_life": ("record", "of a deleted topic with the same name, left out"),
    "ext_units": ("extension unit", "without a filter bitmap, which readers take as a match"),
}
"""What is counted, and what became of it."""


class RemarkableQueue(msgspec.Struct, kw_only=True, omit_defaults=True, rename="camel"):
    """A queue, named by its path in the store, with the numbers of :data:`_NOTES` that are not 0."""

    queue: str
    repeated: int = 0
    unreadable: int = 0
    dropped: int = 0
    misnumbered: int = 0
    shifted: int = 0
    restarts: int = 0
    earlier_life: int = 0


class QueueDetails(msgspec.Struct, kw_only=True, rename="camel"):
    """What a rebuild says of queues: how many there are, the sums of their summaries, and what became of others.

    `left_out` are queues by the reason why they were not built; `carried_over` queues and files that were kept as they
    were. Of `unknown_topics` and `remarkable` queues the first are named.
    """

    queues: int
    batch_queues: int
    units: int
    pre_blank: int
    repeated: int
    unreadable: int
    dropped: int
    misnumbered: int
    shifted: int
    restarts: int
    earlier_life: int
    ext_units: int
    files: int
    bytes: int
    file_sizes: dict[str, int]
    unknown_topics: list[str]
    unknown_topic_count: int
    left_out: dict[str, int]
    carried_over: dict[str, int]
    remarkable: list[RemarkableQueue]


def log_extent(minimum: int, end: int, damages: Iterable[Damage]) -> ReadableLog:
    """The log without what is damaged before its end."""
    lost: list[tuple[int, int]] = []
    for start, stop in sorted((each.physical_offset, each.physical_offset + each.length) for each in damages):
        stop = min(stop, end)
        if lost and start <= lost[-1][1]:
            lost[-1] = lost[-1][0], max(stop, lost[-1][1])
        elif start < stop:
            lost.append((start, stop))
    return ReadableLog(minimum, end, tuple(lost))


def queue_tasks(
    survey: Survey,
    plan: QueuePlan,
    work: WorkDirectory,
    segments: Sequence[ScanSummary],
    log: ReadableLog,
    bundles: int,
    moved: MovedLog | None = None,
) -> list[BuildQueuesTask]:
    """Make a task for each bundle with units, and one for each part of a queue that is built in parts.

    `segments` are the summaries of the scan, in order; `survey` has queues looked at that may be split. `moved`: the
    queues that there are lead to where records of the log were before.
    """
    scanned = [summary for summary in segments if summary["base"] < log.end]
    units = UnitList.leave(work, scanned)
    segment_size = max((summary["size"] for summary in segments), default=0)
    wanted = QueuesWanted(plan, log, segment_size, moved).leave(work)
    split = split_queues(survey, plan, scanned, units, log.end, bundles)
    root, homes = str(work.root), {queue: bundle_of(*queue, bundles) for queue in split}
    tasks = [
        BuildQueuesTask(root, wanted, bundle, units, tuple(queue for queue, home in homes.items() if home == bundle))
        for bundle in used_bundles(scanned)
    ]
    return tasks + [
        BuildQueuesTask(root, wanted, homes[queue], files, part=part)
        for queue, parts in split.items()
        for part, files in parts
    ]


def staged_trees(plan: QueuePlan, work: WorkDirectory) -> list[str]:
    """Make and name the directories that a rebuild of queues replaces, whether or not a queue is left for them."""
    wanted = [CONSUME_QUEUE]
    if plan.batch_topics or (plan.root / BATCH_CONSUME_QUEUE).is_dir():
        wanted.append(BATCH_CONSUME_QUEUE)
    if plan.ext:
        wanted.append(CONSUME_QUEUE_EXT)
    for tree in wanted:
        (work.staged / tree).mkdir(parents=True, exist_ok=True)
    return wanted


def carry_queues(
    plan: QueuePlan,
    work: WorkDirectory,
    bundles: Sequence[BuiltQueues],
    log: ReadableLog,
    *,
    in_place: bool,
    moved: MovedLog | None = None,
) -> dict[str, int]:
    """Bring the old queues that must not be lost beside the queues that were built; returns counts.

    With `moved` the old queues are held against the log as it was before its records were moved.
    """
    if moved is not None:
        log = moved.log
    built = {QueueKey(tree, topic, queue_id) for bundle in bundles for tree, topic, queue_id, _ in bundle["queues"]}
    counts: Counter[str] = Counter()
    for queue in plan.carried(built, in_place=in_place):
        summary = carry_queue(plan.root, queue, log, work.staged, link=in_place, moved=moved is not None)
        counts[OTHER_TOPICS if queue.untouched else WITHOUT_RECORDS] += 1
        counts["filesLinked"] += summary.linked
        counts["filesCopied"] += summary.copied
        counts["filesLeftOut"] += summary.left_out
    return dict(counts)


def queue_details(plan: QueuePlan, bundles: Sequence[BuiltQueues], carried: dict[str, int]) -> QueueDetails:
    """Sum the outcomes of all queues, for the report."""
    sums = Counter[str]()
    trees = Counter[str]()
    for bundle in bundles:
        for tree, _, _, summary in bundle["queues"]:
            trees[tree] += 1
            sums.update({name: summary[name] for name in _SUMS})
    unknown = sorted({topic for bundle in bundles for topic in bundle["unknown"]})
    left_out = Counter[str]()
    for bundle in bundles:
        left_out.update(bundle["left_out"])
    return QueueDetails(
        queues=trees.total(),
        batch_queues=trees[BATCH_CONSUME_QUEUE],
        **{name: sums[name] for name in _SUMS},
        file_sizes=dict(plan.file_sizes),
        unknown_topics=unknown[:MOST_REPORTED],
        unknown_topic_count=len(unknown),
        left_out=dict(left_out),
        carried_over=carried,
        remarkable=_remarkable(bundles),
    )


def queue_notes(plan: QueuePlan, details: QueueDetails) -> list[str]:
    """Return sentences about queues that are not as a broker would have them."""
    notes = [*plan.problems, *plan.guesses]
    notes += [
        f"{counted(count, one)} {text}" for name, (one, text) in _NOTES.items() if (count := getattr(details, name))
    ]
    notes += [f"{counted(count, 'queue')} of the log: {what}" for what, count in details.left_out.items()]
    if count := details.unknown_topic_count:
        named = ", ".join(details.unknown_topics) + (", …" if count > MOST_REPORTED else "")
        notes.append(f"topics that topics.json does not know: {named}")
    if count := details.carried_over.get(WITHOUT_RECORDS, 0):
        notes.append(f"{counted(count, 'queue')} without messages in the log copied, so that the offsets continue")
    return notes


def _remarkable(bundles: Iterable[BuiltQueues]) -> list[RemarkableQueue]:
    """The first queues with anything but units of their own."""
    found = [
        RemarkableQueue(queue=str(Path(tree, topic, str(queue_id))), **odd)
        for bundle in bundles
        for tree, topic, queue_id, summary in bundle["queues"]
        if (odd := {name: summary[name] for name in _NOTES if name != "ext_units" and summary[name]})
    ]
    return sorted(found, key=lambda each: each.queue)[:MOST_REPORTED]
