"""Compare bundles of queues with the log by tasks: every unit, and every message that should have one.

A rebuild's blocks of units come in the order of the log, so each queue's messages do: :mod:`storage.doctor.queues`
takes them as they come. Memory: a block, and what those checks keep.
"""

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from spark_jobs.build.build_queues import HELD_BYTES
from spark_jobs.build.unit_blocks import QueueRun, UnitList, queue_runs
from spark_jobs.doctor.deep_request import QueueNumbers
from spark_jobs.doctor.work_files import LogTable, save_findings
from spark_jobs.places.remote_tree import HollowCopy, RemoteTree, named_as
from spark_jobs.run.attempt import Attempt, AttemptRecord, Notify, run_attempt
from storage.amounts import counted
from storage.build.queue_plan import QueueKey, QueuePlan
from storage.doctor.finding import Findings, FoundAt, Kind, Known
from storage.doctor.queues.clean_front import CleanFront
from storage.doctor.queues.queue_check import QueueCheck
from storage.doctor.queues.unit_files import KINDS, UnitFiles
from storage.layout.store_layout import CONSUME_QUEUE_EXT

MOST_NAMED: Final = 20
"""Topics without queues that a note names."""

PHASE: Final = "check"
REST: Final = "rest"


class CheckQueuesTask(msgspec.Struct, frozen=True):
    """A bundle: the files with its blocks, and the queues (tree, topic, queue id) that the store has of it.

    `store` is its directory or its URL; of one behind a URL `tree` has the files of these queues. `apart` are queues
    (topic, queue id) that are checked in parts; with `rest` the one of `existing` is such a queue, the one of a number,
    and only what lies outside of the front that is known is checked; of its files behind a URL those are fetched that
    are read for that.
    """

    work: str
    store: str
    tree: RemoteTree | None
    bundle: int
    units: UnitList
    existing: tuple[tuple[str, str, int], ...]
    ext: bool
    limit: int
    apart: tuple[tuple[bytes, int], ...] = ()
    rest: CleanFront | None = None
    rest_number: int = -1

    @property
    def name(self) -> str:
        """The task's name."""
        if self.rest is not None:
            return f"{REST}-queue-{self.rest_number:05d}"
        return f"{PHASE}-queues-{self.bundle:05d}"

    def has(self, run: QueueRun) -> bool:
        """Whether messages are to be checked."""
        if self.rest is None:
            return run.name not in self.apart
        [names] = self.existing
        return run.key == QueueKey(*names) and (run.first >= self.rest.end or not self.rest.last)


class CheckedQueues(AttemptRecord):
    """The queues of a bundle: tree, topic, queue id and numbers of each, and how many findings it left (`found`)."""

    queues: list[list[Any]]
    found: int


def check_queue_units(task: CheckQueuesTask) -> CheckedQueues:
    """Check the queues of a bundle, side by side."""

    def check(attempt: Attempt, notify: Notify) -> CheckedQueues:
        kept = attempt.partial
        kept.mkdir()
        root, fill = placed(task.tree, task.store, kept / "copies", hollow=task.rest is not None)
        log, named = LogTable.read(attempt.work), named_as(root, task.store)

        def begin_check(key: QueueKey) -> QueueCheck:
            findings = Findings("queues", Known.READ, task.limit, named)
            files = UnitFiles(root / key.path, *KINDS[key.tree], fill)
            return QueueCheck(files, key, kept, log, findings, task.rest)

        queues = _put_messages(task, log.end, begin_check, notify)
        ext = root / CONSUME_QUEUE_EXT if task.ext else None
        numbers = [[key.tree, key.topic, key.queue_id, queues[key].finish(ext)] for key in sorted(queues)]
        findings = [each for key in sorted(queues) for each in queues[key].findings.listed()]
        shutil.rmtree(kept)
        return {"queues": numbers, "found": save_findings(findings, attempt)}

    return run_attempt(task.work, task.name, check)


def placed(tree: RemoteTree | None, store: str, copies: Path, *, hollow: bool) -> tuple[Path, Callable[[Path], None]]:
    """The directory with the files of queues, and what has the content of a file: those behind a URL are copied.

    Copies that are `hollow` are filled when they are read.
    """
    if tree is None:
        return Path(store), lambda _: None
    if hollow:
        return copies, HollowCopy(tree, copies).fill
    tree.fetch(copies)
    return copies, lambda _: None


def _put_messages(
    task: CheckQueuesTask, end: int, begin_check: Callable[[QueueKey], QueueCheck], notify: Notify
) -> dict[QueueKey, QueueCheck]:
    """Give each queue's check the messages of the queue, in their order; queues without messages are checked, too."""
    queues: dict[QueueKey, QueueCheck] = {}
    units = held = 0
    for block in task.units.blocks(task.bundle, end):
        for run in filter(task.has, queue_runs(block, end)):
            queue = queues[run.key] = queues.get(run.key) or begin_check(run.key)
            held += queue.put(run.first, run.units, run.timestamps)
            units += len(run.units) // queue.files.dtype.itemsize
        if held > HELD_BYTES:
            for queue in queues.values():
                queue.flush()
            held = 0
        notify(units, units)
    without = {QueueKey(*names) for names in task.existing} - queues.keys()
    return queues | {key: begin_check(key) for key in without}


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
