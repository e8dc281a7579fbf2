"""The tests' store writer proves itself: it makes a recorded broker's files again from its records, byte for byte."""

from pathlib import Path

import pytest

from oracles import Record, build_index, read_log, walk_chain
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


def files_under(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()
    }


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


def test_extension_units_are_addressed_by_the_queue_units_tag_code(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, ext_bit_map=b"\xaa" * 14, ext_file_size=100)
    for tag in ("a", "b", "c"):
        writer.append("T", tags=tag)
    writer.close()
    units = (tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}").read_bytes()
    assert [units[12 + 20 * n : 20 + 20 * n].hex() for n in range(3)] == [
        "8000000000000000", "8000000000000022", "8000000000000064",
    ]  # fmt: skip
    ext = (tmp_path / "consumequeue_ext" / "T" / "0" / f"{0:020d}").read_bytes()
    assert ext[:2].hex() == "0022"
    assert ext[2:10].hex() == f"{ord('a'):016x}"
    assert ext[68:70].hex() == "ffff"
