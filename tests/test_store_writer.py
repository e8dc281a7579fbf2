"""The tests' store writer proves itself: it makes a recorded broker's files again from its records, byte for byte."""

import json
from pathlib import Path

import pytest

from golden_store import GOLDEN
from oracles import Record, build_index, query, read_log, walk_chain
from queue_runs import files_under
from store_files import ConsumeQueueExtFiles
from store_writer import StoreWriter


@pytest.fixture(scope="module")
def g1_records(g1_store: Path) -> list[Record]:
    return read_log(g1_store / "commitlog")


@pytest.fixture(scope="module")
def rewritten(g1_records: list[Record], tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("rewritten")
    writer = StoreWriter(root)
    for record in g1_records:
        if record.physical_offset % 131072 == 0 and writer.log.end % 131072:
            writer.roll()  # a client's batch did not fit as a whole, though its first record did
        assert writer.append_record(record).physical_offset == record.physical_offset
    writer.close()
    return root


def test_the_segments_of_the_recorded_store_come_out_byte_for_byte(g1_store: Path, rewritten: Path) -> None:
    recorded = files_under(g1_store / "commitlog")
    assert len(recorded) == 2
    assert files_under(rewritten / "commitlog") == recorded


def test_all_queues_of_the_recorded_store_come_out_byte_for_byte(g1_store: Path, rewritten: Path) -> None:
    recorded = files_under(g1_store / "consumequeue")
    with_units = {name: content for name, content in recorded.items() if any(content)}
    assert len({Path(name).parent for name in with_units}) == 17
    assert files_under(rewritten / "consumequeue") == with_units


def test_all_index_files_of_the_recorded_store_come_out_byte_for_byte(g1_store: Path, rewritten: Path) -> None:
    recorded = [content for _, content in sorted(files_under(g1_store / "index").items())]
    assert len(recorded) == 10
    assert [content for _, content in sorted(files_under(rewritten / "index").items())] == recorded


def test_the_index_oracle_makes_the_recorded_index_files(g1_store: Path, g1_records: list[Record]) -> None:
    recorded = [content for _, content in sorted(files_under(g1_store / "index").items())]
    assert build_index(g1_records, 97, 150) == recorded
    assert all(walk_chain(recorded[0], 97, hash_value) for hash_value in [int.from_bytes(recorded[0][448:452], "big")])


def test_a_batch_starts_the_next_segment_rather_than_be_torn(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, segment_size=1024)
    message = {"body": bytes(300), "keys": "k", "born_host": ("::1", 1), "property_crc": True}
    first = writer.append("T", **message)
    assert 2 * first.size + 8 <= 1024 < 3 * first.size
    batch = writer.append_batch("T", [message, message])
    assert [written.physical_offset for written in batch] == [1024, 1024 + first.size]
    assert len({written.store_timestamp for written in batch}) == 1


def test_a_queue_born_late_starts_with_filler_up_to_its_first_offset(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, queue_file_size=100)
    writer.append("T", queue_offset=7)
    writer.close()
    units = (tmp_path / "consumequeue" / "T" / "0" / f"{100:020d}").read_bytes()
    assert units[:40] == bytes.fromhex("0000000000000000 7fffffff 0000000000000000" * 2)
    assert units[40:60].hex() == f"{0:016x}{writer.written[0].size:08x}{0:016x}"


def test_extension_units_are_those_that_the_brokers_own_class_writes(tmp_path: Path) -> None:
    recorded = json.loads((GOLDEN / "filter" / "tag-bloom-vectors.json").read_text())["consume_queue_ext"]
    files = ConsumeQueueExtFiles(tmp_path, 100)
    for number, put in enumerate(recorded["puts"]):
        code, bit_map = (-5 if number == 1 else 2598919), (b"" if number == 2 else b"\x01" + bytes(12) + b"\x80")
        assert files.put(code, 1_700_000_000_000 + number, bit_map) == put["addr"]
    files.flush()
    assert {name: content.hex() for name, content in files_under(tmp_path).items()} == recorded["files_hex"]


def test_an_inner_batch_is_one_record_and_one_unit_of_its_own_tree_and_a_message_a_batch_of_one(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path)
    first = writer.append_inner_batch("B", [(b"a", {}), (b"b", {"k": "v"})])
    second = writer.append_inner_batch("B", [(b"c", {})])
    writer.append("B", b"no batch")
    writer.close()
    assert (first.queue_offset, second.queue_offset) == (0, 2)
    content = (tmp_path / "batchconsumequeue" / "B" / "0" / f"{0:020d}").read_bytes()
    assert content[:46].hex() == (
        f"{0:016x}{first.size:08x}{0:016x}{first.store_timestamp:016x}{0:016x}{2:04x}" + "ffffffff" + "00000000"
    )
    assert content[46 + 28 : 46 + 38].hex() == f"{2:016x}{1:04x}"
    assert content[92 + 28 : 92 + 38].hex() == f"{3:016x}{1:04x}"
    assert not any(content[138:])
    assert not (tmp_path / "consumequeue" / "B").exists()
    assert writer.records[0].sys_flag == 0xC0


def test_the_query_oracle_gives_the_newest_matches_in_ascending_order(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path)
    stamps = (1000, 3000, 2000, 4000)
    offsets = [
        writer.append("T", keys="k k other", unique_key="u", tags="t", store_timestamp=stamp).physical_offset
        for stamp in stamps
    ]
    writer.append("T", keys="k", sys_flag=0xC, store_timestamp=2500)
    writer.append("Other", keys="k", store_timestamp=2500)
    records = writer.records
    assert query(records, "T", "k") == offsets
    assert query(records, "T", "k", maximum=2) == offsets[2:]
    assert query(records, "T", "k", begin=2000, end=3000) == offsets[1:3]
    assert query(records, "T", "k", kind="K", before_offset=offsets[3], maximum=1) == [offsets[2]]
    assert query(records, "T", "u", kind="U", begin=9999) == offsets
    assert query(records, "T", "t", kind="T", maximum=0) == []
    assert query(records, "T", "u", kind="K") == query(records, "T", "k", kind="U") == []
