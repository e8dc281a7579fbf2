"""Entries are brought into the order of store time in memory that does not grow with them."""

import tracemalloc

import numpy as np

from spark_jobs.compact._entry_rows import EntryRows
from spark_jobs.compact._order_entries import OrderTask, order_entries
from spark_jobs.compact._timed_block import TimedTable, write_rows, write_timed_table
from spark_jobs.run.blocks import BlockWriter
from spark_jobs.run.work_directory import WorkDirectory

ROWS = 2000


def task_of(root, blocks, **limits):
    work = WorkDirectory.open(root, {"test": 1}, fresh=True)
    numbers = np.arange(ROWS)
    hashes = np.arange(2 * ROWS, dtype=np.int32)
    with BlockWriter(work.blocks / "merged.entries", "a test") as writer:
        rows = (EntryRows((n * ROWS + numbers) * 100, numbers * 1000, np.full(ROWS, 2), hashes) for n in range(blocks))
        facts = [write_rows(writer, each) for each in rows]
        table = TimedTable.of(writer.path, write_timed_table(writer, facts))
    work.close()
    return OrderTask(str(work.root), 0, (table,), **limits)


def test_a_table_in_order_is_left_where_it_is_unless_a_copy_is_asked_for(tmp_path) -> None:
    assert order_entries(task_of(tmp_path / "one", 1))["file"] == "merged.entries"
    assert order_entries(task_of(tmp_path / "copied", 1, is_copy=True))["file"] != "merged.entries"


def peak_of(root, blocks, **limits):
    task = task_of(root, blocks, **limits)
    tracemalloc.start()
    try:
        order_entries(task)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_what_overlaps(tmp_path) -> None:
    limits = {"entries_at_once": 16_000, "rows_of_block": 1_000, "entries_of_block": 4_000, "fan_in": 4}
    few, many = (peak_of(tmp_path / str(blocks), blocks, **limits) for blocks in (8, 32))
    assert few < 120 * 16_000 + 500_000
    assert many < 1.5 * few
    assert peak_of(tmp_path / "all", 32) > 3 * many
