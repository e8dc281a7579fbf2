"""What the tasks of a compaction leave, as rows for where no disk is shared, and how later tasks read it from there.

Rows are as in :mod:`spark_jobs.scan.scanned_rows`, and so are those of a scan that takes the place of splits. Blocks of
cells go to the task of their segment; blocks of entries, with their table, to that of the group of their segment.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace

from protocol.errors import StoreError
from spark_jobs.build.exchange import BlockStep
from spark_jobs.build.place_entries import Piece
from spark_jobs.compact import _merge_entries as merging
from spark_jobs.compact import _order_entries as ordering
from spark_jobs.compact import _split_index_file as splitting
from spark_jobs.compact._merge_entries import CellTable, MergeSummary, MergeTask
from spark_jobs.compact._order_entries import OrderSummary, OrderTask, ordered_file
from spark_jobs.compact._split_index_file import SplitSummary
from spark_jobs.run.attempt import block_file
from spark_jobs.run.blocks import BlockWriter, read_list
from spark_jobs.run.kept_rows import Row, Rows
from spark_jobs.run.work_directory import WorkDirectory
from spark_jobs.scan.scan_segment import ENTRIES
from spark_jobs.scan.scanned_rows import Left, RowHead, RowKind, check_came, entry_heads, land_some

_LANDED: Final = "landed"
_ENTRIES: Final = 3
"""Which number of a row of a table is that of the entries of the block."""

_SENT: Final = frozenset({RowKind.CELLS, RowKind.ENTRIES, RowKind.ENTRY_TABLE})


class SegmentRoute(msgspec.Struct, frozen=True):
    """Routes from a segment to a task, by their numbers; with `of_splits` the `bundle` of a row is the segment."""

    tasks: Mapping[int, int]
    of_splits: bool = False

    def __call__(self, rows: Rows) -> Iterator[tuple[int, Row]]:
        """The rows, each behind the number of the task that gets it."""
        for row in rows:
            head: RowHead = row.head
            if head.kind in _SENT:
                yield self.tasks[head.bundle if self.of_splits else head.segment], row


def split_step() -> "BlockStep[splitting.SplitTask, SplitSummary]":
    """The step that takes index files apart."""
    return BlockStep(splitting.PHASE, splitting.split_index_file, _split)


def merge_step(segments: Mapping[int, MergeTask], *, of_splits: bool) -> BlockStep[MergeTask, MergeSummary]:
    """The step that merges the entries of segments, which splits or a scan have left; the tasks are in this order."""
    route = SegmentRoute({segment: number for number, segment in enumerate(segments)}, of_splits)
    return BlockStep(merging.PHASE, merging.merge_entries, _merged, _land_merge, route)


def order_step(tasks: Mapping[int, int]) -> BlockStep[OrderTask, OrderSummary]:
    """The step that brings blocks into order: `tasks` has the number of the task by that of the merge."""
    return BlockStep(ordering.PHASE, ordering.order_entries, _ordered, _land_order, SegmentRoute(tasks))


def _split(work: WorkDirectory, number: int, summary: SplitSummary) -> Left:
    path = block_file(work, summary, ENTRIES)
    return ((path, _split_heads(path, number, summary)),)


def _split_heads(path: Path, number: int, summary: SplitSummary) -> Iterator[tuple[int, RowHead]]:
    """Where the blocks of cells start, and the heads of their rows; the table behind them is made anew elsewhere."""
    if summary["cell_table"] < 0:
        return
    rows = read_list(path, summary["cell_table"])
    blocks = np.bincount(rows[:, 3]).tolist()
    for block, (position, start, entries, segment) in enumerate(rows[np.argsort(rows[:, 0])].tolist()):
        yield position, RowHead(RowKind.CELLS, number, block, segment, blocks[segment], base=start, entries=entries)
    yield summary["cell_table"], RowHead(RowKind.CELL_TABLE, number)


def _merged(work: WorkDirectory, number: int, summary: MergeSummary) -> Left:
    path = block_file(work, summary, ENTRIES)
    return ((path, entry_heads(path, number, summary["entry_table"])),)


def _ordered(work: WorkDirectory, number: int, summary: OrderSummary) -> Left:
    path = ordered_file(work, summary)
    return ((path, entry_heads(path, number, summary["entry_table"])),)


def _land_merge(task: MergeTask, rows: Rows, work: WorkDirectory) -> MergeTask:
    """Write down what has come for a segment, and have the task read it from there."""
    with BlockWriter(work.blocks / _LANDED, task.path) as writer:
        if task.cells:
            landed = land_some(rows, {RowKind.CELLS}, writer)
            check_came(task.path, "index files", len(task.cells), len({head.segment for head, _ in landed}))
            cells = [(position, head.base, head.entries, head.bundle) for head, position in landed]
            return replace(task, cells=(CellTable(str(writer.path), writer.write_list(cells)),))
        tables = _land_tables(rows, writer)
    [piece] = task.pieces
    position, entries = tables.popitem()[1] if tables else (0, 0)
    if entries < piece.skip + piece.count:
        raise StoreError(task.path, expected=f"{piece.skip + piece.count} entries", found=entries,
                         what="cannot be merged, the log was changed while it was read")  # fmt: skip
    table = replace(piece.block, path=str(writer.path), position=position)
    return replace(task, pieces=(Piece(table, piece.skip, piece.count),))


def _land_order(task: OrderTask, rows: Rows, work: WorkDirectory) -> OrderTask:
    """Write down what has come for a group, and have the task read it from there."""
    with BlockWriter(work.blocks / _LANDED, task.name) as writer:
        positions = [position for _, (position, _) in sorted(_land_tables(rows, writer).items())]
    check_came(task.name, "segments", len(task.tables), len(positions))
    by_log = sorted(task.tables, key=lambda table: table.first)
    landed = {
        table.first: replace(table, path=str(writer.path), position=position)
        for table, position in zip(by_log, positions, strict=True)
    }
    return replace(task, tables=tuple(landed[table.first] for table in task.tables), is_copy=True)


def _land_tables(rows: Rows, writer: BlockWriter) -> dict[int, tuple[int, int]]:
    """Write blocks of entries and their tables, however they have come; where each table is, and entries in all.

    They are by the numbers of segments. A table says where its blocks are now.
    """
    blocks: dict[int, list[int]] = {}
    tables: dict[int, np.ndarray] = {}
    for head, position in land_some(rows, {RowKind.ENTRIES, RowKind.ENTRY_TABLE}, writer):
        if head.kind == RowKind.ENTRIES:
            blocks.setdefault(head.segment, []).append(position)
        else:
            tables[head.segment] = read_list(writer.path, position)
    landed = {}
    for segment, table in tables.items():
        check_came(writer.path, "blocks of entries", len(table), len(blocks[segment]))
        moved = np.column_stack([blocks[segment], table[:, 1:]])
        landed[segment] = (writer.write_list(moved.tolist()), int(moved[:, _ENTRIES].sum()))
    return landed
