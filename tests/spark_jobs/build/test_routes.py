"""What tasks are sent of the rows of a scan: the blocks with entries and units that they want, whole or not at all."""

import random
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocol.errors import StoreError
from spark_jobs.build._routes import Goal, Routes
from spark_jobs.build.build_queues import BuiltPart
from spark_jobs.build.exchange import SCAN
from spark_jobs.build.shuffle_exchange import make_rows
from spark_jobs.build.unit_blocks import queue_names, queue_runs
from spark_jobs.run.blocks import Block, BlockWriter, read_block_at, unpack_block
from spark_jobs.run.kept_rows import Row
from spark_jobs.scan import scanned_rows
from spark_jobs.scan.scan_segment import ScanTask
from spark_jobs.scan.scanned_rows import RowHead, RowKind, land_some
from store_writer import StoreWriter

Entry = tuple[int, int, int]
HOT = (b"Hot", 1)
END = 1 << 40
PIECE = 200
"""Bytes of a row here: blocks of a small store have more, too."""


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    """The rows of two segments; some records have no key, and one has many."""
    writer = StoreWriter(tmp_path_factory.mktemp("routes") / "store", segment_size=16_384)
    for number in range(120):
        keys = " ".join(f"k{number}-{key}" for key in range((0, 1, 3, 30)[number % 4]))
        writer.append("Hot" if number % 3 else "Cold", keys=keys, unique_key=None, queue_id=number % 3)
    writer.close()
    segments = sorted((writer.root / "commitlog").iterdir())
    assert len(segments) >= 2
    scans = [
        ScanTask(
            work="", path=str(path), base_offset=int(path.name), limit=-1, entries=True, checksums=False, tags=False,
            bundles=1, delays=(), lmq=False, ext=False, batch_topics=(),
        )
        for path in segments
    ]  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scanned_rows, "PIECE_BYTES", PIECE)
        return [row for number, scan in enumerate(scans) for row in make_rows(SCAN, (number, scan))]


Blocks = list[tuple[RowHead, bytes]]


def blocks_of(rows: Iterable[Row]) -> Blocks:
    """The blocks of rows that have come in order, by loops."""
    blocks: dict[RowHead, bytes] = {}
    for row in rows:
        assert row.start == len(blocks.get(row.head, b""))
        blocks[row.head] = blocks.get(row.head, b"") + row.data
    assert blocks
    return list(blocks.items())


def entries_of(head: RowHead, block: bytes) -> list[Entry]:
    """Physical offset, store time (ms) and hash of the entries of a block, by loops."""
    columns = unpack_block(Path("row"), memoryview(block)).columns
    hashes = iter(columns["hashes"].tolist())
    return [
        (head.base + offset, timestamp, next(hashes))
        for offset, timestamp, count in zip(
            columns["offsets"].tolist(), columns["timestamps"].tolist(), columns["counts"].tolist(), strict=True
        )
        for _ in range(count)
    ]


def segment_entries(rows: Sequence[Row], segment: int) -> list[Entry]:
    """All entries of a segment."""
    return [
        entry
        for head, block in blocks_of(row for row in rows if row.head[:2] == (RowKind.ENTRIES, segment))
        for entry in entries_of(head, block)
    ]


def test_a_file_gets_the_blocks_that_have_any_of_its_entries_wherever_it_begins_and_ends(rows: list[Row]) -> None:
    generator = random.Random(7)
    assert all(len(row.data) <= PIECE for row in rows if row.head.kind != RowKind.SUMMARY)
    every = segment_entries(rows, 1)
    assert len(every) > 100
    for _ in range(50):
        cuts = sorted({0, len(every), *generator.sample(range(len(every)), 4)})
        ranges = tuple(Goal(task, *cut) for task, cut in enumerate(pairwise(cuts)))
        sent = list(Routes({1: ranges}, {})(iter(rows)))
        assert {task for task, _ in sent} == {each.task for each in ranges}
        for each in ranges:
            found = []
            for head, block in blocks_of(row for task, row in sent if task == each.task):
                entries = entries_of(head, block)
                assert head.entries == len(entries)
                own = entries[max(each.first - head.first, 0) : each.stop - head.first]
                assert own
                found += own
            assert found == every[each.first : each.stop]


def test_a_queue_that_is_built_in_parts_goes_to_its_parts_alone(rows: list[Row]) -> None:
    """A part gets the runs that it has anything of; the bundle's task learns of all queues all the same."""
    units = blocks_of(row for row in rows if row.head.kind == RowKind.UNITS)
    runs = [run for _, block in units for run in queue_runs(unpack_block(Path("row"), memoryview(block)), END)]
    hot = [run for run in runs if run.name == HOT]
    assert len(hot) >= 2
    middle = hot[1].first
    parts = [BuiltPart(*HOT, 0, 0, middle, is_last=False), BuiltPart(*HOT, 1, middle, END, is_last=True)]
    assert list(Routes({}, {})(iter(rows))) == [], "of bundles that nobody builds"
    goals = [Goal(0, 0, 9), *(Goal(number + 1, 0, 9, part) for number, part in enumerate(parts))]
    sent = list(Routes({}, {0: goals})(iter(rows)))

    def blocks_at(task: int) -> list[Block]:
        own = blocks_of(row for to, row in sent if to == task)
        return [unpack_block(Path("row"), memoryview(block)) for _, block in own]

    def runs_of(task: int) -> list[tuple[object, int, bytes]]:
        return [(run.name, run.first, bytes(run.units)) for block in blocks_at(task) for run in queue_runs(block, END)]

    assert runs_of(0) == [(run.name, run.first, bytes(run.units)) for run in runs if run.name != HOT]
    assert runs_of(1) == [(run.name, run.first, bytes(run.units)) for run in hot if run.first < middle]
    assert runs_of(2) == [(run.name, run.first, bytes(run.units)) for run in hot if run.first >= middle]
    names = [queue_names(block) for block in blocks_at(0)]
    assert names == [queue_names(unpack_block(Path("row"), memoryview(block))) for _, block in units]


@given(data=st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_blocks_land_whole_in_whatever_order_their_pieces_come_and_not_without_any_of_them(
    rows: list[Row], tmp_path: Path, data: st.DataObject
) -> None:
    """PySpark takes rows that break off for their end."""
    kind = data.draw(st.sampled_from((RowKind.ENTRIES, RowKind.UNITS)))
    come = data.draw(st.permutations(range(len(rows))))
    lost = data.draw(st.integers(0, len(rows)))
    path = tmp_path / "landed"
    path.unlink(missing_ok=True)
    got = [rows[number] for number in come if number != lost]
    expected = blocks_of(row for row in rows if row.head.kind == kind)
    is_whole_block = lost < len(rows) and rows[lost].size <= PIECE
    with BlockWriter(path, "rows") as writer:
        if lost < len(rows) and rows[lost].head.kind == kind and (not is_whole_block or kind == RowKind.UNITS):
            with pytest.raises(StoreError, match="what was sent to a task breaks off"):
                land_some(iter(got), {kind}, writer)
            return
        landed = land_some(iter(got), {kind}, writer)
    if lost < len(rows) and rows[lost].head.kind == kind:  # whose entries its task counts
        expected = [each for each in expected if each[0] != rows[lost].head]
    assert [head for head, _ in landed] == [head for head, _ in expected]
    for (_, position), (_, block) in zip(landed, expected, strict=True):
        assert path.read_bytes()[position : position + len(block)] == block
        read_block_at(path, position)
