"""The report of a rebuild or a compaction; making it also stages the result to be published."""

import os
from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from spark_jobs.build.build_index_file import BuiltIndexFile
from spark_jobs.build.build_request import BuildRequest
from spark_jobs.build.moved_log import MovedLog
from spark_jobs.build.place_queues import (
    QueueDetails,
    carry_queues,
    log_extent,
    queue_details,
    queue_notes,
    staged_trees,
)
from spark_jobs.build.rebuild import Rebuilt
from spark_jobs.build.rebuild_request import RebuildRequest
from spark_jobs.compact.compact import Compacted
from spark_jobs.compact.compact_request import CompactRequest
from spark_jobs.compact.index_cost import IndexCost, index_cost
from spark_jobs.convert.convert_request import ConvertRequest
from spark_jobs.convert.new_log import ConvertDetails, MendDetails, NewLog
from spark_jobs.publish.deliver import stage_index
from spark_jobs.publish.mended_config import mend_config, say_topics
from spark_jobs.publish.mended_timers import mend_timers
from spark_jobs.publish.new_config import stage_config
from spark_jobs.publish.new_store import stage_rest
from spark_jobs.publish.publish import Staged
from spark_jobs.run.report import Details, Report
from spark_jobs.run.work_directory import WorkDirectory
from spark_jobs.scan.scan_log import total
from spark_jobs.scan.scan_segment import ScanSummary
from spark_jobs.scan.segment_walk import WalkSummary
from spark_jobs.scan.source import StoreSource
from storage.index.index_file import IndexHeader
from storage.layout.store_layout import CONFIG, INDEX


class ScanDetails(msgspec.Struct, kw_only=True, rename="camel"):
    """The scan of the log: bytes read, the time of all tasks together, and when the first began (s since 1970)."""

    bytes: int
    task_seconds: float
    began: float


class IndexDetails(msgspec.Struct, kw_only=True, omit_defaults=True, rename="camel"):
    """The index files: counts and profile of each, and the names of those that were `built`.

    A rebuild names those that it `kept` and the `reasons` why others were not; a compaction says how many entries it
    `read`, how many it `dropped` for each reason, and what the index cost `before` and costs `after`, where the files
    are on this machine.
    """

    slots: int
    entries: int
    profile: str
    kept: list[str] | None = None
    built: list[str]
    reasons: list[str] | None = None
    read: int | None = None
    before: IndexCost | None = None
    after: IndexCost | None = None
    dropped: dict[str, int] | None = None


class StoreDetails(Details, kw_only=True):
    """What a job says that makes index files or queues: how it read the log, where that ends, and what was made.

    `published` names what took its place in the store, or in --out; `backups` are paths of what it replaced.
    """

    scan: ScanDetails | None = None
    converted: ConvertDetails | None = None
    mended: MendDetails | None = None
    log_end: int | None = None
    index: IndexDetails | None = None
    queues: QueueDetails | None = None
    published: list[str] | None = None
    backups: list[str] | None = None

    @property
    def exit_code(self) -> int:
        """4 where messages are lost, be the log as it is now without damage."""
        log = self.mended or self.converted
        return 4 if log is not None and log.losses.messages else 0


StoreReport: TypeAlias = Report[StoreDetails]


def rebuilt_report(
    request: RebuildRequest, source: StoreSource, work: WorkDirectory, rebuilt: Rebuilt, moved: MovedLog | None = None
) -> tuple[StoreReport, list[Staged]]:
    """Complete in the work directory all that is to be published; returns it, with the report of the rebuild.

    `moved`: the store's own queues are of where records were before.
    """
    report = _report("rebuild", request, source, rebuilt.segments)
    report.damages, report.more_damages = list(rebuilt.log_end.damages), rebuilt.log_end.more_damages
    report.details.log_end = rebuilt.log_end.end
    report.notes += rebuilt.notes
    staged: list[Staged] = []
    if request.index:
        staged += stage_index(request, source, work, rebuilt.kept.names, end_timestamps(rebuilt.index_files))
        report.entries = total(rebuilt.index_files, "entries")
        report.details.index = IndexDetails(
            slots=rebuilt.shape.slots,
            entries=rebuilt.shape.capacity,
            profile=rebuilt.shape.profile,
            kept=list(rebuilt.kept.names),
            built=[file["name"] for file in rebuilt.index_files],
            reasons=list(rebuilt.kept.reasons),
        )
    if rebuilt.queue_plan is not None:
        plan = rebuilt.queue_plan
        log = log_extent(source.segments[0].base_offset, rebuilt.log_end.end, rebuilt.log_end.damages)
        carried = carry_queues(plan, work, rebuilt.queues, log, in_place=request.is_for_store, moved=moved)
        staged += [Staged(tree, work.staged / tree, synced=True) for tree in staged_trees(plan, work)]
        details = queue_details(plan, rebuilt.queues, carried)
        report.details.queues, report.units = details, details.units
        report.notes += queue_notes(plan, details)
        if not request.is_whole_store:
            staged += _stage_config(request, source, work, report)
    return report, staged


def new_store_report(
    command: str, request: ConvertRequest, source: StoreSource, work: WorkDirectory, log: NewLog, rebuilt: Rebuilt
) -> tuple[StoreReport, list[Staged]]:
    """Complete in the work directory the new store; returns what it consists of, with the report of its making."""
    report, built = rebuilt_report(log.rebuild, log.source, work, rebuilt, log.moved)
    is_rescue = command == "rescue"
    names = {each.name for each in built}
    left = stage_rest(source.layout, work, names, log.checkpoint, is_stopped=is_rescue)
    report.command, report.bytes = command, source.size
    report.messages = total(log.segments, "records")
    report.damages, report.more_damages = list(log.log_end.damages), log.log_end.more_damages
    if isinstance(log.details, MendDetails):
        report.details.mended = log.details
    else:
        report.details.converted = log.details
    report.details.log_end = log.details.end
    report.details.scan = _scan_details(log.segments)
    report.notes = [*source.problems, *log.notes, *report.notes]
    _stage_config(request, source, work, report)  # into config/, which is staged by now
    if is_rescue:
        exchanged = mend_config(work.staged / CONFIG)
        said = say_topics(work.staged / CONFIG, work.staged, exchanged)
        report.notes += [*exchanged, *said, *mend_timers(work.staged)]
    if left:
        report.notes.append(f"left out, because it is not known what they hold: {', '.join(left)}")
    return report, [Staged(name, work.staged / name, synced=True) for name in sorted(os.listdir(work.staged))]


def _stage_config(
    request: RebuildRequest, source: StoreSource, work: WorkDirectory, report: StoreReport
) -> list[Staged]:
    """Files of topics, groups and offsets for the broker that gets the queues, where these were in RocksDB."""
    if source.layout.rocksdb_queues is None:
        return []
    if request.without_config:
        report.notes.append("topics, groups and offsets that are in RocksDB were not made files: they stay there")
        return []
    return stage_config(source.layout, work)


def end_timestamps(files: Sequence[BuiltIndexFile]) -> list[int]:
    """When the last entries of index files were stored (ms)."""
    return [IndexHeader(*file["header"]).end_timestamp for file in files]


def compacted_report(
    request: CompactRequest, source: StoreSource, work: WorkDirectory, compacted: Compacted
) -> tuple[StoreReport, list[Staged]]:
    """Complete in the work directory all that is to be published; returns it, with the report of the compaction."""
    report = _report("compact", request, source, compacted.segments)
    report.entries = total(compacted.index_files, "entries")
    report.notes += compacted.notes
    if compacted.log_end is not None:
        report.damages, report.more_damages = list(compacted.log_end.damages), compacted.log_end.more_damages
        report.details.log_end = compacted.log_end.end
    report.details.index = IndexDetails(
        slots=compacted.shape.slots,
        entries=compacted.shape.capacity,
        profile=compacted.shape.profile,
        built=[file["name"] for file in compacted.index_files],
        read=compacted.read,
        dropped=compacted.dropped,
    )
    if source.tree is None and request.sent_to is None:
        report.details.index.before = index_cost(source.layout.index)
        report.details.index.after = index_cost(work.staged / INDEX)
    return report, stage_index(request, source, work, (), end_timestamps(compacted.index_files))


def _report(command: str, request: BuildRequest, source: StoreSource, segments: list[ScanSummary]) -> StoreReport:
    report = Report(
        command=command,
        store=request.store,
        out=request.target,
        details=StoreDetails(),
        notes=list(source.problems),
    )
    if segments:
        report.bytes, report.messages = source.size, total(segments, "records")
        report.details.scan = _scan_details(segments)
    return report


def _scan_details(segments: Sequence[WalkSummary]) -> ScanDetails:
    return ScanDetails(
        bytes=total(segments, "bytes_read"),
        task_seconds=total(segments, "seconds"),
        began=min(summary["began"] for summary in segments),
    )
