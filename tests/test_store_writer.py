"""The tests' store writer proves itself: it makes a recorded broker's files again from its records, byte for byte."""

import json
from pathlib import Path

import pytest

from golden_store import GOLDEN
from oracles import build_index, read_log, walk_chain
from queue_runs import files_under
from store_files import ConsumeQueueExtFiles
from store_writer import StoreWriter


@pytest.fixture(scope="module")
def g1_records(g1_store):
    return read_log(g1_store / "commitlog")


@pytest.fixture(scope="module")
def rewritten(g1_records, tmp_path_factory):
    root = tmp_path_factory.mktemp("rewritten")
    with StoreWriter(root) as writer:
        for record in g1_records:
            if record.physical_offset % 131072 == 0 and writer.log.end % 131072:
                writer.roll()  # a client's batch did not fit as a whole, though its first record did
            assert writer.append_record(record).physical_offset == record.physical_offset
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


def test_the_index_oracle_makes_the_recorded_index_files(g1_store, g1_records) -> None:
    recorded = [content for _, content in sorted(files_under(g1_store / "index").items())]
    assert build_index(g1_records, 97, 150) == recorded
    assert all(walk_chain(recorded[0], 97, hash_value) for hash_value in [int.from_bytes(recorded[0][448:452], "big")])


def test_extension_units_are_those_that_the_brokers_own_class_writes(tmp_path: Path) -> None:
    recorded = json.loads((GOLDEN / "filter" / "tag-bloom-vectors.json").read_text())["consume_queue_ext"]
    files = ConsumeQueueExtFiles(tmp_path, 100)
    for number, put in enumerate(recorded["puts"]):
        code, bit_map = (-5 if number == 1 else 2598919), (b"" if number == 2 else b"\x01" + bytes(12) + b"\x80")
        assert files.put(code, 1_700_000_000_000 + number, bit_map) == put["addr"]
    files.flush()
    assert {name: content.hex() for name, content in files_under(tmp_path).items()} == recorded["files_hex"]
