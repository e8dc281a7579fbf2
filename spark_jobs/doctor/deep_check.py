"""Compare what a store has with what a rebuild would make of it.

    probe    what is there: where the log ends, and the shapes of index files
    scan     one task a segment: every record with its checksums; what the log leads to, as packed blocks
    check    one task an index file, a task for each bundle of queues: what is there beside what should be; a queue that
             has far more units than others is checked in parts, and what they leave is diagnosed by one task
    gaps     one task for each stretch of the log that no index file covers: is anything missing there?

Scan and blocks are those of a rebuild (:mod:`spark_jobs.build.rebuild`). Nothing of the store is written, and it may be
in use: what a broker is still writing is reported as lag.
"""

import contextlib
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from protocol.system_topics import LIGHT_PREFIX
from spark_jobs.build.build_queues import bundle_count
from spark_jobs.build.exchange import SURVEY
from spark_jobs.build.split_queues import SegmentExtent, SurveyTask, split_queues, survey_queues
from spark_jobs.build.unit_blocks import UnitList, used_bundles
from spark_jobs.doctor._check_tasks import (
    PHASE,
    REST,
    CheckedIndexFile,
    CheckedPart,
    CheckedQueues,
    CheckIndexTask,
    CheckTask,
    GapTask,
    check,
    count_gap,
    found_by,
)
from spark_jobs.doctor._last_reading import keep_reading, since_last
from spark_jobs.doctor._queue_tasks import check_tasks, deal_tree, part_tasks, rest_tasks
from spark_jobs.doctor._read_log import check_log, scan_readable
from spark_jobs.doctor.deep_request import DeepDetails, DeepRequest, IndexNumbers, LogNumbers, QueueNumbers, summed
from spark_jobs.run.attempt import RunTasks, run_phase
from spark_jobs.run.engine import opened_engine
from spark_jobs.run.local_engine import LocalEngine
from spark_jobs.run.progress import JobProgress, Phase
from spark_jobs.run.report import Report
from spark_jobs.run.work_directory import WorkDirectory
from spark_jobs.scan.probe_store import ProbeTask, probe
from spark_jobs.scan.scan_log import ScanOptions, scan_tasks, total
from spark_jobs.scan.scan_segment import PHASE as SCAN
from spark_jobs.scan.scan_segment import ScanSummary
from spark_jobs.scan.source import StoreSource, opened_source
from storage.amounts import counted
from storage.build.queue_plan import QueueKey, QueuePlan
from storage.doctor.finding import Findings, Known, capped, counts_of
from storage.doctor.index.index_files import MissingKeys, ReadFile, UncoveredKeys, check_between_files
from storage.doctor.queues.queue_files import check_queue_ends
from storage.files.own_directories import temporary_directory
from storage.layout.delay_levels import parse_delay_levels

PREFIX: Final = "rocketlens-verify-"
CHECKS: Final = ("index-files", "queues")
TOTAL_LIMIT: Final = 100_000
"""Findings that are listed in all."""


def run_deep_check(
    request: DeepRequest, progress: JobProgress, ahead: LocalEngine | None = None
) -> Report[DeepDetails]:
    """Check a store; raises a RocketLensError without one."""
    started = time.monotonic()
    with (
        opened_source(request.store, request.commit_log_directories, request.storage) as whole,
        _work_directory(request) as work,
        opened_engine("verify", request, work.root, ahead=ahead, tasks=__name__, notify=progress.note) as engine,
    ):
        source, read = since_last(whole) if request.since_last else (whole, "")
        narrowed = msgspec.structs.replace(request, since_last=source is not whole)
        report = DeepCheck(narrowed, source, work, engine.run_tasks, progress).run()
        numbers = report.details
        if numbers.clean and whole.tree is None:
            lags = numbers.log.crashed or numbers.queues.lag > 0 or numbers.index.lag > 0
            keep_reading(whole, numbers.log.end, lags=lags)
    report.notes[:0] = [read] if read else []
    report.seconds = time.monotonic() - started
    return report


@contextlib.contextmanager
def _work_directory(request: DeepRequest) -> Iterator[WorkDirectory]:
    """A new directory, gone afterwards: a store in use is another one the next time."""
    below, shared = Path(request.work or tempfile.gettempdir()), request.works_elsewhere
    with (
        temporary_directory(PREFIX, below, shared=shared) as root,
        contextlib.closing(WorkDirectory.open(root / "work", {"command": "verify"}, shared=shared)) as work,
    ):
        yield work


class DeepCheck:
    """One deep check of one store."""

    def __init__(
        self, request: DeepRequest, source: StoreSource, work: WorkDirectory, run: RunTasks, progress: JobProgress
    ) -> None:
        """Nothing is done yet; `run` runs tasks somewhere."""
        self._request, self._source, self._work = request, source, work
        self._run, self._run_phase = run, partial(run_phase, run, work, progress)
        self._plan = QueuePlan.of(source.layout.root)

    def run(self) -> Report[DeepDetails]:
        """Check the store; returns the report."""
        began = time.monotonic()
        request, source = self._request, self._source
        last_base, index_tasks = self._probe()
        scans = self._scan(last_base)
        verdict = check_log(self._run, self._work, source, scans, request.limit)
        log = msgspec.structs.replace(verdict.table, follows_reading=request.since_last)
        log.write(self._work)
        bundles = bundle_count(source.size)
        scanned = verdict.scans if self._is_compared else []
        units, used = UnitList.leave(self._work, scanned), set(used_bundles(scanned))
        parts = split_queues(self._survey, self._plan, scanned, units, log.end, bundles)
        trees = deal_tree(source.tree, bundles, parts)
        queue_tasks = check_tasks(self._plan, self._work, source, units, used, parts, request.limit)
        tasks: list[CheckTask] = [*index_tasks, *queue_tasks, *part_tasks(queue_tasks, parts, trees)]
        done = self._run_phase(Phase(PHASE, log.entries, "entries"), tasks, check)
        first, behind = len(index_tasks), len(index_tasks) + len(queue_tasks)
        rests = rest_tasks(queue_tasks, parts, cast("list[CheckedPart]", done[behind:]), trees)
        joined = self._run_phase(Phase(REST, len(rests), "entries"), rests, check) if rests else []
        of_files = cast("list[CheckedIndexFile]", done[:first])
        of_bundles = cast("list[CheckedQueues]", [*done[first:behind], *joined])
        self._work.enter("gaps")
        files = [ReadFile.of(each["path"], each["stretch"], each["numbers"]) for each in of_files]
        of_index, of_queues = (Findings(name, Known.READ, request.limit, source.named) for name in CHECKS)
        index = summed(IndexNumbers, check_between_files(source.layout.index, files, log, self._count, of_index))
        counts = [(QueueKey(*key), Counter[str](each)) for record in of_bundles for *key, each in record["queues"]]
        sums, notes = check_queue_ends(self._plan, counts, log, of_queues)
        queues = summed(QueueNumbers, sums)
        if not self._is_compared:
            notes.insert(0, "no queue files: queues of RocksDB are not compared")
        if index.dropped:
            notes.insert(
                0,
                f"compacted index files have no entry for up to {counted(index.dropped, 'key')}: repeated keys, or "
                "those of topics that were left out",
            )
        of_driver = [each for found in (verdict.findings, of_index, of_queues) for each in found.listed()]
        records: list[CheckedIndexFile | CheckedQueues] = [*of_files, *of_bundles]
        of_tasks = (each for record in records for each in found_by(self._work, record))
        findings = capped([*of_driver, *of_tasks], TOTAL_LIMIT)
        return Report(
            command="verify",
            store=request.store,
            out="",
            bytes=total(scans, "bytes_read"),
            messages=total(scans, "records"),
            entries=index.entries,
            units=queues.matched,
            steady_seconds=time.monotonic() - began,
            details=DeepDetails(
                clean=not findings,
                log=LogNumbers(
                    segments=len(scans),
                    minimum=log.minimum,
                    end=log.end,
                    lost_bytes=sum(stop - start for start, stop in log.lost),
                    lag=verdict.lag,
                    live=source.is_live,
                    crashed=source.has_crashed and not source.is_live,
                ),
                queues=queues,
                index=index,
                counts=dict(counts_of(findings)),
                findings=findings,
            ),
            notes=[*source.problems, *map(source.named, self._plan.problems), *notes],
        )

    def _probe(self) -> tuple[int, list[CheckIndexTask]]:
        """The base offset of the last segment that is written to, and the tasks that will check index files."""
        source = self._source
        self._work.enter("probe")
        files = [source.index_file(name) for name in source.index_files]
        probes = [ProbeTask(source.segments, index_file=path, remote=remote) for path, remote in files]
        # Segment heads, and the headers of index files, as a rebuild asks for them.
        answers: list[Any] = self._run("probe", [ProbeTask(source.segments, heads=True), *probes], probe)
        store, *facts = answers
        known = Counter(each["slots"] for each in facts if "slots" in each)
        slots = known.most_common(1)[0][0] if known else 0
        headers = [None, *(each.get("header") for each in facts)]
        return store.last_base, [
            CheckIndexTask(
                work=str(self._work.root),
                path=path,
                remote=remote,
                slots=slots,
                previous=None if header is None else (header[1], header[3]),
                grows=source.is_live and path == files[-1][0],
                limit=self._request.limit,
            )
            for (path, remote), header, own in zip(files, headers, headers[1:], strict=False)
            if not self._request.since_last
            or own is None
            or own[3] >= source.segments[0].base_offset
            or path == files[-1][0]
        ]

    def _scan(self, last_base: int) -> list[ScanSummary]:
        """Read every record."""
        options = ScanOptions(
            entries_from=0,
            checksums_from=0,
            tags=True,
            bundles=bundle_count(self._source.size),
            delays=parse_delay_levels(self._request.delay_levels),
            lmq=self._lmq,
            ext=self._plan.ext,
            batch_topics=tuple(topic.encode() for topic in sorted(self._plan.batch_topics)),
            last_base=last_base,
        )
        tasks = scan_tasks(self._work.root, self._source, options)
        return self._run_phase(Phase(SCAN, self._source.size, "bytes"), tasks, scan_readable)

    def _survey(self, tasks: Sequence[SurveyTask]) -> list[list[list[SegmentExtent] | None]]:
        """Look at queues that may be checked in parts."""
        return self._run(SURVEY, tasks, survey_queues) if tasks else []

    def _count(self, gaps: Sequence[UncoveredKeys]) -> list[MissingKeys]:
        """Have the keys of gaps counted by tasks."""
        return self._run("gaps", [GapTask(str(self._work.root), gap) for gap in gaps], count_gap)

    @property
    def _is_compared(self) -> bool:
        """Whether there are files of queues to compare."""
        return self._source.layout.rocksdb_queues is None or bool(self._plan.existing)

    @property
    def _lmq(self) -> bool:
        """Whether units of light queues are compared: not where RocksDB alone may have these queues."""
        files = any(key.topic.startswith(LIGHT_PREFIX) for key in self._plan.existing)
        return self._plan.lmq if self._source.layout.rocksdb_queues is None else files
