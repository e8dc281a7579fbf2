"""Entries find their files by counting alone; compared with putting them one by one."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.build.place_entries import (
    Boundary,
    EntryBlock,
    EntryTable,
    PlacedFile,
    cut_blocks,
    has_record_behind,
    pieces_of_blocks,
    place,
)
from spark_jobs.run.blocks import BlockWriter

Entry = tuple[int, int]
"""Physical offset of the record, and the number of the entry in it."""


def write_blocks(path: Path, records: list[int], splits: set[int]) -> list[EntryBlock]:
    """Blocks of records at offsets 0, 10, 20, … with so many entries each, a new block at each split."""
    blocks: list[EntryBlock] = []
    bounds = [0, *sorted(split for split in splits if 0 < split < len(records)), len(records)]
    with BlockWriter(path, "log") as writer:
        for start, stop in itertools.pairwise(bounds):
            counts = records[start:stop]
            keyed = [number for number, count in enumerate(counts) if count]
            columns = {
                "offsets": np.array([10 * number for number in keyed], dtype=np.uint32),
                "timestamps": np.array([1000 + start + number for number in keyed], dtype=np.int64),
                "counts": np.array([counts[number] for number in keyed], dtype=np.uint16),
                "hashes": np.arange(sum(counts), dtype=np.int32),
            }
            position = writer.write(10 * start, 10 * stop, columns)
            blocks.append(EntryBlock(str(path), position, 10 * start, 10 * stop, sum(counts), 10 * (stop - 1)))
    return blocks


def write_segments(path: Path, records: list[int], splits: set[int], cuts: set[int]) -> list[EntryTable]:
    """The same blocks, of which each segment has those up to the next cut; tables in place of lists."""
    blocks = write_blocks(path, records, splits)
    bounds = [0, *sorted(cut for cut in cuts if 0 < cut < len(blocks)), len(blocks)]
    tables = []
    for start, stop in itertools.pairwise(bounds):
        mine = blocks[start:stop]
        rows = [[each.position, each.first, each.end, each.entries, each.last_record] for each in mine]
        with path.open("ab") as file, BlockWriter(path.with_name("table"), "log") as writer:
            position = file.tell()
            writer.write_list(rows)
            file.write(writer.path.read_bytes())
        writer.path.unlink()
        entries = sum(each.entries for each in mine)
        tables.append(EntryTable(str(path), position, mine[0].first, mine[-1].end, entries, mine[-1].last_record))
    return tables


def entries_of(file: PlacedFile) -> list[Entry]:
    """The entries that a file's pieces stand for."""
    found: list[Entry] = []
    for piece in pieces_of_blocks(file.pieces):
        columns = piece.block.read().columns
        every = [
            (piece.block.first + int(offset), number)
            for offset, count in zip(columns["offsets"], columns["counts"], strict=True)
            for number in range(count)
        ]
        found += every[piece.skip : piece.skip + piece.count]
    return found


def put_one_by_one(records: list[int], capacity: int, start: Boundary | None, end: int) -> list[list[Entry]]:
    """What a broker does: a dispatched record opens a file where there is none or the last one is full."""
    files: list[list[Entry]] = []
    for number, count in enumerate(records):
        offset = 10 * number
        skipped = 0
        if start is not None and offset <= start.physical_offset:
            if offset < start.physical_offset:
                continue
            skipped = min(start.entries, count)
            if skipped == count:
                continue
        if offset >= end:
            break
        if not files or len(files[-1]) == capacity:
            files.append([])
        for entry in range(skipped, count):
            if len(files[-1]) == capacity:
                files.append([])
            files[-1].append((offset, entry))
    return files


@settings(max_examples=150, deadline=None)
@given(
    records=st.lists(st.integers(0, 5), min_size=1, max_size=30),
    splits=st.sets(st.integers(1, 29)),
    capacity=st.integers(1, 12),
    start=st.none() | st.builds(Boundary, st.integers(0, 29).map(lambda n: 10 * n), st.integers(0, 5)),
    end=st.integers(0, 31).map(lambda n: 10 * n),
    cuts=st.none() | st.sets(st.integers(1, 29)),
)
def test_files_hold_what_putting_one_by_one_gives(
    tmp_path_factory: pytest.TempPathFactory,
    records: list[int], splits: set[int], capacity: int, start: Boundary | None, end: int,
    cuts: set[int] | None,
) -> None:  # fmt: skip
    """Pieces are of blocks, or with `cuts` of segments, whose blocks the driver does not know."""
    path = tmp_path_factory.mktemp("place") / "blocks"
    blocks: Sequence[EntryBlock] = (
        write_blocks(path, records, splits) if cuts is None else write_segments(path, records, splits, cuts)
    )
    pieces = cut_blocks(blocks, start, end)
    # Inside a cut block only keyed records are known by their offsets: give the last one below the end entries.
    every = [each for block in blocks for each in block.blocks()]
    if any(each.first < end <= each.last_record for each in every) and 0 < end <= 10 * len(records):
        records_below = records[: end // 10]
        if records_below and not records_below[-1]:
            return
    files = place(pieces, capacity, has_record_behind(blocks, pieces, start, end))
    expected = put_one_by_one(records, capacity, start, end)
    assert [entries_of(file) for file in files] == expected
    flat = [entry for file in expected for entry in file]
    for file, entries in zip(files, expected, strict=True):
        before = flat[: flat.index(entries[0])] if entries else flat
        assert (file.before is None) == (not before)
        if file.before is not None:
            assert entries_of(PlacedFile((file.before,), None)) == [before[-1]]
