"""Blocks of merged entries in the order of store time, across the whole log.

A broker leaves a chain, and does not go to older files, at the first entry or file that begins before the asked time
(store-format §4.1, §4.2). Begin times of compacted files are true ones, so all would be lost that lies behind a place
where the clock stepped back; unless entries are put in the order of time. Blocks come from the log's stretches one
after the other, and but for such places they are in that order already; there, and only there, they are merged anew.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from spark_jobs.blocks import BlockWriter
from spark_jobs.entry_rows import LONGEST_BLOCK, EntryRows, join
from spark_jobs.merge_entries import write_rows
from spark_jobs.place_entries import EntryBlock
from spark_jobs.work_directory import WorkDirectory

PHASE: Final = "order"
ROWS_AT_ONCE: Final = 1 << 17


class TimedBlock(msgspec.Struct, frozen=True, array_like=True):
    """A block of entries whose records were stored, in this order, between two times (ms, both included)."""

    path: str
    position: int
    first: int
    end: int
    entries: int
    last_record: int
    first_timestamp: int
    last_timestamp: int

    @property
    def block(self) -> EntryBlock:
        """The block itself."""
        return EntryBlock(self.path, self.position, self.first, self.end, self.entries, self.last_record)

    def read(self) -> EntryRows:
        """Its rows."""
        columns = self.block.read().columns
        return EntryRows(
            columns["offsets"].astype(np.int64) + self.first,
            columns["timestamps"],
            columns["counts"].astype(np.int64),
            columns["hashes"],
        )


class OrderTask(msgspec.Struct, frozen=True):
    """Blocks in the order of the log."""

    work: str
    blocks: tuple[TimedBlock, ...]
    rows_at_once: int = ROWS_AT_ONCE

    @property
    def name(self) -> str:
        """The task's name, and that of its file of blocks."""
        return f"{PHASE}-0"


def are_in_order(blocks: Sequence[TimedBlock]) -> bool:
    """Whether no block holds anything that was stored before what an earlier one holds."""
    return all(left.last_timestamp <= right.first_timestamp for left, right in pairwise(blocks))


def order_entries(task: OrderTask) -> dict[str, Any]:
    """Bring blocks into the order of time; the summary, as left in the work directory.

    `blocks` are rows of the blocks, old ones and new, with a bare name as their path. Of the entries only those are
    held in memory that were stored later than what other blocks go on with.
    """
    work = WorkDirectory(Path(task.work))
    done = work.done(task.name)
    if done is not None:
        return done
    began = time.time()
    progress = work.report(task.name)
    name = f"{task.name}.entries"
    try:
        with BlockWriter(work.blocks / name, "blocks whose times overlap") as writer:
            order = _Order(name, writer, task.rows_at_once)
            order.run(task.blocks, progress.update)
    finally:
        progress.close()
    blocks = [[Path(block.path).name, *msgspec.structs.astuple(block)[1:]] for block in order.blocks]
    return work.finish(task.name, {"blocks": blocks, "began": began, "seconds": time.time() - began})


class _Order:
    """Goes over the blocks by the time they begin, and holds back what may still have something before it."""

    def __init__(self, path: str, writer: BlockWriter, rows_at_once: int) -> None:
        self.blocks: list[TimedBlock] = []
        self._path, self._writer, self._rows_at_once = path, writer, rows_at_once
        self._held = EntryRows.empty()

    def run(self, blocks: Iterable[TimedBlock], report: Callable[[int, int], None]) -> None:
        ordered = sorted(blocks, key=lambda block: (block.first_timestamp, block.first))
        done = 0
        for number, block in enumerate(ordered):
            self._release(block.first_timestamp)
            following = ordered[number + 1].first_timestamp if number + 1 < len(ordered) else None
            if self._stands_alone(block, following):
                self.blocks.append(block)
            else:
                self._held = join(self._held, block.read()).by_time()
            done += block.entries
            report(done, 0)
        self._release(None)

    def _stands_alone(self, block: TimedBlock, following: int | None) -> bool:
        """Whether everything of a block comes before all that is held and all that follows."""
        last = block.last_timestamp
        is_before_held = not self._held.timestamps.size or last < self._held.timestamps[0]
        return is_before_held and (following is None or last < following)

    def _release(self, until: int | None) -> None:
        """Write what was stored before a time, or all."""
        held = self._held
        count = held.timestamps.size if until is None else int(np.searchsorted(held.timestamps, until))
        if not count:
            return
        rows = np.arange(held.timestamps.size)
        for start in range(0, count, self._rows_at_once):
            self._write(held.take(rows[start : min(start + self._rows_at_once, count)]))
        self._held = held.take(rows[count:])

    def _write(self, rows: EntryRows) -> None:
        """Write rows as a block, or as several where they lie too far apart for one."""
        if rows.offsets.max() - rows.offsets.min() >= LONGEST_BLOCK:
            middle = rows.offsets.size // 2
            numbers = np.arange(rows.offsets.size)
            self._write(rows.take(numbers[:middle]))
            self._write(rows.take(numbers[middle:]))
        else:
            self.blocks.append(TimedBlock(self._path, *write_rows(self._writer, rows)))
