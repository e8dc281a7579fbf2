"""Index files that go on growing: what they cover is followed entry by entry, and the same as a new look finds."""

import multiprocessing
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import growing_index
import oracles
from examples import examples
from storage.index import index_examination as module
from storage.index._index_shape import IndexShape
from storage.index.index_examination import grown_shape
from storage.index.index_file import IndexFile, determine_shape
from storage.index.index_set import IndexSet
from storage.index.state_cache import StateCache
from storage.log.commit_log import CommitLog
from store_files import write_file
from store_writer import StoreWriter

SLOTS = 7


class Growing:
    """One store whose index file is looked at again and again."""

    def __init__(self, root: Path, **options: Any) -> None:
        self.writer = StoreWriter(root, index_slots=SLOTS, **{"index_entries": 1000, "segment_size": 4096, **options})
        self.index = IndexSet([], [], (0, 0))

    def add(self, *indexed: bool, tags: str | None = "t") -> None:
        for index in indexed:
            number = len(self.writer.written)
            self.writer.append("T", b"x" * 20, keys=f"k{number} a", unique_key=f"u{number}", tags=tags, index=index)
        self.writer.flush()

    @property
    def log(self) -> CommitLog:
        return CommitLog.open(self.writer.log.directories)

    def look(self) -> IndexSet:
        self.index = self.index.renewed(self.writer.root / "index", self.log, None, StateCache(None))
        return self.index

    def anew(self) -> IndexSet:
        return IndexSet.open(self.writer.root / "index", self.log, None, StateCache(None))

    @property
    def file(self) -> IndexFile:
        return self.index.files[-1].index

    def unlisted(self) -> set[int]:
        """Offsets of records of which some entry is missing in the files that are known, by the oracle."""
        entries = {
            (entry.key_hash, entry.physical_offset)
            for covering in self.index.files
            for number in range(1, covering.index.shape.entries + 1)
            for entry in [covering.index.entry(number)]
        }
        has_tags = all(covering.has_tags for covering in self.index.files)
        return {r.physical_offset for r in self.writer.records if oracles.lacks_entry(r, entries, has_tags)}


class TestFollowing:
    def test_what_is_noted_of_chains_holds_while_a_file_only_grows(self, tmp_path: Path) -> None:
        growing = Growing(tmp_path)
        growing.add(*[True] * 5)
        growing.look()
        noted = growing.file.shortcuts
        for _ in range(3):
            growing.add(True)
            growing.look()
            assert growing.file.shape.entries == growing.anew().files[0].index.shape.entries
            assert growing.file.shortcuts is noted

    def test_nothing_is_noted_of_a_file_that_was_written_to_and_looked_at_whole(self, tmp_path: Path) -> None:
        growing = Growing(tmp_path)
        growing.add(*[True] * 5)
        noted, mapped = growing.look().files[0].index.shortcuts, growing.file.file
        growing.add(True)
        directory = growing.writer.root / "index"
        growing.index = growing.index.renewed(directory, growing.log, None, StateCache(None), thorough=True)
        assert growing.file.file is mapped
        assert growing.file.shortcuts is not noted

    @settings(max_examples=examples(12), suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        st.lists(st.lists(st.sampled_from([True, True, True, False]), max_size=8), max_size=6),
        st.sampled_from([5, 12, 1000]),
        st.sampled_from(["5.5", "5.3"]),
    )
    def test_all_that_has_no_entry_is_left_to_the_scan(
        self, tmp_path_factory: pytest.TempPathFactory, steps: list[list[bool]], entries: int, profile: str
    ) -> None:
        growing = Growing(tmp_path_factory.mktemp("steps"), index_entries=entries, profile=profile)
        for indexed in steps:
            growing.add(*indexed)
            index, log = growing.look(), growing.log
            ranges = index.uncovered(log.minimum, log.end)
            assert all(any(start <= o < stop for start, stop in ranges) for o in growing.unlisted())
            assert [f.index.shape.entries for f in index.files] == [
                len(image.entries) for image in growing.writer.index.files if image.entries
            ]
            assert index.last_update == growing.anew().last_update

    def test_a_file_ahead_of_the_log_at_first_leaves_no_gap_behind(self, tmp_path: Path) -> None:
        growing = Growing(tmp_path)
        growing.add(*[True] * 4)
        early = growing.log
        growing.add(*[True] * 4)
        growing.index = growing.index.renewed(tmp_path / "index", early, None, StateCache(None))
        assert growing.file.shape.gaps != ()
        growing.add(True)
        growing.look()
        assert growing.file.shape.gaps == ()


class TestStatesOfAPut:
    """A file may be looked at between any two stores of a broker's."""

    def test_a_growth_is_taken_in_when_the_header_counts_it(self, tmp_path: Path) -> None:
        growing = Growing(tmp_path)
        growing.add(*[True] * 3)
        shape = growing.look().files[0].index.shape
        written = growing.writer.append("T", keys="new", index=False)
        image, path = growing.writer.index.files[0], growing.writer.index_paths()[0]
        for content in growing_index.put_in_steps(image, "T#new", written.physical_offset, written.store_timestamp):
            write_file(path, image.size, {0: content})
            grown = grown_shape(growing.file, growing.log, True)
            assert grown is not None
            counted = oracles.signed(content, 36, 4) - 1
            assert (grown.entries, grown.maximum) == (
                counted,
                written.physical_offset if counted > shape.entries else shape.maximum,
            )


@pytest.mark.soak  # kernels/test_indexes.py has every state that a put goes through
class TestFilling:
    def test_a_file_that_another_process_fills_while_it_is_examined_is_not_damaged(self, tmp_path: Path) -> None:
        """Neither to one who follows it nor to one who sees it for the first time, without a neighbour's slots."""
        growing = Growing(tmp_path, index_entries=4000, segment_size=1 << 20)
        growing.add(*[True] * 600)
        (image,), (path,), log = growing.writer.index.files, growing.writer.index_paths(), growing.log
        numbers = range(1, len(image.entries) + 1)
        puts = [growing_index.stores_of_entry(image, number) for number in numbers]
        path.write_bytes(bytes(image.size))
        growing_index.store_slowly(path, list(chain(*puts[:9])), 0.0)
        filling = multiprocessing.get_context("spawn").Process(
            target=growing_index.store_slowly, args=(path, list(chain(*puts[9:])), 2e-5)
        )
        filling.start()
        problems = set[str]()
        followed, anew = [9], [9]
        while filling.is_alive():
            for counts, index in (
                (followed, growing.look()),
                (anew, IndexSet.open(path.parent, log, None, StateCache(None))),
            ):
                problems |= set(index.problems)
                counts += [file.index.shape.entries for file in index.files]
        filling.join()
        assert filling.exitcode == 0
        assert problems == set()
        for counts in (followed, anew):
            assert counts == sorted(counts)
            assert len(set(counts)) > 10
        assert growing.look().files[0].index.shape == growing.anew().files[0].index.shape
        assert growing.file.shape.entries == len(image.entries)


class TestDamage:
    def test_entries_that_do_not_hold_together_have_the_whole_file_examined(self, tmp_path: Path) -> None:
        growing = Growing(tmp_path)
        growing.add(*[True] * 3)
        growing.look()
        image, path = growing.writer.index.files[0], growing.writer.index_paths()[0]
        growing.add(*[True] * 3)
        entry = 40 + 4 * SLOTS + 20 * len(image.entries)
        write_file(path, image.size, {entry: oracles.packed(-5, 4)})
        assert grown_shape(growing.file, growing.log, True) is None
        assert growing.look().files == ()
        assert "no slot count reproduces" in growing.index.problems[0]

    def test_a_file_of_no_use_is_examined_again_when_it_has_doubled(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        looks: list[object] = []

        def counting(*arguments: Any) -> IndexShape | None:
            looks.append(arguments)
            return determine_shape(*arguments)

        monkeypatch.setattr(module, "determine_shape", counting)
        growing = Growing(tmp_path)
        growing.add(*[True] * 4)
        image, path = growing.writer.index.files[0], growing.writer.index_paths()[0]
        write_file(path, image.size, {40 + 4 * SLOTS + 20: oracles.packed(-5, 4)})
        for count in (0, 1, 1, 1, 1, 1):
            growing.add(*[True] * count)
            write_file(path, image.size, {40 + 4 * SLOTS + 20: oracles.packed(-5, 4)})
            growing.look()
        assert len(looks) == 2

    def test_a_header_that_lies_is_not_followed_out_of_the_file(self, tmp_path: Path) -> None:
        growing = Growing(tmp_path, index_entries=20)
        growing.add(True, True)
        growing.look()
        image, path = growing.writer.index.files[0], growing.writer.index_paths()[0]
        write_file(path, image.size, {36: oracles.packed(2**31 - 1, 4)})
        assert grown_shape(growing.file, growing.log, True) is None
