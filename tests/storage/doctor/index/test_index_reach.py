"""The doctor on stretches of the log that no index file covers."""

import zlib
from pathlib import Path

import pytest

from doctoring import findings_of, make_store, only
from storage.doctor.examine import examine
from storage.doctor.finding import Severity
from store_files import pack_batch


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


def test_what_lacks_keys_inside_a_file_is_indexed_from_0(tmp_path: Path) -> None:
    writer, _ = make_store(tmp_path, 15)
    left_out = writer.append("T", b"x", keys="left", index=False)
    for number in range(15):
        writer.append("T", b"x", keys=f"more{number}")
    writer.close()
    finding = only(tmp_path, "index-reach")
    assert (finding.physical_offset, "inside an index file" in finding.found) == (left_out.physical_offset, True)
    assert finding.remedy == f"rocketlens rebuild index --from-offset 0 {tmp_path}"


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


def test_an_index_without_tags_lacks_nothing(tmp_path: Path) -> None:
    writer, _ = make_store(tmp_path, profile="5.3")
    writer.append("T", b"x", tags="t")
    writer.append("T", b"x", tags="t", keys="z")
    writer.append("T", b"x", tags="t")
    writer.close()
    assert findings_of(examine(tmp_path), "index-reach") == []


def test_messages_without_keys_need_no_entries(tmp_path: Path) -> None:
    writer, _ = make_store(tmp_path, 50)
    for _ in range(20):
        writer.append("T", b"no key")
    writer.close()
    assert examine(tmp_path).findings == ()


@pytest.mark.parametrize(("sys_flag", "has_entries"), [(0xC0, True), (0xC1, False)], ids=["plain", "packed"])
def test_of_a_batch_its_own_keys_need_entries_and_not_those_of_its_messages(
    tmp_path: Path, sys_flag: int, has_entries: bool
) -> None:
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
