"""The tasks of a compaction, made from what is known of the store and from what earlier tasks have left.

Nothing here opens a file of the store.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from spark_jobs.build.build_index_file import BuildIndexTask, IndexHole
from spark_jobs.build.kept_index import IndexShapeWanted
from spark_jobs.build.place_entries import Ask, Piece, PlacedFile, cut_blocks, entry_tables, place
from spark_jobs.compact._complete_index import HoleList
from spark_jobs.compact._log_cells import segment_limit
from spark_jobs.compact._merge_entries import CellTable, MergeSummary, MergeTask
from spark_jobs.compact._order_entries import OrderSummary, OrderTask, ordered_file
from spark_jobs.compact._split_index_file import UNKNOWN, SplitSummary, SplitTask
from spark_jobs.compact._timed_block import TimedTable, are_in_order, overlapping
from spark_jobs.compact.compact_request import CompactRequest
from spark_jobs.run.attempt import block_file
from spark_jobs.run.work_directory import WorkDirectory
from spark_jobs.scan.probe_store import IndexFileFacts, SegmentPlace
from spark_jobs.scan.scan_segment import ENTRIES, ScanSummary
from spark_jobs.scan.source import StoreSource
from storage.index.index_file import IndexHeader


class Completeness(NamedTuple):
    """The data from which a file knows whether it has every key of its range of the log.

    `complete` are those that have it for themselves; `holes` are where keys are missing; `tags`: those of tags are not.
    """

    complete: Sequence[bool]
    holes: Sequence[IndexHole]
    tags: bool


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
    splits: Sequence[SplitSummary],
    segments: Sequence[SegmentPlace],
) -> dict[int, MergeTask]:
    """A task for each segment that any entry points to, by its number; `splits` are summaries, in order."""
    tables: dict[int, list[CellTable]] = {}
    for summary in splits:
        table = CellTable(str(block_file(work, summary, ENTRIES)), summary["cell_table"])
        for segment in np.flatnonzero(np.unpackbits(np.frombuffer(summary["segments"], np.uint8))).tolist():
            tables.setdefault(segment, []).append(table)
    return {
        segment: _merge_task(work, request, segments, segment, cells=tuple(of_segment))
        for segment, of_segment in sorted(tables.items())
    }


def scanned_merge_tasks(
    work: WorkDirectory,
    request: CompactRequest,
    scans: Sequence[ScanSummary],
    segments: Sequence[SegmentPlace],
    end: int,
    ask: Ask,
) -> dict[int, MergeTask]:
    """A task for each segment, by its number, in which a scan found an entry of a record below an offset, `end`."""
    tasks = {}
    for number, summary in enumerate(scans):
        pieces = cut_blocks(entry_tables(work, [summary]), None, end, ask)
        if pieces:
            tasks[number] = _merge_task(work, request, segments, number, pieces=tuple(pieces))
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


def merged_tables(work: WorkDirectory, merges: Sequence[MergeSummary]) -> dict[int, TimedTable]:
    """The blocks that merges left, a table for each that has any, by its number and in the order of the log."""
    return {
        number: TimedTable.of(block_file(work, summary, ENTRIES), summary["entry_table"])
        for number, summary in enumerate(merges)
        if summary["entry_table"]
    }


def order_tasks(work: WorkDirectory, tables: Sequence[TimedTable]) -> list[OrderTask]:
    """Make a task for each group of tables whose times overlap; empty if the log is in the order of time."""
    if are_in_order(tables) and all(table.is_in_order for table in tables):
        return []
    return [OrderTask(str(work.root), number, tuple(group)) for number, group in enumerate(overlapping(tables))]


def ordered_tables(work: WorkDirectory, orders: Sequence[OrderSummary]) -> list[TimedTable]:
    """Return the sorted blocks, a table for each group."""
    return [TimedTable.of(ordered_file(work, summary), summary["entry_table"]) for summary in orders]


def place_tables(tables: Sequence[TimedTable], capacity: int) -> list[PlacedFile]:
    """Assign entries to files of `capacity` (N − 1) entries each; at least one file, even if it is empty."""
    placed = place([Piece(table, 0, table.entries) for table in tables], capacity, False)
    return placed or [PlacedFile((), None)]


def build_tasks(
    work: WorkDirectory,
    shape: IndexShapeWanted,
    files: Sequence[tuple[PlacedFile, Path]],
    last: IndexHeader | None,
    end: int,
    claims: Completeness,
) -> list[BuildIndexTask]:
    """A task for each file, to be built at the path beside it, which may claim to be complete.

    The last one ends at the physical offset `end`, and an empty one when `last` did.
    """
    stamp = last.end_timestamp if last is not None else 0
    seed = IndexHeader(stamp, stamp, end, end, 0, 0) if end >= 0 else None
    holes = HoleList(claims.holes)
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
            complete=claims.complete[number],
            holes=holes.within(file),
            tags=claims.tags,
        )
        for number, (file, path) in enumerate(files)
    ]
