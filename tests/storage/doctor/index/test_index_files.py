"""The doctor on single index files: each fault at its byte."""

import os
import shutil
from pathlib import Path

import pytest

import oracles
from doctoring import findings_of, make_store, only, put
from job_runs import compact_in_place, small_steps
from storage.doctor.examine import examine
from storage.doctor.finding import Kind, Severity

SLOTS, ENTRIES = 13, 100
FIRST_ENTRY = 40 + 4 * SLOTS


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store of few index files, so that each finding is listed."""
    make_store(tmp_path)[0].close()
    return tmp_path


def file(root: Path, number: int) -> Path:
    return sorted((root / "index").iterdir())[number]


@pytest.mark.parametrize(
    ("entry", "field", "data", "found_at"),
    [
        (7, 0, b"\xff\xff\xff\xff", 7),
        (7, 16, (7).to_bytes(4, "big"), 7),
        (98, 16, (99).to_bytes(4, "big"), 98),
    ],
)
def test_a_damaged_entry_is_named_at_its_byte(root: Path, entry: int, field: int, data: bytes, found_at: int) -> None:
    path = file(root, 1)
    put(path, FIRST_ENTRY + 20 * entry + field, data)
    finding = only(root, "index-files")
    assert (finding.severity, finding.path) == (Severity.ERROR, str(path))
    assert finding.position == FIRST_ENTRY + 20 * found_at
    assert finding.remedy == f"rocketlens rebuild index {root}"


def test_a_damaged_slot_is_named_at_its_byte(root: Path) -> None:
    content = file(root, 2).read_bytes()
    slot = next(slot for slot in range(SLOTS) if oracles.signed(content, 40 + 4 * slot, 4))
    put(file(root, 2), 40 + 4 * slot, (1).to_bytes(4, "big"))
    assert only(root, "index-files").position == 40 + 4 * slot


@pytest.mark.parametrize(
    ("position", "size", "field"),
    [(16, 8, "begin_physical_offset"), (24, 8, "end_physical_offset"), (32, 4, "slot_count")],
)
def test_a_header_that_lies_is_named(root: Path, position: int, size: int, field: str) -> None:
    put(file(root, 1), position, oracles.packed(3, size))
    finding = only(root, "index-files")
    assert (finding.severity, finding.path, finding.position) == (Severity.WARNING, str(file(root, 1)), position)
    assert (finding.kind, finding.place, finding.found) == (Kind.HEADER, f"header {field}", "3")
    assert finding.expected.isdecimal()


def test_compacted_files_are_sound(tmp_path: Path) -> None:
    writer, _ = make_store(tmp_path)
    writer.close()
    with small_steps(700, 11):
        compact_in_place(writer, tmp_path / "work", from_log=True, drop_tags=True)
    shutil.rmtree(tmp_path / "work")
    diagnosis = examine(tmp_path)
    assert not findings_of(diagnosis, "index-files")
    assert not findings_of(diagnosis, "index-reach")
    assert len(diagnosis.index_files) == len(list((tmp_path / "index").iterdir()))


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


@pytest.mark.parametrize("size", [0, 41])
def test_a_file_cut_to_its_header_is_named(root: Path, size: int) -> None:
    path = file(root, 1)
    os.truncate(path, size)
    found = findings_of(examine(root), "index-files")
    assert [finding.path for finding in found] == [str(path)]


def test_foreign_files_are_named(root: Path) -> None:
    (root / "index" / "notes").write_text("x")
    assert only(root, "index-files").path == str(root / "index" / "notes")


def test_entries_beyond_the_log_are_counted(root: Path) -> None:
    whole = examine(root)
    for path in sorted((root / "commitlog").iterdir())[1:]:
        path.unlink()
    diagnosis = examine(root)
    beyond = [finding for finding in findings_of(diagnosis, "index-files") if "beyond the log" in finding.found]
    entries = [
        number
        for path in sorted((root / "index").iterdir())
        for number in range(1, ENTRIES)
        if oracles.signed(path.read_bytes(), FIRST_ENTRY + 20 * number + 4, 8) >= diagnosis.end
    ]
    assert sum(int(finding.found.split()[0]) for finding in beyond) == len(entries) > 0
    assert whole.end > diagnosis.end


def test_numbers_of_sound_files_are_those_of_the_oracle(root: Path) -> None:
    healths = examine(root).index_files
    assert len(healths) == len(list((root / "index").iterdir())) > 0
    for health in healths:
        content = Path(health.path).read_bytes()
        hashes = [oracles.signed(content, FIRST_ENTRY + 20 * n, 4) for n in range(1, health.entries + 1)]
        chains = [sum(value % SLOTS == slot for value in hashes) for slot in range(SLOTS)]
        assert (health.slots, health.capacity) == (SLOTS, ENTRIES - 1)
        assert health.longest_chain in (max(chains), -1)
        assert health.used_slots in (SLOTS - chains.count(0), -1)
