"""All index files together: what they cover, what is scanned instead, what is said about those that are of no use."""

import os
from pathlib import Path
from typing import Any

import pytest

import oracles
from golden_store import GOLDEN, log_folders, unpack
from storage.files.mapped_file import MappedFile
from storage.index import index_examination as module
from storage.index._index_shape import IndexShape
from storage.index.index_file import IndexFile
from storage.index.index_set import CoveringFile, IndexSet
from storage.index.state_cache import StateCache
from storage.log.commit_log import CommitLog
from store_files import write_file
from store_writer import StoreWriter

Span = tuple[int, int]


def opened(writer: StoreWriter, vouched: tuple[int, int] | None = None) -> IndexSet:
    return IndexSet.open(writer.root / "index", CommitLog.open(writer.log.directories), vouched, StateCache(None))


def filled(root: Path, count: int, **options: Any) -> StoreWriter:
    writer = StoreWriter(root, **{"index_slots": 31, "index_entries": 10, **options})
    for number in range(count):
        writer.append("T", keys=f"k{number}", unique_key=f"u{number}")
    writer.close()
    return writer


def set_of(tmp_path: Path, *shapes: IndexShape) -> IndexSet:
    """A set of files of which only the shapes matter."""
    path = tmp_path / "any"
    path.write_bytes(bytes(100))
    file = MappedFile.open(path)
    return IndexSet([CoveringFile(IndexFile(file, shape), True) for shape in shapes], [], (0, 0))


def span(start: int, stop: int, *gaps: Span) -> IndexShape:
    return IndexShape(7, 5, start, stop, True, gaps)


class TestCoverage:
    """What is not strictly between the first and the last entry of a file, or in its gaps, is scanned."""

    @pytest.mark.parametrize(
        ("shapes", "expected"),
        [
            ([], [(0, 1000)]),
            ([span(100, 900)], [(0, 101), (900, 1000)]),
            ([span(100, 400), span(400, 900)], [(0, 101), (400, 401), (900, 1000)]),
            ([span(100, 400), span(500, 900)], [(0, 101), (400, 501), (900, 1000)]),
            ([span(100, 600), span(400, 900)], [(0, 101), (900, 1000)]),
            ([span(100, 900, (300, 400), (500, 600))], [(0, 101), (300, 401), (500, 601), (900, 1000)]),
            ([span(100, 900, (300, 900))], [(0, 101), (300, 901), (900, 1000)]),
            ([span(100, 100)], [(0, 101), (100, 1000)]),
            ([span(100, 5000)], [(0, 101)]),
            ([span(2000, 5000)], [(0, 1000)]),
        ],
    )
    def test_ranges_to_be_scanned_reach_from_one_covered_range_to_the_next(
        self, tmp_path: Path, shapes: list[IndexShape], expected: list[Span]
    ) -> None:
        assert set_of(tmp_path, *shapes).uncovered(0, 1000) == expected

    @pytest.mark.parametrize(
        ("shapes", "expected"),
        [
            ([span(100, 400)], [(500, 1000)]),
            ([span(100, 400), span(600, 800)], [(500, 601), (800, 1000)]),
            ([span(100, 1000)], []),
        ],
    )
    def test_a_log_whose_beginning_expired_is_scanned_from_its_start(
        self, tmp_path: Path, shapes: list[IndexShape], expected: list[Span]
    ) -> None:
        assert set_of(tmp_path, *shapes).uncovered(500, 1000) == expected


class TestOpening:
    def test_a_directory_that_cannot_be_listed_is_a_problem(self, tmp_path: Path) -> None:
        (tmp_path / "index").write_text("a file")
        index = IndexSet.open(tmp_path / "index", CommitLog([], []), None, StateCache(None))
        assert index.problems == (
            f"{tmp_path / 'index'} cannot be listed: Not a directory; every key is looked for in the log",
        )

    @pytest.mark.parametrize("name", ["20260101000000000.tmp", "2026010100000000"])
    def test_what_is_no_index_file_is_named_and_ignored(self, tmp_path: Path, name: str) -> None:
        writer = filled(tmp_path, 5)
        (tmp_path / "index" / name).write_bytes(bytes(1000))
        assert opened(writer).problems == (f"{tmp_path / 'index' / name} is no index file and is ignored",)

    def test_names_in_other_digits_and_other_calendars_are_index_files(self, tmp_path: Path) -> None:  # th-TH, ar-EG
        writer = filled(tmp_path, 30)
        paths = writer.index_paths()
        arabic = "".join(chr(0x660 + int(digit)) for digit in paths[1].name)
        paths[0].rename(paths[0].with_name("2569" + paths[0].name[4:]))
        paths[1].rename(paths[1].with_name(arabic))
        index = opened(writer)
        assert index.problems == ()
        assert len(index.files) == len(paths)

    def test_an_empty_file_covers_nothing_and_is_no_problem(self, tmp_path: Path) -> None:
        writer = StoreWriter(tmp_path, index_slots=31, index_entries=3)
        writer.append("T", keys="a b")
        writer.append("T", b"no keys: opens the next file and puts nothing into it")
        writer.close()
        assert len(writer.index.files) == 2
        index = opened(writer)
        assert index.problems == ()
        assert len(index.files) == 1

    def test_entries_that_fall_in_physical_offset_are_not_relied_on(self, tmp_path: Path) -> None:
        writer = filled(tmp_path, 30, index_entries=200)
        image = oracles.IndexImage(31, 200)
        for record in sorted(writer.records, key=lambda record: record.physical_offset != 0, reverse=True):
            for text in oracles.index_keys(record):
                image.put(text, record.physical_offset, record.store_timestamp)
        writer.index.files = [image]
        writer.close()
        index = opened(writer)
        assert index.files == ()
        assert "do not belong to this log" in index.problems[0]


class TestCounts:
    def test_an_undecided_file_asks_for_its_counts_and_is_scanned(self, tmp_path: Path) -> None:
        writer = filled(tmp_path, 30, index_entries=1000)
        (path,) = writer.index_paths()
        write_file(path, path.stat().st_size, {36: bytes(4)})
        index = opened(writer)
        assert index.files == ()
        assert index.uncovered(0, writer.log.end) == [(0, writer.log.end)]
        (problem,) = index.problems
        assert problem.startswith(f"{path}: no slot count reproduces its slots and pointers; its range is scanned")
        assert "--index-slots" in problem
        assert "--index-entries" in problem

    def test_told_its_counts_an_undecided_file_is_used(self, tmp_path: Path) -> None:
        writer = filled(tmp_path, 30, index_entries=1000)
        (path,) = writer.index_paths()
        write_file(path, path.stat().st_size, {36: bytes(4)})
        index = opened(writer, (31, 1000))
        assert index.problems == ()
        assert [file.index.shape.entries for file in index.files] == [60]


class TestView:
    @pytest.mark.parametrize(("size", "slots", "seen"), [(40, 5_000_000, 0), (68, 7, 0), (108, 7, 1), (60 << 30, 7, 1)])
    def test_a_file_of_any_length_can_be_shown(self, size: int, slots: int, seen: int, tmp_path: Path) -> None:
        path = tmp_path / "20260101000000000"
        path.touch()
        os.truncate(path, size)
        index = IndexFile(MappedFile.open(path), IndexShape(slots, 0, 0, 0, True, ()))
        assert len(IndexSet([CoveringFile(index, has_tags=True)], [], (0, 0)).view) == seen


class TestGolden:
    @pytest.mark.parametrize("name", ["store"])
    def test_the_recorded_index_covers_all_but_the_ends_of_its_files(self, tmp_path: Path, name: str) -> None:
        root = unpack(name, tmp_path)
        log = CommitLog.open([root / "commitlog"])
        index = IndexSet.open(root / "index", log, None, StateCache(None))
        assert index.problems == ()
        assert len(index.files) == 10
        assert all(file.has_tags and file.index.shape.ascending and not file.index.shape.gaps for file in index.files)
        ends = {end for file in index.files for end in (file.index.shape.minimum, file.index.shape.maximum)}
        starts = [record.physical_offset for record in oracles.read_log(root / "commitlog")]
        scanned = {s for s in starts if any(a <= s < b for a, b in index.uncovered(log.minimum, log.end))}
        assert scanned <= ends | {start for start in starts if start > max(ends)}

    @pytest.mark.parametrize("name", ["g2-hosts", "g2-queues-5.5.1", "g2-ext", "g2-dledger-mixed"])
    def test_other_recorded_indexes_are_sound(self, tmp_path: Path, name: str) -> None:
        folder = GOLDEN / "g2" / name
        root = unpack("store", tmp_path, archives=folder)
        log = CommitLog.open(log_folders(root))
        index = IndexSet.open(root / "index", log, None, StateCache(None))
        assert index.problems == ()
        assert len(index.files) == len(list((root / "index").iterdir())) > 0
        assert all(file.index.shape.ascending and not file.index.shape.gaps for file in index.files)


class TestCache:
    def ranges(self, writer: StoreWriter, state: Path) -> list[Span]:
        """What is left to scan, by what is cached or found."""
        cache, log = StateCache.load(state), CommitLog.open(writer.log.directories)
        index = IndexSet.open(writer.root / "index", log, None, cache)
        cache.save()
        return index.uncovered(log.minimum, log.end)

    def test_what_is_cached_is_not_looked_for_again(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        writer, state = filled(tmp_path / "store", 30), tmp_path / "state"
        first = self.ranges(writer, state)
        for name in ("determine_shape", "probe_index_file", "find_gaps"):
            monkeypatch.setattr(module, name, None)
        assert self.ranges(writer, state) == first

    @pytest.mark.parametrize("anew", [0, 40])
    def test_a_finding_of_before_the_log_was_cut_is_thrown_away(self, tmp_path: Path, anew: int) -> None:
        """The index file stays as it was, and knows nothing of what was written anew."""
        writer, state = filled(tmp_path / "store", 30, index_entries=1000), tmp_path / "state"
        before = self.ranges(writer, state)
        start = writer.written[20].physical_offset
        writer.overwrite(start, bytes(writer.log.end - start))
        writer.log.end, writer.written = start, writer.written[:20]
        for number in range(anew):
            writer.append("T", b"another length", keys=f"new{number}", index=False)
        for path in writer.log.segments.values():
            os.utime(path, ns=(1, 1))  # clocks of file systems may tick too slowly to tell
        ranges = self.ranges(writer, state)
        assert ranges != before
        for written in writer.written[20:]:
            assert any(begin <= written.physical_offset < end for begin, end in ranges)
