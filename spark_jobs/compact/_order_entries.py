"""Blocks of merged entries in the order of store time, across the whole log.

A broker leaves a chain, and does not go to older files, at the first entry or file that begins before the asked time
(store-format §4.1, §4.2). Begin times of compacted files are true ones, so all would be lost that lies behind a place
where the clock stepped back; unless entries are put in the order of time. Blocks come from the log's stretches one
after the other, and but for such places they are in that order already; there, and only there, they are merged anew.
The driver groups the tables of segments by time, and there is a task for each group.

Memory: ENTRIES_AT_ONCE entries while they are sorted, of records with one key each some 120 bytes an entry, 500 MB; or
the largest block that there is, if that has more. Stretches of time with more entries are sorted by way of the disk.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from spark_jobs.compact._entry_rows import LONGEST_BLOCK, EntryRows, join
from spark_jobs.compact._merge_runs import FAN_IN, Run, merge_sorted
from spark_jobs.compact._timed_block import TimedBlock, TimedTable, overlapping, write_rows, write_timed_table
from spark_jobs.run.attempt import Attempt, AttemptRecord, Notify, run_attempt
from spark_jobs.run.blocks import BlockWriter
from spark_jobs.run.work_directory import WorkDirectory
from spark_jobs.scan.scan_segment import ENTRIES

PHASE: Final = "order"
ENTRIES_AT_ONCE: Final = 4_000_000
ROWS_OF_BLOCK: Final = 1 << 16
ENTRIES_OF_BLOCK: Final = 1 << 18


class OrderTask(msgspec.Struct, frozen=True):
    """The group of a number: tables in the order of time, and how much of their blocks may be in memory.

    `is_copy`: blocks that are in order already do not stay where they are either.
    """

    work: str
    number: int
    tables: tuple[TimedTable, ...]
    entries_at_once: int = ENTRIES_AT_ONCE
    rows_of_block: int = ROWS_OF_BLOCK
    entries_of_block: int = ENTRIES_OF_BLOCK
    fan_in: int = FAN_IN
    is_copy: bool = False

    @property
    def name(self) -> str:
        """The task's name."""
        return f"{PHASE}-{self.number:08d}"

    @property
    def entries(self) -> int:
        """How many there are."""
        return sum(table.entries for table in self.tables)


class OrderSummary(AttemptRecord):
    """The bare name of the file of the blocks in their new order, and the fields of their TimedTable without the path.

    The file is that of the old blocks where these were in order.
    """

    file: str
    entry_table: list[int]


def order_entries(task: OrderTask) -> OrderSummary:
    """Bring blocks into the order of time; the summary, as left in the work directory."""

    def order(attempt: Attempt, notify: Notify) -> OrderSummary:
        if len(task.tables) == 1 and task.tables[0].is_in_order and not task.is_copy:
            path, *facts = msgspec.structs.astuple(task.tables[0])
            notify(task.entries, 0)
            return {"file": Path(path).name, "entry_table": facts}
        return {"file": attempt.blocks(ENTRIES).name, "entry_table": _Order(task, attempt).run(notify)}

    done: OrderSummary = run_attempt(task.work, task.name, order, partial(_is_there, task))
    return done


def ordered_file(work: WorkDirectory, done: OrderSummary) -> Path:
    """The file of the blocks that a task has brought into order."""
    return work.blocks / done["file"]


def _is_there(task: OrderTask, work: WorkDirectory, done: OrderSummary) -> bool:
    """Whether the blocks that were kept are those of the task: a merge may have been done again."""
    kept = {Path(table.path).name for table in task.tables}
    return bool(done["files"]) or (done["file"] in kept and ordered_file(work, done).exists())


class _Order:
    """Goes over the blocks by the time they begin, and sorts those together whose times overlap."""

    def __init__(self, task: OrderTask, attempt: Attempt) -> None:
        self._task, self._attempt = task, attempt
        self._blocks: list[list[int]] = []
        self._runs = 0

    def run(self, notify: Notify) -> list[int]:
        """The table of all blocks in order: its fields without the path."""
        done = 0
        with BlockWriter(self._attempt.blocks(ENTRIES), "blocks whose times overlap") as writer:
            for group in overlapping([block for table in self._task.tables for block in table.blocks()]):
                for rows in self._sorted(group):
                    if len(group) == 1:
                        self._blocks.append(write_rows(writer, rows))
                    else:
                        self._blocks += [write_rows(writer, piece) for piece in self._cut(rows)]
                    done += rows.hashes.size
                    notify(done, 0)
            return write_timed_table(writer, self._blocks)

    def _sorted(self, group: Sequence[TimedBlock]) -> Iterator[EntryRows]:
        """The rows of blocks whose times overlap; a single one is in order."""
        if len(group) == 1:
            yield group[0].rows()
            return
        if sum(block.entries for block in group) <= self._task.entries_at_once:
            yield join([block.rows() for block in group]).by_time()
            return
        with ExitStack() as scratch:
            runs = [
                self._write_run([join([block.rows() for block in part]).by_time()], scratch)
                for part in self._parts(group)
            ]
            yield from merge_sorted(runs, lambda rows: self._write_run(rows, scratch), self._task.fan_in)

    def _parts(self, group: Iterable[TimedBlock]) -> Iterator[list[TimedBlock]]:
        """As many blocks at a time as may be in memory; one at least."""
        part: list[TimedBlock] = []
        for block in group:
            if part and sum(each.entries for each in part) + block.entries > self._task.entries_at_once:
                yield part
                part = []
            part.append(block)
        yield part

    def _write_run(self, portions: Iterable[EntryRows], scratch: ExitStack) -> Run:
        """Write rows in order to a file that goes with `scratch`, in small blocks."""
        self._runs += 1
        path = self._attempt.blocks(f"run-{self._runs}")
        scratch.callback(path.unlink, missing_ok=True)
        with BlockWriter(path, "entries by store time") as writer:
            return [TimedBlock(str(path), *write_rows(writer, piece)) for rows in portions for piece in self._cut(rows)]

    def _cut(self, rows: EntryRows) -> Iterator[EntryRows]:
        """Small blocks, in each of which offsets count from the lowest one in 32 bits."""
        for piece in rows.cut(self._task.rows_of_block, self._task.entries_of_block):
            yield from _halved(piece)


def _halved(rows: EntryRows) -> Iterator[EntryRows]:
    """Rows as they are, or in halves where they lie too far apart for one block."""
    if rows.offsets.max() - rows.offsets.min() < LONGEST_BLOCK:
        yield rows
        return
    middle, numbers = rows.offsets.size // 2, np.arange(rows.offsets.size)
    yield from _halved(rows.take(numbers[:middle]))
    yield from _halved(rows.take(numbers[middle:]))
