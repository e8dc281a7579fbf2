"""What the driver of a rebuild has to do about queues: deal them out to tasks, carry over the others, tell of both."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from spark_jobs.build.build_queues import BuildQueuesTask, UnitFile
from spark_jobs.run.attempt import block_file
from spark_jobs.run.work_directory import WorkDirectory
from spark_jobs.scan.damage import Damage
from spark_jobs.scan.scan_segment import UNITS
from storage.build.existing_queue import ReadableLog
from storage.build.queue_carry import carry_queue
from storage.build.queue_plan import QueueKey, QueuePlan, Verdict
from storage.layout.store_layout import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, CONSUME_QUEUE_EXT

MOST_TOLD: Final = 20
"""Topics and queues that are named; of more the number is told."""

_SUMS: Final = (
    "units",
    "pre_blank",
    "repeated",
    "unreadable",
    "dropped",
    "misnumbered",
    "shifted",
    "restarts",
    "earlier_life",
    "ext_units",
    "files",
    "bytes",
)
_NOTES: Final = {
    "repeated": "lost messages in whose place a neighbour is delivered once more: all others keep their offsets",
    "unreadable": "lost messages whose queue offsets stay empty",
    "dropped": "records without a unit, since another one has their queue offset or it is impossible",
    "misnumbered": "records that took the place between their neighbours, not the one that they claim",
    "shifted": "records behind a jump too far to be believed, which stand where a broker would put them",
    "restarts": "records with queue offset 0 behind others, appended as a broker does",
    "earlier_life": "records left out that are of a deleted topic of the same name",
    "ext_units": "extension units without a filter bitmap, which readers take as a match",
}


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
    plan: QueuePlan, work: WorkDirectory, segments: Sequence[dict[str, Any]], log: ReadableLog
) -> list[BuildQueuesTask]:
    """A task for each bundle that has units; `segments` are the summaries of the scan, in order."""
    scanned = [summary for summary in segments if summary["base"] < log.end]
    skipped = tuple(sorted(queue for queue, verdict in _verdicts(plan, scanned).items() if verdict != Verdict.BUILD))
    tasks = []
    for bundle in range(max((len(summary["unit_blocks"]) for summary in scanned), default=0)):
        units = tuple(
            UnitFile(str(block_file(work, summary, UNITS)), tuple(summary["unit_blocks"][bundle]))
            for summary in scanned
            if summary["unit_blocks"][bundle]
        )
        if units:
            tasks.append(
                BuildQueuesTask(
                    work=str(work.root),
                    store=str(plan.root),
                    bundle=bundle,
                    units=units,
                    skipped=skipped,
                    file_sizes=plan.file_sizes,
                    segment_size=max(summary["size"] for summary in segments),
                    ext=plan.ext,
                    minimum=log.minimum,
                    end=log.end,
                    lost=tuple(log.lost),
                )
            )
    return tasks


def unit_count(segments: Iterable[dict[str, Any]]) -> int:
    """Units that a scan found."""
    return sum(count for summary in segments for *_, count in summary["queues"])


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
    plan: QueuePlan, work: WorkDirectory, bundles: Sequence[dict[str, Any]], log: ReadableLog, *, in_place: bool
) -> dict[str, Any]:
    """Bring beside what was built what must not be lost of the old queues; what was done, in numbers."""
    built = {QueueKey(tree, topic, queue_id) for bundle in bundles for tree, topic, queue_id, _ in bundle["queues"]}
    counts: Counter[str] = Counter()
    for queue in plan.carried(built, in_place=in_place):
        summary = carry_queue(plan.root, queue, log, work.staged, link=in_place)
        counts["otherTopics" if queue.untouched else "withoutRecords"] += 1
        counts["filesLinked"] += summary.linked
        counts["filesCopied"] += summary.copied
        counts["filesLeftOut"] += summary.left_out
    return dict(counts)


def queue_details(
    plan: QueuePlan, segments: Sequence[dict[str, Any]], bundles: Sequence[dict[str, Any]], carried: dict[str, Any]
) -> dict[str, Any]:
    """What a report says of queues."""
    sums = Counter[str]()
    trees = Counter[str]()
    for bundle in bundles:
        for tree, _, _, summary in bundle["queues"]:
            trees[tree] += 1
            sums.update({name: summary[name] for name in _SUMS})
    verdicts = _verdicts(plan, segments)
    unknown = sorted(
        {key.topic for key in (plan.key(*queue) for queue in verdicts) if key and plan.is_unknown(key.topic)}
    )
    left_out = Counter(verdict.value for verdict in verdicts.values() if verdict is not Verdict.BUILD)
    return {
        "queues": trees.total(),
        "batchQueues": trees[BATCH_CONSUME_QUEUE],
        **{_camel(name): sums[name] for name in _SUMS},
        "fileSizes": dict(plan.file_sizes),
        "unknownTopics": unknown[:MOST_TOLD],
        "unknownTopicCount": len(unknown),
        "leftOut": dict(left_out),
        "carriedOver": carried,
        "remarkable": _remarkable(bundles),
    }


def queue_notes(plan: QueuePlan, details: dict[str, Any]) -> list[str]:
    """What a person should know of the queues beyond their number."""
    notes = list(plan.problems)
    notes += [f"{details[_camel(name)]} {text}" for name, text in _NOTES.items() if details[_camel(name)]]
    notes += [f"{count} queues of the log were {what}" for what, count in details["leftOut"].items()]
    if count := details["unknownTopicCount"]:
        named = ", ".join(details["unknownTopics"]) + (", …" if count > MOST_TOLD else "")
        notes.append(f"topics that topics.json does not know: {named}")
    if details["carriedOver"].get("withoutRecords"):
        notes.append(
            f"{details['carriedOver']['withoutRecords']} queues that the log has no message of any more were carried "
            "over, so that their offsets go on"
        )
    return notes


def _verdicts(plan: QueuePlan, segments: Iterable[dict[str, Any]]) -> dict[tuple[bytes, int], Verdict]:
    """What becomes of each queue that a scan found."""
    found = {(bytes(topic), int(queue_id)) for summary in segments for topic, queue_id, *_ in summary["queues"]}
    return {queue: plan.verdict(*queue) for queue in found}


def _remarkable(bundles: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first queues with anything but units of their own."""
    found = [
        {"queue": str(Path(tree, topic, str(queue_id))), **{_camel(name): summary[name] for name in odd}}
        for bundle in bundles
        for tree, topic, queue_id, summary in bundle["queues"]
        if (odd := [name for name in _NOTES if name != "ext_units" and summary[name]])
    ]
    return sorted(found, key=lambda queue: str(queue["queue"]))[:MOST_TOLD]


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(map(str.title, rest))
