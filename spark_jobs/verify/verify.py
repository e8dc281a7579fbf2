"""Verify a store: every record, every queue unit and every index entry, each against the others.

    measure  one task an index file: its counts
    scan     one task a segment: every record with its checksums; what the log leads to, as packed blocks
    check    one task an index file, a task for each bundle of queues: what is there beside what should be
    gaps     one task for each stretch of the log that no index file covers: is anything missing there?

Nothing of the store is written, and it may be in use: what a broker is still writing is told as lag.
"""

import contextlib
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final, cast

from spark_jobs.build.build_queues import bundle_count
from spark_jobs.run.attempt import RunTasks, block_file, run_phase
from spark_jobs.run.launch import Launch
from spark_jobs.run.progress import JobProgress, Phase
from spark_jobs.run.report import Report
from spark_jobs.run.session import run_tasks, spark_context
from spark_jobs.run.work_directory import WorkDirectory
from spark_jobs.scan.probe_store import ProbeTask, StoreHeads, probe
from spark_jobs.scan.scan_log import ScanOptions, scan_tasks, total
from spark_jobs.scan.scan_segment import PHASE as SCAN
from spark_jobs.scan.scan_segment import ScanSummary
from spark_jobs.scan.source import StoreSource, find_source
from spark_jobs.verify.check_index_entries import (
    CheckedIndexFile,
    MeasureIndexTask,
    check_index_file,
    count_gap,
    measure_index_file,
)
from spark_jobs.verify.check_index_structure import CheckIndexTask
from spark_jobs.verify.check_queue_units import PHASE as CHECK
from spark_jobs.verify.check_queue_units import CheckedQueues, CheckQueuesTask, check_queue_units
from spark_jobs.verify.findings import FINDINGS, TOTAL_LIMIT, Discrepancies, Discrepancy, load_findings
from spark_jobs.verify.judge_index import find_gaps, judge_index
from spark_jobs.verify.judge_queues import check_tasks, judge_queues
from spark_jobs.verify.log_table import LogTable
from spark_jobs.verify.verify_log import LogVerdict, judge_log, scan_readable
from spark_jobs.verify.verify_request import IndexNumbers, LogNumbers, QueueNumbers, VerifyDetails, VerifyRequest
from storage.build.queue_plan import QueuePlan
from storage.layout.store_layout import dledger_refused
from storage.life.delay_levels import parse_delay_levels

PREFIX: Final = "rocketlens-verify-"


def run_verify(request: VerifyRequest, progress: JobProgress, launch: Launch | None = None) -> Report[VerifyDetails]:
    """Verify a store; raises a RocketLensError where there is none."""
    started = time.monotonic()
    source = find_source(Path(request.store), tuple(map(Path, request.commit_log_directories)))
    with (
        _work_directory(request) as work,
        spark_context("verify", request.master, work.root, request.settings, launch=launch, warm=__name__) as context,
    ):
        report = Verification(request, source, work, partial(run_tasks, context), progress).run()
    report.seconds = time.monotonic() - started
    return report


@contextlib.contextmanager
def _work_directory(request: VerifyRequest) -> Iterator[WorkDirectory]:
    """A new directory, gone afterwards: a store in use is another one the next time."""
    if request.work is not None:
        Path(request.work).mkdir(parents=True, exist_ok=True)
    root = Path(tempfile.mkdtemp(prefix=PREFIX, dir=request.work))
    try:
        yield WorkDirectory.open(root / "work", {"command": "verify"}, fresh=True)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def check(task: CheckIndexTask | CheckQueuesTask) -> CheckedIndexFile | CheckedQueues:
    """Run a task of either kind: they share one Spark job, so that no core waits for the last of one."""
    return check_index_file(task) if isinstance(task, CheckIndexTask) else check_queue_units(task)


class Verification:
    """One verification of one store."""

    def __init__(
        self, request: VerifyRequest, source: StoreSource, work: WorkDirectory, run: RunTasks, progress: JobProgress
    ) -> None:
        """Nothing is done yet; `run` runs tasks somewhere."""
        self._request, self._source, self._work = request, source, work
        self._run, self._progress = run, progress
        self._run_phase = partial(run_phase, run, work, progress)
        self._plan = QueuePlan.of(source.layout.root)
        self._bundles = bundle_count(source.size)

    def run(self) -> Report[VerifyDetails]:
        """Verify the store; returns the report."""
        began = time.monotonic()
        index_tasks = self._measure()
        scans = self._scan()
        verdict = judge_log(self._run, self._work, self._source, scans, self._request.limit)
        verdict.table.write(self._work)
        queue_tasks = check_tasks(self._plan, self._work, verdict.scans, self._bundles, self._request.limit)
        summaries = self._check(index_tasks, queue_tasks, verdict.table)
        between = Discrepancies(self._request.limit)
        files = cast("list[CheckedIndexFile]", summaries[: len(index_tasks)])
        bundles = cast("list[CheckedQueues]", summaries[len(index_tasks) :])
        index = self._judge_index(files, verdict.table, between)
        queues, notes = judge_queues(self._plan, bundles, verdict.table, between)
        findings = [verdict.findings, between]
        report = self._report(scans, verdict, index, queues, summaries, findings)
        report.notes += notes
        report.steady_seconds = time.monotonic() - began
        return report

    def _measure(self) -> list[CheckIndexTask]:
        """Look at heads and index files; the tasks that will check these."""
        self._work.enter("measure")
        probed = self._run("probe", [ProbeTask(self._source.segments, heads=True)], probe)
        store = cast("StoreHeads", probed[0])
        if store.is_dledger:
            raise dledger_refused(self._source.layout.root)
        self._last_base = store.last_base
        paths = [str(self._source.layout.index / name) for name in self._source.index_files]
        shapes = self._run("measure", [MeasureIndexTask(path) for path in paths], measure_index_file)
        known = Counter(shape.slots for shape in shapes if shape.slots)
        slots = known.most_common(1)[0][0] if known else 0
        ends = [None, *(shape.end for shape in shapes)]
        return [
            CheckIndexTask(
                work=str(self._work.root),
                path=path,
                slots=slots,
                previous=end,
                grows=self._source.is_live and path == paths[-1],
                limit=self._request.limit,
            )
            for path, end in zip(paths, ends, strict=False)
        ]

    def _scan(self) -> list[ScanSummary]:
        """Read every record."""
        options = ScanOptions(
            entries_from=0,
            checksums_from=0,
            tags=True,
            bundles=self._bundles,
            delays=parse_delay_levels(self._request.delay_levels),
            lmq=self._plan.lmq,
            ext=self._plan.ext,
            batch_topics=tuple(topic.encode() for topic in sorted(self._plan.batch_topics)),
            last_base=self._last_base,
        )
        tasks = scan_tasks(self._work.root, self._source, options)
        return self._run_phase(Phase(SCAN, self._source.size, "bytes"), tasks, scan_readable)

    def _check(
        self, index_tasks: Sequence[CheckIndexTask], queue_tasks: Sequence[CheckQueuesTask], log: LogTable
    ) -> list[CheckedIndexFile | CheckedQueues]:
        """Check index files and queues."""
        tasks: list[CheckIndexTask | CheckQueuesTask] = [*index_tasks, *queue_tasks]
        return self._run_phase(Phase(CHECK, int(log.ranks[-1]), "entries"), tasks, check)

    def _judge_index(
        self, summaries: Sequence[CheckedIndexFile], log: LogTable, findings: Discrepancies
    ) -> IndexNumbers:
        """How the files fit together."""
        self._work.enter("gaps")
        gaps = find_gaps(self._work.root, self._source.layout.index, summaries, log)
        answers = self._run("gaps", [gap.task for gap in gaps], count_gap)
        return judge_index(self._source.layout.index, summaries, list(zip(gaps, answers, strict=True)), log, findings)

    def _report(
        self,
        scans: Sequence[ScanSummary],
        verdict: LogVerdict,
        index: IndexNumbers,
        queues: QueueNumbers,
        summaries: Sequence[CheckedIndexFile | CheckedQueues],
        findings: Sequence[Discrepancies],
    ) -> Report[VerifyDetails]:
        listed, counts = self._collect(summaries, findings)
        table = verdict.table
        return Report(
            command="verify",
            store=self._request.store,
            out="",
            bytes=total(scans, "bytes_read"),
            messages=total(scans, "records"),
            entries=index.entries,
            units=queues.matched,
            details=VerifyDetails(
                clean=not counts,
                log=LogNumbers(
                    segments=len(scans),
                    minimum=table.minimum,
                    end=table.end,
                    lost_bytes=sum(stop - start for start, stop in table.lost),
                    lag=verdict.lag,
                    live=self._source.is_live,
                    crashed=self._source.has_crashed and not self._source.is_live,
                ),
                queues=queues,
                index=index,
                counts=dict(counts),
                findings=listed,
                more_findings=counts.total() - len(listed),
            ),
            notes=[*self._source.problems, *self._plan.problems, *_index_notes(index)],
        )

    def _collect(
        self, summaries: Sequence[CheckedIndexFile | CheckedQueues], findings: Sequence[Discrepancies]
    ) -> tuple[list[Discrepancy], Counter[str]]:
        """What all tasks found, as far as it is listed, and how much of each kind there is."""
        listed = [finding for each in findings for finding in each.listed]
        counts: Counter[str] = Counter()
        for each in findings:
            counts += each.counts
        for summary in summaries:
            counts.update(summary["counts"])
            if len(listed) < TOTAL_LIMIT and summary["counts"]:
                listed += load_findings(block_file(self._work, summary, FINDINGS))
        return listed[:TOTAL_LIMIT], +counts


def _index_notes(index: IndexNumbers) -> Iterator[str]:
    if index.dropped:
        yield (
            f"up to {index.dropped} keys have no entry in compacted index files: repeated ones, or such of topics "
            "that were left out"
        )
