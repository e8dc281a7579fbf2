"""Index files from scans of whole stores: byte for byte those of a broker, and of the writer that is proved by one."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from dispatching import scan_store
from examples import examples
from golden_store import GOLDEN, log_folders, unpack
from index_building import build_files
from storage.build.dispatch_scan import DispatchBlock
from storage.build.index_builder import CompactFileBuilder, EntryColumns, IndexFileBuilder
from storage.index.index_file import IndexHeader
from strategies import StorePlan, store_plans

G2_COUNTS = {
    "g2-hosts": (50, 60),
    "g2-queues-5.5.1": (97, 150),
    "g2-ext": (31, 400),
    "g2-dledger": (97, 150),
}


def blocks_of(directories: list[Path], *, tags: bool = True, records: int = 1 << 10) -> list[DispatchBlock]:
    scans = scan_store(directories, tags=tags, records=records)
    return [block for scanned in scans for block in scanned.blocks]


def index_files(root: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((root / "index").iterdir())]


def columns_of(hashes: list[int], per_record: int = 1) -> EntryColumns:
    records = len(hashes) // per_record
    return EntryColumns(
        0,
        np.arange(records, dtype=np.uint32) * 100,
        np.full(records, 1_700_000_000_000, np.int64),
        np.full(records, per_record, np.uint16),
        np.array(hashes, np.int32),
    )


class TestRecordedStores:
    def test_all_index_files_of_g1_come_out_byte_for_byte(self, g1_store: Path) -> None:
        recorded = index_files(g1_store)
        assert len(recorded) == 10
        assert build_files(blocks_of([g1_store / "commitlog"]), 97, 150) == recorded

    @pytest.mark.parametrize("name", G2_COUNTS)
    def test_stores_with_other_hosts_versions_and_queues(self, name: str, tmp_path: Path) -> None:
        root = unpack("store", tmp_path, archives=GOLDEN / "g2" / name)
        recorded = index_files(root)
        assert build_files(blocks_of(log_folders(root)), *G2_COUNTS[name]) == recorded


class TestWrittenStores:
    @settings(max_examples=examples(12))
    @given(store_plans(all_indexed=True))
    def test_any_store_has_the_index_files_that_are_built_from_its_log(
        self, tmp_path_factory: pytest.TempPathFactory, plan: StorePlan
    ) -> None:
        writer = plan.write(tmp_path_factory.mktemp("store"))
        blocks = blocks_of(writer.log.directories, tags=plan.options["profile"] == "5.5", records=3)
        built = build_files(blocks, plan.options["index_slots"], plan.options["index_entries"])
        assert built == [path.read_bytes() for path in writer.index_paths()]


class TestBuilders:
    @pytest.mark.parametrize("builder", [IndexFileBuilder, CompactFileBuilder])
    def test_more_than_there_is_room_for_is_refused(
        self, builder: type[IndexFileBuilder] | type[CompactFileBuilder]
    ) -> None:
        built = builder(7, 4)
        assert (built.room, built.size) == (3, 40 + 28 + 80)
        built.put(columns_of([1, 2]), 0, 2)
        assert built.room == 1
        with pytest.raises(ValueError, match="2 entries for a file that has room for 1"):
            built.put(columns_of([1, 2]), 0, 2)
        built.put(columns_of([1, 2]), 1, 1)
        assert built.room == 0
        assert built.finish().index_count == 4

    @pytest.mark.parametrize(("first", "count"), [(-1, 1), (0, 3), (2, 1), (1, -1)])
    def test_entries_that_are_not_there_are_refused(self, first: int, count: int) -> None:
        with pytest.raises(ValueError, match="of 2"):
            IndexFileBuilder(7, 10).put(columns_of([1, 2]), first, count)

    def test_columns_that_do_not_fit_together_are_refused(self) -> None:
        columns = columns_of([1, 2])
        for broken in (
            columns._replace(hashes=columns.hashes[:1]),
            columns._replace(record_timestamps=columns.record_timestamps[:1]),
            columns._replace(record_offsets=columns.record_offsets[:1]),
            columns._replace(record_entries=np.array([70, 2], np.uint16)),
        ):
            with pytest.raises(ValueError, match=r"columns are not all of length|hashes for"):
                IndexFileBuilder(7, 100).put(broken, 0, 1)

    @pytest.mark.parametrize(("slots", "entries"), [(0, 5), (5, 0), (-1, 5)])
    def test_a_file_without_slots_or_entries_is_refused(self, slots: int, entries: int) -> None:
        with pytest.raises(ValueError, match="holds nothing"):
            IndexFileBuilder(slots, entries)

    def test_an_empty_file_after_another_says_where_that_ended_and_needs_no_more_than_its_header(self) -> None:
        builder = IndexFileBuilder(7, 10, IndexHeader(1, 1_700_000_000_000, 3, 4096, 5, 10))
        assert builder.finish() == IndexHeader(1_700_000_000_000, 1_700_000_000_000, 4096, 4096, 0, 1)
        assert builder.used == 40
        assert not any(builder.memory[40:])
