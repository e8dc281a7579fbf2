"""What tasks are sent of the rows of a scan: the entries and units that they want, in the order of the log."""

import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from spark_jobs.build.build_queues import QueuePart
from spark_jobs.build.routes import BundleRoute, EntryRange, PartRoute, Routes
from spark_jobs.build.unit_blocks import queue_names, queue_runs
from spark_jobs.run.blocks import unpack_block
from spark_jobs.run.kept_rows import Row
from spark_jobs.scan.scan_segment import ScanTask
from spark_jobs.scan.scanned_rows import NumberedScan, RowHead, RowKind, block_of, scan_rows
from store_writer import StoreWriter

Entry = tuple[int, int, int]
HOT = (b"Hot", 1)
END = 1 << 40


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
    return [row for number, scan in enumerate(scans) for row in scan_rows(NumberedScan(number, scan))]


def entries_of(row: Row) -> list[Entry]:
    """Physical offset, store time (ms) and hash of the entries of a row, by loops."""
    columns = unpack_block(Path("row"), block_of(row)).columns
    hashes = iter(columns["hashes"].tolist())
    return [
        (RowHead.of(row).base + offset, timestamp, next(hashes))
        for offset, timestamp, count in zip(
            columns["offsets"].tolist(), columns["timestamps"].tolist(), columns["counts"].tolist(), strict=True
        )
        for _ in range(count)
    ]


def segment_entries(rows: Sequence[Row], segment: int) -> list[Entry]:
    """All entries of a segment."""
    return [
        entry
        for row in rows
        if (RowHead.of(row).kind, RowHead.of(row).segment) == (RowKind.ENTRIES, segment)
        for entry in entries_of(row)
    ]


def test_entries_are_cut_wherever_files_begin_and_end(rows: list[Row]) -> None:
    generator = random.Random(7)
    every = segment_entries(rows, 1)
    assert len(every) > 100
    for _ in range(50):
        cuts = sorted({0, len(every), *generator.sample(range(len(every)), 4)})
        ranges = tuple(EntryRange(task, *cut) for task, cut in enumerate(pairwise(cuts)))
        sent = list(Routes({1: ranges}, {})(iter(rows)))
        assert {task for task, _ in sent} == {each.task for each in ranges}
        for each in ranges:
            found = []
            for task, row in sent:
                head = RowHead.of(row)
                if task == each.task:
                    assert head.entries == len(entries_of(row))
                    skip = max(each.first - head.first, 0)
                    found += entries_of(row)[skip : each.stop - head.first]
            assert found == every[each.first : each.stop]


def test_a_cut_block_has_no_more_than_the_records_that_are_wanted(rows: list[Row]) -> None:
    every = segment_entries(rows, 0)
    number = next(number for number in range(1, len(every)) if every[number][0] != every[number - 1][0])
    ((_, row),) = Routes({0: (EntryRange(0, number, number + 1),)}, {})(iter(rows))
    assert {entry[0] for entry in entries_of(row)} == {every[number][0]}


def test_a_queue_that_is_built_in_parts_goes_to_its_parts_alone(rows: list[Row]) -> None:
    """A part gets the runs that it has anything of; the bundle's task learns of all queues all the same."""
    units = [row for row in rows if RowHead.of(row).kind == RowKind.UNITS]
    runs = [run for row in units for run in queue_runs(unpack_block(Path("row"), block_of(row)), END)]
    hot = [run for run in runs if run.name == HOT]
    assert len(hot) >= 2
    middle = hot[1].first
    parts = [QueuePart(*HOT, 0, 0, middle, is_last=False), QueuePart(*HOT, 1, middle, END, is_last=True)]
    routes = tuple(PartRoute(number + 1, part, 0, 9) for number, part in enumerate(parts))
    sent = list(Routes({}, {0: BundleRoute(0, routes)})(iter(rows)))

    def runs_of(task: int) -> list[tuple[object, int, bytes]]:
        blocks = [unpack_block(Path("row"), block_of(row)) for to, row in sent if to == task]
        return [(run.name, run.first, bytes(run.units)) for block in blocks for run in queue_runs(block, END)]

    assert runs_of(0) == [(run.name, run.first, bytes(run.units)) for run in runs if run.name != HOT]
    assert runs_of(1) == [(run.name, run.first, bytes(run.units)) for run in hot if run.first < middle]
    assert runs_of(2) == [(run.name, run.first, bytes(run.units)) for run in hot if run.first >= middle]
    names = [queue_names(unpack_block(Path("row"), block_of(row))) for to, row in sent if to == 0]
    assert names == [queue_names(unpack_block(Path("row"), block_of(row))) for row in units]


def test_units_of_bundles_that_nobody_builds_go_nowhere(rows: list[Row]) -> None:
    assert list(Routes({}, {})(iter(rows))) == []
    assert np.sum([RowHead.of(row).kind == RowKind.UNITS for row in rows]) > 0
