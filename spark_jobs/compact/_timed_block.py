"""Blocks of entries in the order of store time, as a merge leaves them, and the tables of such blocks.

The driver holds one table for each segment, or for each group of segments whose times overlap. Tasks find the blocks by
the tables, which lie behind them in their files.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import numpy as np

from spark_jobs.build.place_entries import EntryBlock
from spark_jobs.compact._entry_rows import EntryRows
from spark_jobs.run.blocks import BlockWriter, read_list


class TimedBlock(EntryBlock, frozen=True, array_like=True):
    """A block of entries whose records were stored, in this order, between two times (ms, both included)."""

    first_timestamp: int
    last_timestamp: int

    def rows(self) -> EntryRows:
        """Read the rows of the block."""
        columns = self.read().columns
        return EntryRows(
            columns["offsets"].astype(np.int64) + self.first,
            columns["timestamps"],
            columns["counts"].astype(np.int64),
            columns["hashes"],
        )


Timed = TypeVar("Timed", bound=TimedBlock)


class TimedTable(TimedBlock, frozen=True, array_like=True):
    """All blocks of a file: `position` is that of their table, the other fields are of them all.

    `is_in_order`: no block holds anything that was stored before what an earlier one holds.
    """

    is_in_order: bool

    @classmethod
    def of(cls, path: Path, facts: Sequence[int]) -> "TimedTable":
        """The table in a file, by its other fields as :func:`write_timed_table` returned them."""
        position, first, end, entries, last, first_timestamp, last_timestamp, is_in_order = facts
        return cls(str(path), position, first, end, entries, last, first_timestamp, last_timestamp, bool(is_in_order))

    def blocks(self) -> list[TimedBlock]:
        """The blocks that the table lists."""
        return [TimedBlock(self.path, *facts) for facts in read_list(Path(self.path), self.position).tolist()]


def write_rows(writer: BlockWriter, rows: EntryRows) -> list[int]:
    """Append a block of rows in the order of time; returns the fields of its TimedBlock without the path."""
    first, last = int(rows.offsets.min()), int(rows.offsets.max())
    position = writer.write(first, last + 1, rows.columns())
    return [position, first, last + 1, rows.hashes.size, last, int(rows.timestamps[0]), int(rows.timestamps[-1])]


def write_timed_table(writer: BlockWriter, blocks: Sequence[Sequence[int]]) -> list[int]:
    """Append the table of blocks, whose fields are as :func:`write_rows` returned them.

    Returns the fields of the TimedTable without the path, [] without any block.
    """
    if not blocks:
        return []
    position, facts = writer.write_list(blocks), np.array(blocks, np.int64)
    _, first, _, _, _, first_timestamp, _ = facts.min(axis=0).tolist()
    _, _, end, _, last, _, last_timestamp = facts.max(axis=0).tolist()
    is_in_order = bool(np.all(facts[:-1, 6] <= facts[1:, 5]))
    return [position, first, end, int(facts[:, 3].sum()), last, first_timestamp, last_timestamp, is_in_order]


def are_in_order(blocks: Sequence[TimedBlock]) -> bool:
    """Whether no block holds anything that was stored before what an earlier one holds."""
    return all(left.last_timestamp <= right.first_timestamp for left, right in pairwise(blocks))


def overlapping(blocks: Sequence[Timed]) -> Iterator[list[Timed]]:
    """Groups of blocks by time: what one group holds comes before all that later ones hold."""
    group: list[Timed] = []
    reached = end = 0
    for block in sorted(blocks, key=lambda block: (block.first_timestamp, block.first)):
        # Records of one time are in the order of the log.
        is_behind = block.first_timestamp > reached or (block.first_timestamp == reached and block.first >= end)
        if group and is_behind:
            yield group
            group = []
        reached = max(reached, block.last_timestamp) if group else block.last_timestamp
        end = max(end, block.end) if group else block.end
        group.append(block)
    if group:
        yield group
