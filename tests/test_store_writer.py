"""The tests' store writer proves itself: it makes a recorded broker's files again from its records, byte for byte."""

import json
from pathlib import Path

import pytest

from golden_store import GOLDEN
from oracles import Record, build_index, index_hash, query, read_log, walk_chain
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


def test_a_segment_may_hold_nothing_but_a_blank_with_stale_bytes_behind_it(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, segment_size=256, padding=b"stale")
    writer.roll()
    assert writer.append("T").physical_offset == 256
    blank = (tmp_path / "commitlog" / "00000000000000000000").read_bytes()
    assert blank[:8] == bytes.fromhex("00000100cbd43194")
    assert blank[8:] == (b"stale" * 50)[:248]


def test_a_queue_born_late_starts_with_filler_up_to_its_first_offset(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, queue_file_size=100)
    writer.append("T", queue_offset=7)
    writer.close()
    units = (tmp_path / "consumequeue" / "T" / "0" / f"{100:020d}").read_bytes()
    assert units[:40] == bytes.fromhex("0000000000000000 7fffffff 0000000000000000" * 2)
    assert units[40:60].hex() == f"{0:016x}{writer.written[0].size:08x}{0:016x}"


def test_several_directories_take_their_segments_in_turn(tmp_path: Path) -> None:
    directories = [tmp_path / "a", tmp_path / "b"]
    writer = StoreWriter(tmp_path / "store", segment_size=256, commit_log_directories=directories)
    for _ in range(3):
        writer.append("T", bytes(100))
    writer.close()
    assert {path.name[-3:] for path in directories[0].iterdir()} == {"000", "512"}
    assert {path.name[-3:] for path in directories[1].iterdir()} == {"256"}
    assert [record.physical_offset for record in read_log(directories)] == [0, 256, 512]


def test_what_is_damaged_later_is_no_longer_among_the_records(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path)
    kept, damaged = writer.append("T", b"one"), writer.append("T", b"two")
    writer.append("T", b"three", body_crc=5)
    writer.append("T", b"four", own_offset=5)
    writer.overwrite(damaged.physical_offset + 4, bytes(4))
    assert [record.physical_offset for record in writer.records] == [kept.physical_offset]


def test_extension_units_are_those_that_the_brokers_own_class_writes(tmp_path: Path) -> None:
    recorded = json.loads((GOLDEN / "filter" / "tag-bloom-vectors.json").read_text())["consume_queue_ext"]
    files = ConsumeQueueExtFiles(tmp_path, 100)
    for number, put in enumerate(recorded["puts"]):
        code, bit_map = (-5 if number == 1 else 2598919), (b"" if number == 2 else b"\x01" + bytes(12) + b"\x80")
        assert files.put(code, 1_700_000_000_000 + number, bit_map) == put["addr"]
    files.flush()
    assert {name: content.hex() for name, content in files_under(tmp_path).items()} == recorded["files_hex"]


def test_extension_units_are_addressed_by_the_queue_units_tag_code(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, ext_bit_map=b"\xaa" * 14, ext_file_size=100)
    for tag in ("a", "b", "c"):
        writer.append("T", tags=tag)
    writer.close()
    units = (tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}").read_bytes()
    codes = [units[12 + 20 * n : 20 + 20 * n].hex() for n in range(3)]
    assert codes == ["8000000000000000", "8000000000000022", "8000000000000064"]
    assert len(files_under(tmp_path / "consumequeue_ext")) == 2


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


def test_a_message_enters_the_light_queues_it_names(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path)
    named = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b", "INNER_MULTI_QUEUE_OFFSET": "0,3"}
    written = writer.append("T", properties=named)
    writer.close()
    unit = f"{0:016x}{written.size:08x}{0:016x}"
    for name, position in (("T", 0), ("%LMQ%a", 0), ("%LMQ%b", 60)):
        content = (tmp_path / "consumequeue" / name / "0" / f"{0:020d}").read_bytes()
        assert content[position : position + 20].hex() == unit


def test_index_and_queue_can_lack_messages(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path)
    writer.append("T", keys="a", index=False)
    writer.append("T", keys="b", queue=False)
    writer.append("T", keys="c")
    writer.close()
    offsets = [written.physical_offset for written in writer.written]
    (index,) = files_under(tmp_path / "index").values()
    assert [walk_chain(index, 97, index_hash(f"T#{key}")) for key in "abc"] == [[], [offsets[1]], [offsets[2]]]
    units = (tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}").read_bytes()
    assert [int.from_bytes(units[position : position + 8], "big") for position in (0, 20)] == [0, offsets[2]]


def test_the_older_profile_keeps_no_tag_entries(tmp_path: Path) -> None:
    for profile, entries in (("5.3", 2), ("5.5", 3)):
        writer = StoreWriter(tmp_path / profile, profile=profile)
        writer.append("T", keys="a", unique_key="u", tags="t")
        assert writer.index.files[0].index_count == entries + 1


def test_a_store_grows_between_flushes_and_ends_as_if_written_at_once(tmp_path: Path) -> None:
    step_by_step, at_once = (
        StoreWriter(tmp_path / "a", queue_file_size=40),
        StoreWriter(tmp_path / "b", queue_file_size=40),
    )
    for number in range(7):
        for writer in (step_by_step, at_once):
            writer.append("T", bytes([number]), keys=f"k{number}", tags="t")
        step_by_step.flush()
        assert (tmp_path / "a" / "abort").exists()
    step_by_step.close()
    at_once.close()
    assert files_under(tmp_path / "a") == files_under(tmp_path / "b")
    assert "abort" not in files_under(tmp_path / "a")


def test_a_crash_leaves_abort_and_the_segment_made_in_advance(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, segment_size=4096)
    writer.append("T", b"body")
    writer.crash()
    files = files_under(tmp_path)
    assert files["abort"]
    assert files[f"commitlog/{4096:020d}"] == bytes(4096)
    assert len(files["checkpoint"]) == 4096


def test_configuration_is_written_with_bare_integer_keys(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path)
    writer.consumer_offsets["T@G"] = {0: 12, 1: 7}
    writer.append_inner_batch("B", [(b"a", {})])
    writer.close()
    offsets = (tmp_path / "config" / "consumerOffset.json").read_text()
    assert '"T@G":{\n\t\t\t0:12,\n\t\t\t1:7\n\t\t}' in offsets
    topics = json.loads((tmp_path / "config" / "topics.json").read_text())["topicConfigTable"]
    assert set(topics) == {"DefaultCluster", "broker-a", "B"}
    assert topics["B"]["attributes"] == {"queue.type": "BatchCQ"}


def test_the_log_may_start_late_and_have_holes(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, segment_size=256, start=512)
    first = writer.append("T", bytes(100))
    writer.skip_segments(2)
    second = writer.append("T", bytes(100))
    assert (first.physical_offset, second.physical_offset) == (512, 1280)
    assert sorted(files_under(tmp_path / "commitlog")) == [f"{512:020d}", f"{1280:020d}"]
    with pytest.raises(ValueError, match="multiple of its segment size"):
        StoreWriter(tmp_path, segment_size=256, start=100)
    with pytest.raises(ValueError, match="never fits a segment of 256"):
        writer.append("T", bytes(200))


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
