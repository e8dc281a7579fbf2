"""The doctor on index files, each fault at its byte, and on stretches of the log that none covers."""

import shutil
import zlib
from pathlib import Path

import pytest

import oracles
from doctoring import findings_of, make_store, only, put
from job_runs import compact_in_place
from storage.doctor.examine import examine
from storage.doctor.finding import Kind, Severity
from store_files import pack_batch

SLOTS, ENTRIES = 13, 100
FIRST_ENTRY = 40 + 4 * SLOTS


@pytest.fixture
def small(tmp_path: Path) -> Path:
    make_store(tmp_path)[0].close()
    return tmp_path


def file(small: Path, number: int) -> Path:
    return sorted((small / "index").iterdir())[number]


@pytest.mark.parametrize(
    ("entry", "field", "data", "found_at"),
    [(7, 0, b"\xff\xff\xff\xff", 7), (7, 16, (7).to_bytes(4, "big"), 7), (98, 16, (99).to_bytes(4, "big"), 98)],
)
def test_a_damaged_entry_is_named_at_its_byte(small: Path, entry: int, field: int, data: bytes, found_at: int) -> None:
    path = file(small, 1)
    put(path, FIRST_ENTRY + 20 * entry + field, data)
    finding = only(small, "index-files")
    assert (finding.severity, finding.path) == (Severity.ERROR, str(path))
    assert finding.position == FIRST_ENTRY + 20 * found_at
    assert finding.remedy == f"rocketlens rebuild index {small}"


@pytest.mark.parametrize(
    ("position", "size", "field"),
    [(16, 8, "begin_physical_offset"), (24, 8, "end_physical_offset"), (32, 4, "slot_count")],
)
def test_a_header_that_lies_is_named(small: Path, position: int, size: int, field: str) -> None:
    put(file(small, 1), position, oracles.packed(3, size))
    finding = only(small, "index-files")
    assert (finding.severity, finding.path, finding.position) == (Severity.WARNING, str(file(small, 1)), position)
    assert (finding.kind, finding.place, finding.found) == (Kind.HEADER, f"header {field}", "3")
    assert finding.expected.isdecimal()


def test_compacted_files_without_a_topic_are_named_with_what_makes_them_whole(tmp_path: Path) -> None:
    writer, _ = make_store(tmp_path, 0)
    for number in range(40):
        writer.append("T" if number % 2 else "Another", keys=f"k{number}")
    writer.close()
    compact_in_place(writer, tmp_path / "work", topics=("T",))
    shutil.rmtree(tmp_path / "work")
    finding = only(tmp_path, "index-files")
    assert (finding.severity, finding.path) == (Severity.WARNING, str(file(tmp_path, 0)))
    assert "keys left out" in finding.found
    assert finding.remedy == f"rocketlens compact index --from-log {tmp_path}"


def test_numbers_of_sound_files_are_those_of_the_oracle(small: Path) -> None:
    healths = examine(small).index_files
    assert len(healths) == len(list((small / "index").iterdir())) > 0
    for health in healths:
        content = Path(health.path).read_bytes()
        hashes = [oracles.signed(content, FIRST_ENTRY + 20 * n, 4) for n in range(1, health.entries + 1)]
        chains = [sum(value % SLOTS == slot for value in hashes) for slot in range(SLOTS)]
        assert (health.slots, health.capacity) == (SLOTS, ENTRIES - 1)
        assert health.longest_chain in (max(chains), -1)
        assert health.used_slots in (SLOTS - chains.count(0), -1)


def test_a_lagging_index_is_named_where_it_ends(tmp_path: Path) -> None:
    writer, written = make_store(tmp_path)
    late = [writer.append("T", b"x", keys=f"late{n}", unique_key=f"l{n}", index=False) for n in range(10)]
    writer.close()
    finding = only(tmp_path, "index-reach")
    assert (finding.severity, finding.physical_offset) == (Severity.WARNING, late[0].physical_offset)
    assert f"{late[0].physical_offset} to {late[-1].physical_offset + late[-1].size}" in finding.found
    diagnosis = examine(tmp_path)
    assert diagnosis.unindexed_messages == 10
    assert diagnosis.coverage.index == ((0, late[0].physical_offset),)
    assert written[-1].physical_offset < late[0].physical_offset


@pytest.mark.parametrize("number", [0, -1])
def test_a_lost_file_is_named_by_the_first_message_that_lacks_a_key(tmp_path: Path, number: int) -> None:
    writer, written = make_store(tmp_path)
    writer.close()
    lost = writer.index.files[number]
    sorted((tmp_path / "index").iterdir())[number].unlink()
    finding = only(tmp_path, "index-reach")
    first, last = lost.begin_physical_offset, lost.end_physical_offset
    assert finding.physical_offset == first
    assert finding.remedy == f"rocketlens rebuild index {tmp_path}"
    assert ("behind the last index file" in finding.found) == (number == -1)
    assert examine(tmp_path).unindexed_messages == sum(first <= record.physical_offset <= last for record in written)


@pytest.mark.parametrize(("sys_flag", "has_entries"), [(0xC0, True), (0xC1, False)], ids=["plain", "packed"])
def test_of_a_batch_its_own_keys_need_entries_and_not_those_of_its_messages(tmp_path, sys_flag, has_entries) -> None:
    writer, _ = make_store(tmp_path)
    messages = [(b"a", {"KEYS": "inner", "UNIQ_KEY": "i"}), (b"b", {"TAGS": "t"})]
    packed = zlib.compress(pack_batch(messages)) if sys_flag & 1 else None
    for _ in range(3):
        writer.append_inner_batch("B", messages, packed=packed, sys_flag=sys_flag)
    batch = writer.append_inner_batch("B", messages, keys="own", packed=packed, sys_flag=sys_flag, index=has_entries)
    for _ in range(3):
        writer.append_inner_batch("B", messages, packed=packed, sys_flag=sys_flag)
    writer.close()
    lacking = [each.physical_offset for each in findings_of(examine(tmp_path), "index-reach")]
    assert lacking == ([] if has_entries else [batch.physical_offset])


def test_what_lacks_keys_inside_a_file_is_indexed_from_0(tmp_path: Path) -> None:
    writer, _ = make_store(tmp_path, 15)
    left_out = writer.append("T", b"x", keys="left", index=False)
    for number in range(15):
        writer.append("T", b"x", keys=f"more{number}")
    writer.close()
    finding = only(tmp_path, "index-reach")
    assert (finding.physical_offset, "inside an index file" in finding.found) == (left_out.physical_offset, True)
    assert finding.remedy == f"rocketlens rebuild index --from-offset 0 {tmp_path}"
