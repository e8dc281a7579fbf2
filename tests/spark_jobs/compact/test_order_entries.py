"""Entries brought into the order of store time, whatever the clock did, in memory that does not grow with them."""

import tracemalloc
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from spark_jobs.compact._entry_rows import LONGEST_BLOCK, EntryRows
from spark_jobs.compact._order_entries import OrderTask, order_entries, ordered_file
from spark_jobs.compact._timed_block import (
    TimedBlock,
    TimedTable,
    are_in_order,
    overlapping,
    write_rows,
    write_timed_table,
)
from spark_jobs.run.blocks import BlockWriter
from spark_jobs.run.work_directory import WorkDirectory
from storage.files.attempt_names import attempt_of

Row = tuple[int, int, tuple[int, ...]]
"""Store time, physical offset, hashes."""


@pytest.fixture(scope="module")
def directory() -> Iterator[Path]:
    with TemporaryDirectory() as name:
        yield Path(name)


def rows_of(rows: Sequence[Row]) -> EntryRows:
    hashes = [key_hash for _, _, hashes in rows for key_hash in hashes]
    return EntryRows(
        np.array([offset for _, offset, _ in rows], np.int64),
        np.array([stamp for stamp, _, _ in rows], np.int64),
        np.array([len(hashes) for _, _, hashes in rows], np.int64),
        np.array(hashes, np.int32),
    )


def read(blocks: Sequence[TimedBlock]) -> list[Row]:
    """All rows of some blocks, which must say the truth of themselves."""
    found: list[Row] = []
    for block in blocks:
        rows = block.rows()
        hashes, at = rows.hashes.tolist(), 0
        of_block = []
        for stamp, offset, count in zip(
            rows.timestamps.tolist(), rows.offsets.tolist(), rows.counts.tolist(), strict=True
        ):
            of_block.append((stamp, offset, tuple(hashes[at : at + count])))
            at += count
        offsets = [offset for _, offset, _ in of_block]
        assert (block.first, block.last_record, block.entries) == (min(offsets), max(offsets), at)
        assert (block.first_timestamp, block.last_timestamp) == (of_block[0][0], of_block[-1][0])
        found += of_block
    return found


class Ordering:
    """The task done on blocks of rows, each block in the order of time."""

    def __init__(self, root: Path, blocks: Sequence[Sequence[Row]], **limits: int) -> None:
        self.work = WorkDirectory.open(root, {"test": 1}, fresh=True)
        with BlockWriter(self.work.blocks / "merged.entries", "a test") as writer:
            facts = [write_rows(writer, rows_of(sorted(rows))) for rows in blocks]
            path = str(writer.path)
            self.before = [TimedBlock(path, *fact) for fact in facts]
            self.tables = (TimedTable.of(writer.path, write_timed_table(writer, facts)),)
        summary = order_entries(OrderTask(str(self.work.root), 0, self.tables, **limits))
        self.after = TimedTable.of(ordered_file(self.work, summary), summary["entry_table"]).blocks()
        self.attempt = summary["attempt"]
        self.names = sorted(path.name for path in self.work.blocks.iterdir())
        self.work.close()


@st.composite
def stretches(draw: st.DrawFn) -> list[list[Row]]:
    """What stretches of the log hold, one after the other; the clock goes anywhere."""
    offset, blocks = 0, []
    for _ in range(draw(st.integers(1, 12))):
        block: list[Row] = []
        clock = draw(st.integers(0, 60))
        for _ in range(draw(st.integers(1, 6))):
            clock += draw(st.sampled_from([0, 0, 1, 3, -5]))
            block.append((clock, offset, tuple(range(draw(st.integers(1, 4))))))
            offset += draw(st.sampled_from([1, 50]))
        blocks.append(block)
        offset += draw(st.sampled_from([0, 0, LONGEST_BLOCK // 4, LONGEST_BLOCK]))
    return blocks


@settings(max_examples=settings.default.max_examples)
@given(stretches(), st.integers(1, 30), st.integers(1, 4), st.integers(1, 9), st.integers(2, 4))
def test_rows_come_in_the_order_of_time_and_then_of_the_log(
    directory: Path, blocks: list[list[Row]], at_once: int, rows: int, entries: int, fan_in: int
) -> None:
    ordering = Ordering(
        directory, blocks, entries_at_once=at_once, rows_of_block=rows, entries_of_block=entries, fan_in=fan_in
    )
    assert read(ordering.after) == sorted(row for block in blocks for row in block)
    assert are_in_order(ordering.after)
    assert all(block.end - block.first <= LONGEST_BLOCK for block in ordering.after)
    kept = [None] if are_in_order(ordering.before) else [None, ordering.attempt]
    assert [attempt_of(name) for name in ordering.names] == kept


def test_one_that_begins_within_another_is_merged_with_it_and_no_third_is() -> None:
    def block(first: int, last: int, offset: int) -> TimedBlock:
        return TimedBlock("path", 0, offset, offset + 10, 1, offset + 9, first, last)

    one, two, three, four = block(0, 10, 0), block(5, 7, 100), block(8, 12, 200), block(13, 14, 50)
    assert list(overlapping([one, two, three, four])) == [[one, two, three], [four]]
    tie = block(10, 11, 20)
    assert list(overlapping([one, tie])) == [[one], [tie]]
    assert list(overlapping([block(10, 11, 0), block(0, 10, 20)])) == [[block(0, 10, 20), block(10, 11, 0)]]


def test_what_was_done_is_not_done_again(tmp_path: Path) -> None:
    ordering = Ordering(tmp_path, [[(5, 0, (1,))], [(2, 10, (1,))]])
    work = WorkDirectory(ordering.work.root)
    (work.blocks / "merged.entries").write_bytes(b"")
    summary = order_entries(OrderTask(str(work.root), 0, ordering.tables))
    assert read(TimedTable.of(ordered_file(work, summary), summary["entry_table"]).blocks()) == read(ordering.after)


def test_a_table_in_order_is_left_where_it_is_unless_its_blocks_are_made_anew(tmp_path: Path) -> None:
    """A merge that was done again has left its blocks elsewhere."""
    ordering = Ordering(tmp_path, [[(2, 0, (1,))], [(5, 10, (1,))]])
    assert ordering.after == ordering.before
    work = WorkDirectory(ordering.work.root)
    (work.blocks / "merged.entries").rename(work.blocks / "again.entries")
    again = replace(ordering.tables[0], path=str(work.blocks / "again.entries"))
    summary = order_entries(OrderTask(str(work.root), 0, (again,)))
    assert ordered_file(work, summary) == work.blocks / "again.entries"


# --- memory ---------------------------------------------------------------------------------------------------------


def interleaved(blocks: int, rows: int) -> list[list[Row]]:
    """Stretches of the log that were all stored at the same time, as after a clock that steps back over and over."""
    return [[(1000 * n, (block * rows + n) * 100, (n, n + 1)) for n in range(rows)] for block in range(blocks)]


def peak_of(root: Path, blocks: list[list[Row]], **limits: Any) -> int:
    """Bytes in use at most while blocks are ordered."""
    ordering = Ordering(root / "once", blocks, **limits)
    task = OrderTask(str(ordering.work.root), 0, ordering.tables, **limits)
    ordering.work.forget(task.name)
    tracemalloc.start()
    try:
        order_entries(task)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_what_overlaps(tmp_path: Path) -> None:
    limits = {"entries_at_once": 16_000, "rows_of_block": 1_000, "entries_of_block": 4_000, "fan_in": 4}
    few = peak_of(tmp_path / "few", interleaved(8, 4_000), **limits)
    many = peak_of(tmp_path / "many", interleaved(64, 4_000), **limits)
    assert few < 120 * 16_000 + 500_000
    assert many < 1.5 * few
    unlimited = peak_of(tmp_path / "all", interleaved(64, 4_000))
    assert unlimited > 3 * many
