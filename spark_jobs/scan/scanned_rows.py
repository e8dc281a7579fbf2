"""The blocks that a task leaves as rows, for where no disk is shared between tasks.

The first row of a scan is the summary of its segment. The others are the blocks of its two files in pieces, in their
order, and behind those of each kind the table. Other tasks that leave blocks of entries make such rows too: then the
`segment` of a row is the number of its task, and the summary that of the task. So the files can be written anew from
all rows of a segment (:func:`land`), while a task is sent only the blocks that it needs (:func:`land_some`).
"""

import os
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from enum import IntEnum
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import msgpack
import numpy as np

from protocol.errors import StoreError
from spark_jobs.run.attempt import AttemptRecord, block_file
from spark_jobs.run.blocks import BlockWriter, read_block_at, read_into, read_list
from spark_jobs.run.kept_rows import PIECE_BYTES, Row, Rows
from spark_jobs.run.work_directory import WorkDirectory
from spark_jobs.scan.scan_segment import ENTRIES, UNITS, ScanSummary


class RowKind(IntEnum):
    """The kinds of rows."""

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
    """Which block a row has a piece of.

    `segment` is the number of its segment in the order of the log, `number` that of the block among those of its kind
    there. `bundle` is of units that of their queues, of cells the number of the segment that they are of; the segment
    has `together` blocks of it. Entries and cells count from the physical offset `base`; there are `first` entries of
    the segment before the block, and `entries` in it.
    """

    kind: int
    segment: int
    number: int = 0
    bundle: int = 0
    together: int = 0
    base: int = 0
    first: int = 0
    entries: int = 0


Left: TypeAlias = Sequence[tuple[Path, Iterator[tuple[int, RowHead]]]]
"""Files of blocks that a task has left, the one of entries first; where each block starts, and the head of its rows."""


def read_summary(row: Row) -> Any:
    """The summary that is the first row of a task."""
    return msgpack.unpackb(row.data, strict_map_key=False)


def scanned(work: WorkDirectory, segment: int, summary: ScanSummary) -> Left:
    """What the scan of a segment has left, which has that number in the order of the log."""
    path = block_file(work, summary, ENTRIES)
    return (
        (path, entry_heads(path, segment, summary["entry_table"])),
        (block_file(work, summary, UNITS), _unit_heads(work, segment, summary)),
    )


def summary_row(number: int, summary: AttemptRecord) -> Row:
    """The first row of a task of a number."""
    data: bytes = msgpack.packb(summary)
    return Row(RowHead(RowKind.SUMMARY, number), len(data), 0, data)


def land(rows: Rows, work: WorkDirectory, kind: str) -> ScanSummary:
    """Write one of the files of blocks of a segment, of which all rows are given, in order.

    The summary, which names the file.
    """
    summary: ScanSummary = read_summary(next(rows))
    with BlockWriter(block_file(work, summary, kind), summary["attempt"]) as writer:
        for row in rows:
            if row.head.kind in FILES[kind]:
                writer.add(memoryview(row.data))
    return summary


def land_some(rows: Rows, kinds: Collection[RowKind], writer: BlockWriter) -> list[tuple[RowHead, int]]:
    """Write the blocks of some kinds; heads and positions, put in the order of the log however they have come.

    Raises StoreError where a block has not come as a whole, or not all that a segment has `together`.
    """
    places: dict[RowHead, int] = {}
    missing: Counter[RowHead] = Counter()
    for row in rows:
        head: RowHead = row.head
        if head.kind in kinds:
            if head not in places:
                places[head] = writer.reserve(row.size)
                missing[head] = row.size
            writer.put(places[head] + row.start, row.data)
            missing[head] -= len(row.data)
    blocks = Counter((head.segment, head.bundle) for head in places)
    for head in places:
        check_came(writer.path, "bytes of a block that are missing", 0, missing[head])
        if head.together:
            check_came(writer.path, "blocks of a segment", head.together, blocks[head.segment, head.bundle])
    return sorted(places.items())


def check_came(path: Path | str, what: str, expected: int, found: int) -> None:
    """Raise StoreError where a task did not get as much as was sent to it."""
    if found != expected:
        raise StoreError(path, expected=expected, found=found, what=f"what was sent to a task breaks off, {what}")


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
    counts = np.diff(columns["starts"])
    bundles = np.repeat(np.arange(counts.size), counts)
    order = np.argsort(columns["positions"])
    blocks = zip(columns["positions"][order].tolist(), bundles[order].tolist(), strict=True)
    for number, (position, bundle) in enumerate(blocks):
        yield position, RowHead(RowKind.UNITS, segment, number, bundle, int(counts[bundle]))
    yield table, RowHead(RowKind.UNIT_TABLE, segment)


def rows_of_file(path: Path, heads: Iterator[tuple[int, RowHead]]) -> Rows:
    """The blocks of a file, which follow one another without gaps, one in memory at a time."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        for (position, head), (end, _) in pairwise(chain(heads, [(size, None)])):
            assert head is not None
            block = bytearray(end - position)
            read_into(path, descriptor, position, memoryview(block))
            yield from pieces(head, block)
    finally:
        os.close(descriptor)


def pieces(head: RowHead, block: bytes | bytearray) -> Rows:
    """A packed block as rows."""
    for start in range(0, len(block), PIECE_BYTES):
        yield Row(head, len(block), start, bytes(memoryview(block)[start : start + PIECE_BYTES]))
