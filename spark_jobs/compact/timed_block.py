"""Blocks of entries in the order of store time, as a merge leaves them."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from spark_jobs.build.place_entries import EntryBlock
from spark_jobs.compact.entry_rows import EntryRows
from spark_jobs.run.blocks import BlockWriter


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


def write_rows(writer: BlockWriter, rows: EntryRows) -> list[int]:
    """Append a block of rows in the order of time; returns the fields of its TimedBlock without the path."""
    first, last = int(rows.offsets.min()), int(rows.offsets.max())
    position = writer.write(first, last + 1, rows.columns())
    return [position, first, last + 1, rows.hashes.size, last, int(rows.timestamps[0]), int(rows.timestamps[-1])]


def are_in_order(blocks: Sequence[TimedBlock]) -> bool:
    """Whether no block holds anything that was stored before what an earlier one holds."""
    return all(left.last_timestamp <= right.first_timestamp for left, right in pairwise(blocks))


def overlapping(blocks: Sequence[TimedBlock]) -> Iterator[list[TimedBlock]]:
    """Groups of blocks by time: what one group holds comes before all that later ones hold."""
    group: list[TimedBlock] = []
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
