"""Records that an index lacks between its first and its last entry, found by holding it against the log."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import oracles
from examples import examples
from storage.files.mapped_file import MappedFile
from storage.index import _index_coverage as module
from storage.index._index_coverage import find_gaps
from storage.index._index_shape import MAXIMUM_GAPS
from storage.index.index_file import IndexFile, determine_shape
from storage.log.commit_log import CommitLog
from store_writer import StoreWriter

SLOTS = 7


def written_with_holes(root: Path, indexed: Iterable[bool], **options: Any) -> StoreWriter:
    """Messages of which some were never dispatched to the index."""
    writer = StoreWriter(root, index_slots=SLOTS, index_entries=10_000, segment_size=4096, **options)
    for number, index in enumerate(indexed):
        writer.append("T", b"x" * 30, keys=f"k{number}", unique_key=f"u{number}", tags="t", index=index)
    return writer


def gaps_of(writer: StoreWriter, number: int = 0, *, has_tags: bool = True) -> tuple[tuple[int, int], ...]:
    """The gaps of one index file, the store being complete now."""
    writer.close()
    file = MappedFile.open(writer.index_paths()[number])
    shape = determine_shape(file, [writer.index.slot_count])
    assert shape is not None
    return find_gaps(IndexFile(file, shape), CommitLog.open(writer.log.directories), has_tags)


def lacking(writer: StoreWriter, number: int = 0) -> set[int]:
    """Offsets of records inside the span of one index file that lack an entry, by the oracle; both ends left out."""
    image = writer.index.files[number]
    entries = [(hashed, offset) for hashed, offset, _, _ in image.entries]
    offsets = [offset for _, offset in entries]
    has_tags = writer.index.profile == "5.5"
    return {
        record.physical_offset
        for record in writer.records
        if min(offsets) < record.physical_offset < max(offsets) and oracles.lacks_entry(record, entries, has_tags)
    }


class TestGaps:
    def test_one_missing_key_of_a_message_is_a_gap(self, tmp_path: Path) -> None:
        writer = StoreWriter(tmp_path, index_slots=SLOTS, index_entries=1000)
        for number in range(5):
            writer.append("T", keys="a b", index=number != 2)
        image = writer.index.files[0]
        missing = writer.written[2].physical_offset
        rebuilt = oracles.IndexImage(SLOTS, 1000)
        for record in writer.records:
            for text in oracles.index_keys(record)[: 1 if record.physical_offset == missing else 2]:
                rebuilt.put(text, record.physical_offset, record.store_timestamp)
        image.slots, image.entries = rebuilt.slots, rebuilt.entries
        assert gaps_of(writer) == ((missing, writer.written[3].physical_offset),)

    @pytest.mark.parametrize("profile", ["5.5", "5.3"])
    @settings(max_examples=examples(12), suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(indexed=st.lists(st.booleans(), min_size=2, max_size=40))
    def test_exactly_what_lacks_entries_lies_in_gaps(
        self, tmp_path_factory: pytest.TempPathFactory, profile: str, indexed: list[bool]
    ) -> None:
        writer = written_with_holes(tmp_path_factory.mktemp("holes"), [True, *indexed, True], profile=profile)
        gaps = gaps_of(writer, has_tags=profile == "5.5")
        inside = {
            written.physical_offset
            for written in writer.written
            if any(start <= written.physical_offset < stop for start, stop in gaps)
        }
        assert inside == lacking(writer)
        assert list(gaps) == sorted(gaps)

    def test_more_gaps_than_are_kept_make_one_of_the_rest(self, tmp_path: Path) -> None:
        writer = written_with_holes(tmp_path, [number % 2 == 0 for number in range(401)])
        at = [written.physical_offset for written in writer.written]
        gaps = gaps_of(writer)
        assert gaps[:MAXIMUM_GAPS] == tuple((at[n], at[n + 1]) for n in range(1, 2 * MAXIMUM_GAPS, 2))
        assert gaps[MAXIMUM_GAPS:] == ((at[2 * MAXIMUM_GAPS], at[400]),)


class TestCutLog:
    """A crash cut the log under the index; what is written anew below the last entry's offset is not indexed."""

    def cut(self, root: Path, count: int, cut: int, anew: int, size: int = 41) -> StoreWriter:
        writer = written_with_holes(root, [True] * count)
        start = writer.written[cut].physical_offset
        for written in writer.written[cut:]:
            writer.overwrite(written.physical_offset, bytes(written.size))
        for path in [path for base, path in writer.log.segments.items() if base > start]:
            path.unlink()
        writer.log.segments = {base: path for base, path in writer.log.segments.items() if base <= start}
        writer.log.end, writer.written = start, writer.written[:cut]
        for number in range(anew):
            writer.append("T", b"y" * size, keys=f"new{number}")
        return writer

    @pytest.mark.parametrize("anew", [1, 5, 12])
    def test_what_was_written_below_the_last_entry_is_a_gap(self, tmp_path: Path, anew: int) -> None:
        writer = self.cut(tmp_path, 60, 40, anew)
        assert writer.log.end < writer.index.files[0].entries[-1][1]
        gaps = gaps_of(writer)
        for written in writer.written[40:]:
            assert any(start <= written.physical_offset < stop for start, stop in gaps)
        for written in writer.written[1:39]:
            assert not any(start < written.physical_offset < stop for start, stop in gaps)

    def test_records_at_the_start_of_a_log_whose_beginning_expired_are_compared(self, tmp_path: Path) -> None:
        writer = StoreWriter(tmp_path, index_slots=SLOTS, index_entries=1000, segment_size=4096)
        for number in range(60):
            writer.append("T", b"x" * 30, keys=f"k{number}", index=not 31 <= number < 35)
        (tmp_path / "commitlog" / f"{0:020d}").unlink()
        first = next(written for written in writer.written if written.physical_offset >= 4096)
        writer.written = [written for written in writer.written if written.physical_offset >= 4096]
        gaps = gaps_of(writer)
        assert first.physical_offset == 4096
        assert gaps == ((4096, writer.written[4].physical_offset),)


class TestBudget:
    """Only the newest part of a log is compared; further back, far neighbours tell of a gap."""

    @pytest.fixture(autouse=True)
    def small_budget(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "COMPARED_BYTES", 4000)

    def test_a_gap_in_the_newest_part_is_found_and_one_before_it_not_looked_for(self, tmp_path: Path) -> None:
        writer = written_with_holes(tmp_path, [number not in (10, 95) for number in range(100)])
        at = [written.physical_offset for written in writer.written]
        assert gaps_of(writer) == ((at[95], at[96]),)
