"""The tasks of a compaction, made from what is known of the store and from what earlier tasks have left.

Nothing here opens a file of the store.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spark_jobs.build.build_index_file import BuildIndexTask, IndexHole
from spark_jobs.build.kept_index import IndexShapeWanted
from spark_jobs.build.place_entries import Piece, PlacedFile, cut_blocks, entry_tables, place
from spark_jobs.compact.compact_request import CompactRequest
from spark_jobs.compact.complete_index import complete_files, holes_of
from spark_jobs.compact.log_cells import CELL_BYTES, cut_log, segment_limit
from spark_jobs.compact.merge_entries import CellBlock, CellRuns, MergeSummary, MergeTask
from spark_jobs.compact.split_index_file import UNKNOWN, SplitSummary, SplitTask
from spark_jobs.compact.timed_block import TimedBlock
from spark_jobs.run.attempt import block_file
from spark_jobs.run.work_directory import WorkDirectory
from spark_jobs.scan.probe_store import IndexFileFacts, SegmentPlace
from spark_jobs.scan.scan_segment import ENTRIES, ScanSummary
from spark_jobs.scan.source import StoreSource
from storage.index.index_file import IndexHeader


def split_tasks(
    work: WorkDirectory, source: StoreSource, checks: Sequence[IndexFileFacts], shape: IndexShapeWanted
) -> list[SplitTask]:
    """A task for each index file; `checks` are what probing said of them, in order.

    A file whose shape is not known is taken to have the slots of the others and the entries of its header.
    """
    newest = len(checks) - 1
    return [
        SplitTask(
            work=str(work.root),
            number=number,
            path=str(source.layout.index / check["name"]),
            slots=check.get("slots", shape.slots),
            entries=check.get("entries", UNKNOWN),
            segments=source.segments,
            is_growing=source.is_live and number == newest,
            is_last=number == newest,
        )
        for number, check in enumerate(checks)
    ]


def merge_tasks(
    work: WorkDirectory,
    request: CompactRequest,
    splits: Sequence[tuple[SplitTask, SplitSummary]],
    segments: Sequence[SegmentPlace],
) -> list[MergeTask]:
    """A task for each segment that any entry points to; `splits` are tasks with their summaries, in order."""
    log = cut_log(segments, splits[0][0].cell_bytes if splits else CELL_BYTES)
    cells: dict[int, list[CellBlock]] = {}
    for _, summary in splits:
        path = str(block_file(work, summary, ENTRIES))
        for cell, position, _ in summary["cells"]:
            cells.setdefault(cell, []).append(CellBlock(path, position))
    by_segment: dict[int, list[CellRuns]] = {}
    for cell, runs in sorted(cells.items()):
        by_segment.setdefault(int(log.segments[cell]), []).append(CellRuns(int(log.starts[cell]), tuple(runs)))
    return [
        _merge_task(work, request, segments, number, cells=tuple(cell_runs)) for number, cell_runs in by_segment.items()
    ]


def scanned_merge_tasks(
    work: WorkDirectory,
    request: CompactRequest,
    scans: Sequence[ScanSummary],
    segments: Sequence[SegmentPlace],
    end: int,
) -> list[MergeTask]:
    """A task for each segment in which a scan found an entry of a record below the physical offset `end`."""
    tasks = []
    for number, summary in enumerate(scans):
        pieces = cut_blocks(entry_tables(work, [summary]), None, end)
        if pieces:
            tasks.append(_merge_task(work, request, segments, number, pieces=tuple(pieces)))
    return tasks


def _merge_task(
    work: WorkDirectory, request: CompactRequest, segments: Sequence[SegmentPlace], number: int, **entries: Any
) -> MergeTask:
    place = segments[number]
    return MergeTask(
        work=str(work.root),
        path=place.path,
        base_offset=place.base_offset,
        limit=segment_limit(segments, number),
        topics=tuple(topic.encode() for topic in request.topics),
        drop_tags=request.drop_tags,
        remote=place.remote,
        **entries,
    )


def merged_blocks(work: WorkDirectory, merges: Sequence[MergeSummary]) -> list[TimedBlock]:
    """The blocks that merges left, in the order of the log."""
    return [
        TimedBlock(str(block_file(work, summary, ENTRIES)), *facts)
        for summary in merges
        for facts in summary["entry_blocks"]
    ]


def place_blocks(blocks: Sequence[TimedBlock], capacity: int) -> list[PlacedFile]:
    """Which entries go into which file of `capacity` (N − 1) each; there is always a file, and be it an empty one."""
    placed = place([Piece(block, 0, block.entries) for block in blocks], capacity, False)
    return placed or [PlacedFile((), None)]


def build_tasks(
    work: WorkDirectory,
    shape: IndexShapeWanted,
    files: Sequence[tuple[PlacedFile, Path]],
    last: IndexHeader | None,
    end: int,
    holes: Sequence[IndexHole],
    *,
    tags: bool,
) -> list[BuildIndexTask]:
    """A task for each file, to be built at the path beside it.

    The last one ends at the physical offset `end`, and an empty one when `last` did. Files that span none of the
    `holes` may say that they are complete; `tags`: that means tags too.
    """
    stamp = last.end_timestamp if last is not None else 0
    seed = IndexHeader(stamp, stamp, end, end, 0, 0) if end >= 0 else None
    complete = complete_files([file for file, _ in files])
    return [
        BuildIndexTask(
            work=str(work.root),
            number=number,
            path=str(path),
            slots=shape.slots,
            capacity=shape.capacity,
            placed=file,
            seed=seed,
            compact=True,
            end_physical_offset=end if number == len(files) - 1 else 0,
            complete=complete[number],
            holes=holes_of(file, holes),
            tags=tags,
        )
        for number, (file, path) in enumerate(files)
    ]
