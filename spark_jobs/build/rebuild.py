"""Rebuild index files and queues of a store from its log: probe, scan, place, build.

    probe    what is there: first records of segments, the index files that could stay
    scan     one task a segment: entries and queue units as packed blocks
    place    running counts say which entries go into which file; where the log ends is settled
    build    one task an index file, and a task for each bundle of queues

Everything but counting is done by the tasks of an engine. They leave what they finished in the work directory, so that
a job that was killed goes on from there. What was built is named and made visible by :mod:`spark_jobs.publish.deliver`.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from msgspec.structs import replace

from spark_jobs.build.build_index_file import BuildIndexTask, BuiltIndexFile
from spark_jobs.build.build_queues import BuildQueuesTask, BuiltQueues, bundle_count, join_parts
from spark_jobs.build.chosen_names import PLACE, choose_names, zone_of_names
from spark_jobs.build.exchange import BuildTask, Exchange
from spark_jobs.build.kept_index import IndexShapeWanted, KeptIndex, choose_shape, keep_below, keep_index
from spark_jobs.build.moved_log import MovedLog
from spark_jobs.build.place_entries import cut_blocks, entry_tables, has_record_behind, place
from spark_jobs.build.place_queues import log_extent, queue_tasks
from spark_jobs.build.rebuild_request import RebuildRequest
from spark_jobs.build.unit_blocks import unit_count
from spark_jobs.run.engine import Engine
from spark_jobs.run.work_directory import WorkDirectory
from spark_jobs.scan.log_end import LogEnd, find_log_end
from spark_jobs.scan.scan_log import Probed, ScanOptions, probe_source
from spark_jobs.scan.scan_segment import ScanSummary
from spark_jobs.scan.source import StoreSource
from storage.build.queue_plan import QueueOptions, QueuePlan
from storage.layout.delay_levels import parse_delay_levels
from storage.layout.store_layout import INDEX


@dataclass
class Rebuilt:
    """What a job built, before it is published: summaries of segments, index files and bundles of queues, in order.

    `options` are those of the scan.
    """

    segments: list[ScanSummary]
    log_end: LogEnd
    shape: IndexShapeWanted
    kept: KeptIndex
    options: ScanOptions
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
        engine: Engine,
        exchange: Exchange,
        moved: MovedLog | None = None,
        *,
        checks_all: bool = False,
    ) -> None:
        """Prepare a rebuild; nothing is read yet. `moved`: the store's own queues are of where records were before.

        `checks_all`: bodies are held against their checksums everywhere, not only where a broker's recovery reads.
        """
        self._request, self._source, self._work = request, source, work
        self._engine, self._exchange, self._moved, self._checks_all = engine, exchange, moved, checks_all
        self._queue_plan = plan_queues(request, source.layout.root) if request.queues else None

    def run(self) -> Rebuilt:
        """Rebuild, up to finished files in the work directory."""
        return self.build(self.scan())

    def scan(self) -> Rebuilt:
        """Read the log, and settle where it ends."""
        request, source = self._request, self._source
        self._work.enter("probe")
        probed = probe_source(
            self._engine, source, index=request.index, slots=request.slots, queues_stay=not request.queues
        )
        shape = choose_shape(probed.index_files, profile=request.profile, slots=request.slots, capacity=request.entries)
        kept = self._keep(probed, shape)
        self._zone = zone_of_names(request.zone, probed.index_files)
        options = self._scan_options(probed, shape, kept)
        segments = self._exchange.scan(source, options)
        self._work.enter(PLACE)
        log_end = find_log_end(segments, probed.recovery_start if request.is_for_store else None)
        return Rebuilt(segments, log_end, shape, kept, options)

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
            checksums_from=0 if self._checks_all else probed.recovery_start,
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

    def build(self, rebuilt: Rebuilt) -> Rebuilt:
        """Build index files and queues of what was read, in one go, so that no core waits for the last of either."""
        index_tasks = self._index_tasks(rebuilt) if self._request.index else []
        queue_tasks = self._queue_tasks(rebuilt)
        tasks: list[BuildTask] = [*index_tasks, *queue_tasks]
        amount = sum(task.placed.entries for task in index_tasks)
        amount += unit_count(rebuilt.segments) if queue_tasks else 0
        built = self._exchange.build(tasks, amount)
        rebuilt.index_files = cast("list[BuiltIndexFile]", built[: len(index_tasks)])
        rebuilt.queues = join_parts(cast("list[BuiltQueues]", built[len(index_tasks) :]))
        return rebuilt

    def _queue_tasks(self, rebuilt: Rebuilt) -> list[BuildQueuesTask]:
        rebuilt.queue_plan = self._queue_plan
        if self._queue_plan is None:
            return []
        log = log_extent(self._source.segments[0].base_offset, rebuilt.log_end.end, rebuilt.log_end.damages)
        bundles = bundle_count(self._source.size)
        return queue_tasks(
            self._exchange.survey, self._queue_plan, self._work, rebuilt.segments, log, bundles, self._moved
        )

    def _index_tasks(self, rebuilt: Rebuilt) -> list[BuildIndexTask]:
        blocks = entry_tables(self._work, rebuilt.segments)
        kept, shape, end = rebuilt.kept, rebuilt.shape, rebuilt.log_end.end
        ask = self._exchange.ask
        pieces = cut_blocks(blocks, kept.boundary, end, ask)
        placed = place(pieces, shape.capacity - 1, has_record_behind(blocks, pieces, kept.boundary, end, ask))
        directory = self._work.staged / INDEX
        directory.mkdir(exist_ok=True)
        above = kept.names[-1] if kept.names else ""
        names = choose_names(self._work, placed, self._zone, kept.seed, above=above, ask=ask)
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


def plan_queues(request: RebuildRequest, root: Path) -> QueuePlan:
    """Plan the queues of a store after a rebuild; raises as QueuePlan.of."""
    options = QueueOptions(
        topics=frozenset(request.topics),
        drop_unknown_topics=request.drop_unknown_topics,
        lmq=request.lmq,
        ext=request.ext,
        consume_queue_file_size=request.queue_file_size,
        batch_file_size=request.batch_queue_file_size,
        ext_file_size=request.ext_file_size,
        guess=True,
    )
    return QueuePlan.of(root, options)
