"""Which stretches of a log there are, on disk and behind a URL, and what is known to be lacking."""

import os
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from column_rows import expected_rows, rows_of
from growing_store import GrowingStore
from protocol.errors import ConfigError, NotAStore, StoreError
from spark_jobs.read.log_ranges import LogRanges, end_of, find_ranges
from spark_jobs.read.read_range import RangeReader
from spark_jobs.scan.source import find_source
from storage.columns.names import KINDS
from storage.columns.wanted import Wanted
from store_writer import StoreWriter


@pytest.fixture
def store(tmp_path: Path) -> StoreWriter:
    writer = StoreWriter(tmp_path / "store", segment_size=2048)
    for number in range(60):
        writer.append("T", b"body of %d" % number)
    writer.close()
    return writer


@pytest.fixture
def memory() -> Iterator[str]:
    """A directory of fsspec's file system in memory."""
    yield "memory://rocketlens/store"
    fsspec.filesystem("memory").rm("/rocketlens", recursive=True)


def upload(root: Path, url: str) -> None:
    fsspec.filesystem("memory").put(f"{root}/", f"{url.removeprefix('memory:/')}/", recursive=True)


def read(found: LogRanges) -> list[dict[str, object]]:
    rows = []
    for range_ in found.ranges:
        reader = RangeReader(range_, Wanted(), tuple(KINDS), fails_fast=True)
        rows += [row for columns in reader.read() for row in rows_of(columns)]
    return rows


class TestOfThisMachine:
    def test_every_segment_is_a_range_up_to_the_logs_end(self, store: StoreWriter) -> None:
        found = find_ranges(str(store.root))
        assert [each.base_offset for each in found.ranges] == list(store.log.segments)
        assert (found.minimum, found.end, found.problems) == (0, store.log.end, ())
        assert read(found) == expected_rows(store.records)

    def test_a_log_may_be_given_alone_or_by_a_file_url(self, store: StoreWriter) -> None:
        expected = find_ranges(str(store.root))
        assert find_ranges(str(store.root / "commitlog")) == expected
        assert find_ranges(f"file://{store.root}") == expected
        assert find_ranges(str(store.root), [str(store.root / "commitlog")]) == expected
        assert find_ranges(str(store.root), [f"file://{store.root}/commitlog"]) == expected

    def test_the_log_of_a_directory_may_lie_behind_a_url(self, store: StoreWriter, memory: str) -> None:
        """A part of it, or all."""
        upload(store.root / "commitlog", f"{memory}/log")
        rows = expected_rows(store.records)
        assert read(find_ranges(str(store.root), [f"{memory}/log"])) == rows
        first = next(iter(store.log.segments.values()))
        os.remove(first)
        assert read(find_ranges(str(store.root), [str(store.root / "commitlog"), f"{memory}/log"])) == rows

    def test_a_part_of_the_log_is_cut_out(self, store: StoreWriter) -> None:
        found = find_ranges(str(store.root))
        start, stop = store.written[5].physical_offset, store.written[40].physical_offset
        rows = read(LogRanges(found.within(start, stop)))
        assert rows == expected_rows(store.records)[5:40]
        assert found.within(stop, stop) == ()

    def test_a_missing_segment_and_a_torn_end_are_known(self, store: StoreWriter) -> None:
        os.remove(store.log.segments[2048])
        last = store.written[-1]
        store.overwrite(last.physical_offset + 30, b"\xff" * (last.size - 30))
        found = find_ranges(str(store.root))
        assert [(each.physical_offset, each.reason.split(":")[0]) for each in found.problems] == [
            (2048, "no segment is there"),
            (last.physical_offset, "the log ends there"),
        ]

    def test_what_is_being_written_is_not_lacking(self, tmp_path: Path) -> None:
        growing = GrowingStore(tmp_path)
        growing.add()
        growing.make_segment_in_advance()
        growing.flush()
        assert find_ranges(str(tmp_path)).problems == ()


class TestBehindUrls:
    def test_the_same_messages_are_read_and_a_missing_segment_is_known(self, store: StoreWriter, memory: str) -> None:
        upload(store.root, memory)
        found = find_ranges(memory)
        assert [each.base_offset for each in found.ranges] == list(store.log.segments)
        assert read(found) == expected_rows(store.records)
        assert found.ranges[-1].base_offset + end_of(found.ranges[-1]) == store.log.end
        assert read(find_ranges(f"{memory}/commitlog")) == expected_rows(store.records)
        assert read(find_ranges(memory, [f"{memory}/commitlog"])) == expected_rows(store.records)
        fsspec.filesystem("memory").rm("/rocketlens/store/commitlog/00000000000000002048")
        assert [(each.physical_offset, each.length) for each in find_ranges(memory).problems] == [(2048, 2048)]
        with pytest.raises(NotAStore):
            find_ranges(f"{memory}/config")
        with pytest.raises(ConfigError, match="nosuch"):
            find_ranges("nosuch://store")

    def test_a_log_in_several_directories_is_read_whole_and_in_order(
        self, store: StoreWriter, memory: str, tmp_path: Path
    ) -> None:
        """Of two segments with one name the longer counts, as on a disk."""
        root, directories = tmp_path / "spread", [tmp_path / "spread" / name for name in ("log-a", "log-b", "log-c")]
        for number, path in enumerate(sorted((store.root / "commitlog").iterdir())):
            for directory, size in ((directories[number % 2], None), (directories[2], 100)):
                directory.mkdir(parents=True, exist_ok=True)
                (directory / path.name).write_bytes(path.read_bytes()[:size])
        upload(root, memory)
        for given in (directories, directories[::-1]):
            here = find_ranges(str(root), list(map(str, given)))
            there = find_ranges(memory, [f"{memory}/{directory.name}" for directory in given])
            assert [each.base_offset for each in there.ranges] == list(store.log.segments)
            assert read(there) == read(here) == expected_rows(store.records)

    def test_segments_made_ahead_are_left_out(self, store: StoreWriter, memory: str) -> None:
        store.log.add_empty_segment()
        upload(store.root, memory)
        found = find_ranges(memory)
        assert len(found.ranges) == len(store.log.segments) - 1
        assert found.ranges[-1].is_last

    def test_a_segment_that_is_gone_is_an_error(self, store: StoreWriter, memory: str) -> None:
        upload(store.root, memory)
        found = find_ranges(memory)
        fsspec.filesystem("memory").rm("/rocketlens/store/commitlog/00000000000000000000")
        with pytest.raises(StoreError, match="cannot be opened"):
            read(found)


@pytest.mark.parametrize("name", [2**63 - 1, 2**63 - 4096])
def test_a_segment_that_reaches_beyond_the_largest_offset_is_named(tmp_path: Path, name: int) -> None:
    writer = StoreWriter(tmp_path)
    writer.append("T", b"x")
    writer.close()
    path = tmp_path / "commitlog" / f"{name:020d}"
    path.write_bytes(bytes(4096 + 8))
    for look in (lambda: find_source(tmp_path, ()), lambda: find_ranges(f"local://{tmp_path}")):
        with pytest.raises(StoreError, match=f"{name:020d}: of 4104 bytes reaches beyond"):
            look()


def test_a_segment_near_the_largest_offset_ends_before_it(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    for base, size in ((0, 1 << 20), (2**63 - 8192, 4096)):
        (tmp_path / "commitlog" / f"{base:020d}").write_bytes(bytes(size))
    found = find_ranges(str(tmp_path)).ranges
    assert found
    assert all(each.boundary < 2**63 for each in found)
    find_source(tmp_path, ())
