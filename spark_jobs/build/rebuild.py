"""Rebuild index files and queues of a store from its log: probe, scan, place, build.

    probe    what is there: first records of segments, the index files that could stay
    scan     one task a segment: entries and queue units as packed blocks
    place    running counts say which entries go into which file; where the log ends is settled
    build    one task an index file, and a task for each bundle of queues

Everything but counting is done by Spark's tasks. They leave what they finished in the work directory, so that a job
that was killed goes on from there. What was built is named and made visible by :mod:`spark_jobs.publish.deliver`.
"""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from msgspec.structs import replace

from spark_jobs.build.build_index_file import PHASE, BuildIndexTask, BuiltIndexFile, build_index_file, take_index_file
from spark_jobs.build.build_queues import (
    BuildQueuesTask,
    BuiltQueues,
    build_queues,
    bundle_count,
    join_parts,
    take_queues,
)
from spark_jobs.build.chosen_names import PLACE, choose_names, zone_of_names
from spark_jobs.build.kept_index import IndexShapeWanted, KeptIndex, choose_shape, keep_below, keep_index
from spark_jobs.build.place_entries import cut_blocks, entry_tables, has_record_behind, place
from spark_jobs.build.place_queues import log_extent, queue_tasks
from spark_jobs.build.rebuild_request import RebuildRequest
from spark_jobs.build.unit_blocks import unit_count
from spark_jobs.run.attempt import run_phase
from spark_jobs.run.progress import JobProgress, Phase
from spark_jobs.run.session import run_tasks
from spark_jobs.run.work_directory import WorkDirectory
from spark_jobs.scan.log_end import LogEnd, find_log_end
from spark_jobs.scan.scan_log import Probed, ScanOptions, probe_source, scan_log
from spark_jobs.scan.scan_segment import ScanSummary
from spark_jobs.scan.source import StoreSource
from storage.build.queue_plan import QueueOptions, QueuePlan
from storage.layout.store_layout import INDEX
from storage.life.delay_levels import parse_delay_levels

if TYPE_CHECKING:  # pyspark takes long to import: it is when a session starts
    from pyspark import SparkContext


@dataclass
class Rebuilt:
    """What a job built, before it is published: summaries of segments, index files and bundles of queues, in order."""

    segments: list[ScanSummary]
    log_end: LogEnd
    shape: IndexShapeWanted
    kept: KeptIndex
    index_files: list[BuiltIndexFile] = field(default_factory=list)
    queues: list[BuiltQueues] = field(default_factory=list)
    queue_plan: QueuePlan | None = None
    notes: list[str] = field(default_factory=list)


class Rebuild:
    """One rebuild of one store."""

    def __init__(
        self,
        request: RebuildRequest,
        source: StoreSource,
        work: WorkDirectory,
        context: "SparkContext",
        progress: JobProgress,
    ) -> None:
        """Prepare a rebuild; nothing is read yet."""
        self._request, self._source, self._work = request, source, work
        self._context, self._progress = context, progress
        self._queue_plan = _queue_plan(request, source.layout.root) if request.queues else None

    def run(self) -> Rebuilt:
        """Rebuild, up to finished files in the work directory."""
        request, source = self._request, self._source
        self._work.enter("probe")
        probed = probe_source(
            self._context, source, index=request.index, slots=request.slots, queues_stay=not request.queues
        )
        shape = choose_shape(probed.index_files, profile=request.profile, slots=request.slots, capacity=request.entries)
        kept = self._keep(probed, shape)
        self._zone = zone_of_names(request.zone, probed.index_files)
        options = self._scan_options(probed, shape, kept)
        segments = scan_log(self._context, self._work, source, options, self._progress)
        self._work.enter(PLACE)
        log_end = find_log_end(segments, probed.recovery_start if request.is_for_store else None)
        rebuilt = Rebuilt(segments, log_end, shape, kept)
        self._build(rebuilt)
        return rebuilt

    def _keep(self, probed: Probed, shape: IndexShapeWanted) -> KeptIndex:
        """Choose the index files that stay; with --from-offset, all that end below that offset."""
        if not self._request.index:
            return KeptIndex((), None, None, ())
        minimum = self._source.segments[0].base_offset
        kept = keep_index(probed.index_files, shape, probed.first_entries[shape.tags], minimum)
        start = self._request.from_offset
        return kept if start is None else keep_below(kept, probed.index_files, start)

    def _scan_options(self, probed: Probed, shape: IndexShapeWanted, kept: KeptIndex) -> ScanOptions:
        request, plan = self._request, self._queue_plan
        entries_from = kept.boundary.physical_offset if kept.boundary else 0
        options = ScanOptions(
            entries_from=entries_from if request.index else None,
            checksums_from=probed.recovery_start,
            tags=shape.tags,
            last_base=probed.last_base,
        )
        if plan is None:
            return options
        return replace(
            options,
            bundles=bundle_count(self._source.size),
            delays=parse_delay_levels(request.delay_levels),
            lmq=plan.lmq,
            ext=plan.ext,
            batch_topics=tuple(sorted(topic.encode() for topic in plan.batch_topics)),
        )

    def _build(self, rebuilt: Rebuilt) -> None:
        """Build index files and queues in one go, so that no core waits for the last of either."""
        index_tasks = self._index_tasks(rebuilt) if self._request.index else []
        queue_tasks = self._queue_tasks(rebuilt)
        tasks: list[BuildIndexTask | BuildQueuesTask] = [*index_tasks, *queue_tasks]
        amount = sum(task.placed.entries for task in index_tasks)
        amount += unit_count(rebuilt.segments) if queue_tasks else 0
        run = partial(run_tasks, self._context)
        built = run_phase(run, self._work, self._progress, Phase(PHASE, amount, "entries"), tasks, build)
        rebuilt.index_files = cast("list[BuiltIndexFile]", built[: len(index_tasks)])
        rebuilt.queues = cast("list[BuiltQueues]", built[len(index_tasks) :])
        for task, made in zip(index_tasks, rebuilt.index_files, strict=True):
            take_index_file(task, made)
        for bundle in rebuilt.queues:
            take_queues(self._work, bundle)
        rebuilt.queues = join_parts(rebuilt.queues)

    def _queue_tasks(self, rebuilt: Rebuilt) -> list[BuildQueuesTask]:
        rebuilt.queue_plan = self._queue_plan
        if self._queue_plan is None:
            return []
        log = log_extent(self._source.segments[0].base_offset, rebuilt.log_end.end, rebuilt.log_end.damages)
        run, bundles = partial(run_tasks, self._context), bundle_count(self._source.size)
        return queue_tasks(run, self._queue_plan, self._work, rebuilt.segments, log, bundles)

    def _index_tasks(self, rebuilt: Rebuilt) -> list[BuildIndexTask]:
        blocks = entry_tables(self._work, rebuilt.segments)
        kept, shape, end = rebuilt.kept, rebuilt.shape, rebuilt.log_end.end
        pieces = cut_blocks(blocks, kept.boundary, end)
        placed = place(pieces, shape.capacity - 1, has_record_behind(blocks, pieces, kept.boundary, end))
        directory = self._work.staged / INDEX
        directory.mkdir(exist_ok=True)
        names = choose_names(self._work, placed, self._zone, kept.seed, above=kept.names[-1] if kept.names else "")
        return [
            BuildIndexTask(
                work=str(self._work.root),
                number=number,
                path=str(directory / name),
                slots=shape.slots,
                capacity=shape.capacity,
                placed=file,
                seed=kept.seed,
            )
            for number, (file, name) in enumerate(zip(placed, names, strict=True))
        ]


def build(task: BuildIndexTask | BuildQueuesTask) -> BuiltIndexFile | BuiltQueues:
    """Run a task of either kind."""
    return build_index_file(task) if isinstance(task, BuildIndexTask) else build_queues(task)


def _queue_plan(request: RebuildRequest, root: Path) -> QueuePlan:
    options = QueueOptions(
        topics=frozenset(request.topics),
        drop_unknown_topics=request.drop_unknown_topics,
        lmq=request.lmq,
        ext=request.ext,
        consume_queue_file_size=request.queue_file_size,
        batch_file_size=request.batch_queue_file_size,
        ext_file_size=request.ext_file_size,
    )
    return QueuePlan.of(root, options)
