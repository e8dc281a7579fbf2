"""Judge the ends of all queues together: which of them lag, and which lack units."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple

from spark_jobs.build.split_queues import QueueName
from spark_jobs.build.unit_blocks import UnitList, used_bundles
from spark_jobs.doctor.check_queues import CheckedQueues, CheckQueuesTask
from spark_jobs.doctor.deep_request import QueueNumbers
from spark_jobs.doctor.queue_parts import Parts, queue_entries
from spark_jobs.doctor.work_files import LogTable
from spark_jobs.places.remote_tree import RemoteEntry, RemoteTree
from spark_jobs.run.work_directory import WorkDirectory
from spark_jobs.scan.scan_segment import ScanSummary, bundle_of
from storage.amounts import counted
from storage.build.queue_plan import QueueKey, QueuePlan
from storage.doctor.finding import Findings, FoundAt, Kind
from storage.layout.store_layout import CONSUME_QUEUE, CONSUME_QUEUE_EXT

MOST_NAMED: Final = 20


class CheckOptions(NamedTuple):
    """How queues are checked: how many `bundles` there are, and the `limit` of findings of a kind listed of each file.

    `tree` is the listing of a store behind a URL, `parts` are queues that are checked in parts.
    """

    bundles: int
    limit: int
    tree: RemoteTree | None
    parts: Parts


def check_tasks(
    plan: QueuePlan, work: WorkDirectory, scans: Sequence[ScanSummary], units: UnitList, options: CheckOptions
) -> list[CheckQueuesTask]:
    """A task for each bundle that has units, or queues in the store."""
    bundles, limit, tree, parts = options
    existing: list[list[tuple[str, str, int]]] = [[] for _ in range(bundles)]
    for key in sorted(plan.existing):
        if key.tree != CONSUME_QUEUE or (key.topic.encode(), key.queue_id) not in parts:
            existing[bundle_of(key.topic.encode(), key.queue_id, bundles)].append((key.tree, key.topic, key.queue_id))
    apart: list[list[QueueName]] = [[] for _ in range(bundles)]
    for name in sorted(parts):
        apart[bundle_of(*name, bundles)].append(name)
    used = set(used_bundles(scans))
    trees = [None] * bundles if tree is None else deal_tree(tree, bundles, parts)
    has_ext = (plan.root / CONSUME_QUEUE_EXT).is_dir()
    return [
        CheckQueuesTask(
            work=str(work.root),
            store=str(plan.root) if tree is None else tree.url,
            tree=trees[bundle],
            bundle=bundle,
            units=units,
            existing=tuple(queues),
            ext=has_ext,
            limit=limit,
            apart=tuple(apart[bundle]),
        )
        for bundle, queues in enumerate(existing)
        if bundle in used or queues
    ]


def deal_tree(tree: RemoteTree, bundles: int, apart: Collection[QueueName]) -> list[RemoteTree | None]:
    """The files of each bundle's queues, of those of a store behind a URL, but for those of plain queues `apart`."""
    dealt: list[list[RemoteEntry]] = [[] for _ in range(bundles)]
    for place, name, each in queue_entries(tree):
        if place != CONSUME_QUEUE or name not in apart:
            dealt[bundle_of(*name, bundles)].append(each)
    return [RemoteTree(tree.url, tree.storage, tuple(files)) for files in dealt]


def judge_queues(
    plan: QueuePlan, summaries: Sequence[CheckedQueues], log: LogTable, findings: Findings
) -> tuple[QueueNumbers, list[str]]:
    """Report what queues lack at their ends; return the sums for the report, and notes."""
    queues = [(QueueKey(*names), Counter[str](counts)) for summary in summaries for *names, counts in summary["queues"]]
    sums: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    # One thread dispatches all messages in their order: behind the last unit of all, units are not missing but late.
    dispatched = -1 if log.is_live else max((counts["last_matched"] for _, counts in queues), default=-1)
    for key, counts in queues:
        sums.update(counts)
        missing = counts["missing_at_end"]
        if missing and key not in plan.existing and plan.is_unknown(key.topic):
            unknown[key.topic] += missing
        elif missing and log.may_lag and counts["first_missing"] > dispatched:
            sums["lag"] += missing
        elif missing:
            at = FoundAt(plan.root / key.path, physical_offset=counts["first_missing"])
            found = "the end of the queue" if key in plan.existing else "no such queue"
            findings.note(Kind.MISSING_UNIT, at, f"{counted(missing, 'unit')} at the end", found, missing)
    for key in sorted(plan.misplaced):
        expected = "a queue of the kind that topics.json gives its topic, as a broker needs to start"
        findings.note(Kind.FILE, FoundAt(plan.root / key.path), expected, f"one in {key.tree}")
    sums.update(queues=len(queues), deleted_topics=unknown.total())
    numbers = QueueNumbers(**{name: sums[name] for name in QueueNumbers.__struct_fields__})
    return numbers, list(_notes(sums, unknown))


def _notes(sums: Counter[str], unknown: Counter[str]) -> Iterator[str]:
    """Notes on what is unusual and yet not wrong."""
    if sums["other_delays"]:
        yield (
            f"the delivery times of {counted(sums['other_delays'], 'unit')} of the schedule topic do not follow from "
            "these delay levels; give those of the broker with --delay-levels"
        )
    if unknown:
        named = ", ".join(sorted(unknown)[:MOST_NAMED]) + (", …" if len(unknown) > MOST_NAMED else "")
        yield f"{counted(unknown.total(), 'message')} of topics that have no queues and are not in topics.json: {named}"
    if sums["stand_ins"]:
        yield f"{counted(sums['stand_ins'], 'unit')} in place of lost messages"
