"""The blocks that a task leaves as rows of bytes, for where no disk is shared between tasks.

The first row of a scan is the summary of its segment. The others are the blocks of its two files, in their order, and
behind those of each kind the table. Other tasks that leave blocks of entries make such rows too: then the `segment` of
a row is the number of its task, and the summary that of the task. So the files can be written anew from all rows of a
segment (:func:`land`), while a task that builds is sent only the blocks that it needs. In front of each row is its
head:

ROW_HEAD
offset  size  type  field    meaning
0       1     u8    kind     what is in the row, as in :class:`RowKind`
1       4     u32   segment  number of the segment in the order of the log
5       4     u32   number   of the block among those of its kind in the segment
9       4     u32   bundle   of units: that of their queues; of cells: number of the segment that they are of
13      8     i64   base     of entries and cells: physical offset that those in the block count from
21      8     i64   first    of entries: how many the segment has before the block
29      8     i64   entries  of entries: how many the block has
"""

import os
from collections.abc import Iterator, Sequence
from enum import IntEnum
from itertools import chain, pairwise
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple, cast

import msgpack
import numpy as np
from msgspec.structs import replace

from spark_jobs.run.attempt import AttemptRecord, block_file
from spark_jobs.run.blocks import BlockWriter, read_block_at, read_into, read_list
from spark_jobs.run.kept_rows import Row, Rows
from spark_jobs.run.local_work import local_work
from spark_jobs.run.work_directory import WorkDirectory
from spark_jobs.scan.scan_segment import ENTRIES, UNITS, ScanSummary, ScanTask, scan_segment

ROW_HEAD: Final = Struct(">BIIIqqq")


class RowKind(IntEnum):
    """What is in a row."""

    SUMMARY = 0
    ENTRIES = 1
    ENTRY_TABLE = 2
    UNITS = 3
    UNIT_TABLE = 4
    CELLS = 5
    CELL_TABLE = 6


FILES: Final = {ENTRIES: (RowKind.ENTRIES, RowKind.ENTRY_TABLE), UNITS: (RowKind.UNITS, RowKind.UNIT_TABLE)}
"""The rows that make up each file of blocks."""


class RowHead(NamedTuple):
    """The head of a row, as in the module's docstring."""

    kind: int
    segment: int
    number: int = 0
    bundle: int = 0
    base: int = 0
    first: int = 0
    entries: int = 0

    @classmethod
    def of(cls, row: Row) -> "RowHead":
        """Read the head of a row."""
        return cls._make(ROW_HEAD.unpack_from(row))

    def pack(self) -> bytes:
        """The bytes of the head."""
        return ROW_HEAD.pack(*self)


class NumberedScan(NamedTuple):
    """A segment to be scanned, and its number in the order of the log."""

    segment: int
    task: ScanTask


def block_of(row: Row) -> memoryview:
    """The packed block in a row."""
    return memoryview(row)[ROW_HEAD.size :]


def read_summary(row: Row) -> ScanSummary:
    """The summary that is the first row of a segment."""
    return cast("ScanSummary", msgpack.unpackb(block_of(row), strict_map_key=False))


def scan_rows(scan: NumberedScan) -> Iterator[Row]:
    """Scan a segment; its summary, and the blocks that were found."""
    with local_work() as work:
        summary = scan_segment(replace(scan.task, work=str(work.root)))
        yield summary_row(scan.segment, summary)
        path = block_file(work, summary, ENTRIES)
        yield from rows_of_file(path, entry_heads(path, scan.segment, summary["entry_table"]))
        yield from rows_of_file(block_file(work, summary, UNITS), _unit_heads(work, scan.segment, summary))


def summary_row(number: int, summary: AttemptRecord) -> Row:
    """The first row of a task of a number."""
    return b"".join([RowHead(RowKind.SUMMARY, number).pack(), msgpack.packb(summary)])


def land(rows: Rows, work: WorkDirectory, kind: str) -> ScanSummary:
    """Write one of the files of blocks of a segment, of which all rows are given; the summary, which names the file."""
    summary = read_summary(next(rows))
    with BlockWriter(block_file(work, summary, kind), summary["attempt"]) as writer:
        for row in rows:
            if RowHead.of(row).kind in FILES[kind]:
                writer.add(block_of(row))
    return summary


def land_some(rows: Rows, kind: RowKind, writer: BlockWriter) -> list[tuple[RowHead, int]]:
    """Write the blocks of a kind; heads and positions, put in the order of the log however they have come."""
    landed = []
    for row in rows:
        head = RowHead.of(row)
        if head.kind == kind:
            landed.append((head, writer.add(block_of(row))))
    return sorted(landed)


def entry_heads(path: Path, segment: int, entry_table: Sequence[int]) -> Iterator[tuple[int, RowHead]]:
    """Where the blocks of entries start in their file, and the heads of their rows.

    `entry_table` has the position of their table, or nothing where there are no blocks.
    """
    if not entry_table:
        return
    table = entry_table[0]
    first = 0
    for number, (position, base, _, entries, *_) in enumerate(read_list(path, table).tolist()):
        yield position, RowHead(RowKind.ENTRIES, segment, number, base=base, first=first, entries=entries)
        first += entries
    yield table, RowHead(RowKind.ENTRY_TABLE, segment)


def _unit_heads(work: WorkDirectory, segment: int, summary: ScanSummary) -> Iterator[tuple[int, RowHead]]:
    """Where the blocks of units start in their file, and the heads of their rows."""
    table = summary["unit_table"]
    if table < 0:
        return
    columns = read_block_at(block_file(work, summary, UNITS), table).columns
    bundles = np.repeat(np.arange(columns["starts"].size - 1), np.diff(columns["starts"]))
    order = np.argsort(columns["positions"])
    blocks = zip(columns["positions"][order].tolist(), bundles[order].tolist(), strict=True)
    for number, (position, bundle) in enumerate(blocks):
        yield position, RowHead(RowKind.UNITS, segment, number, bundle)
    yield table, RowHead(RowKind.UNIT_TABLE, segment)


def rows_of_file(path: Path, heads: Iterator[tuple[int, RowHead]]) -> Iterator[Row]:
    """The blocks of a file, which follow one another without gaps, one in memory at a time."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        for (position, head), (end, _) in pairwise(chain(heads, [(size, None)])):
            assert head is not None
            row = bytearray(ROW_HEAD.size + end - position)
            ROW_HEAD.pack_into(row, 0, *head)
            read_into(path, descriptor, position, block_of(row))
            yield row
    finally:
        os.close(descriptor)
