"""The doctor on the log's files: each fault is named at its place."""

from pathlib import Path

import pytest

from doctoring import SEGMENT, findings_of, make_store, only, put
from storage.doctor.examine import examine
from storage.doctor.finding import Severity


@pytest.fixture
def root(tmp_path: Path) -> Path:
    writer, _ = make_store(tmp_path, 500)
    writer.close()
    return tmp_path


def segment(root: Path, number: int) -> Path:
    return root / "commitlog" / f"{number * SEGMENT:020d}"


def test_a_missing_segment_is_a_hole(root: Path) -> None:
    segment(root, 1).unlink()
    finding = only(root, "segments")
    assert (finding.severity, finding.physical_offset) == (Severity.ERROR, SEGMENT)
    assert f"{SEGMENT} to {2 * SEGMENT}" in finding.found


@pytest.mark.parametrize("size", [39, 41, SEGMENT - 1])
def test_a_segment_of_another_size_is_named_where_it_ends(root: Path, size: int) -> None:
    with segment(root, 1).open("r+b") as file:
        file.truncate(size)
    findings = {finding.path: finding for finding in findings_of(examine(root), "segments", Severity.WARNING)}
    assert findings[str(segment(root, 1))].position == size


def test_an_empty_segment_is_named_unless_it_is_the_last_which_a_start_deletes(root: Path) -> None:
    segment(root, 1).write_bytes(b"")
    segment(root, 9).write_bytes(b"")
    findings = findings_of(examine(root), "segments", Severity.WARNING)
    assert [finding.path for finding in findings if finding.found == "is empty"] == [str(segment(root, 1))]


def test_what_is_no_segment_is_named(root: Path) -> None:
    (root / "commitlog" / "00000.bak").write_bytes(b"x")
    finding = only(root, "segments")
    assert (finding.path, finding.found) == (str(root / "commitlog" / "00000.bak"), "is no segment")


def test_a_segment_that_lies_twice_is_named_where_it_is_not_used(root: Path) -> None:
    other = root / "other"
    other.mkdir()
    (other / segment(root, 1).name).write_bytes(segment(root, 1).read_bytes())
    finding = only(root, "segments", directories=[root / "commitlog", other])
    assert finding.path == str(other / segment(root, 1).name)
    assert str(segment(root, 1)) in finding.found


def test_an_overlap_is_named_at_the_byte_where_it_begins(root: Path) -> None:
    segment(root, 1).write_bytes(segment(root, 1).read_bytes() + bytes(100))
    findings = [finding for finding in findings_of(examine(root), "segments") if "reaches" in finding.found]
    assert [(finding.path, finding.position) for finding in findings] == [(str(segment(root, 1)), SEGMENT)]


def test_a_segment_that_starts_with_zeros_is_named(root: Path) -> None:
    put(segment(root, 1), 0, bytes(4096))
    finding = only(root, "segments")
    assert (finding.position, finding.physical_offset, finding.found) == (0, SEGMENT, "starts with zeros")


def test_a_segment_whose_first_record_is_damaged_is_named(root: Path) -> None:
    put(segment(root, 1), 4, b"\xff")
    finding = only(root, "segments")
    assert (finding.path, finding.position) == (str(segment(root, 1)), 0)
    assert "magic" in finding.found


def test_a_segment_made_in_advance_is_no_fault(tmp_path: Path) -> None:
    writer, _ = make_store(tmp_path)
    writer.crash()
    assert findings_of(examine(tmp_path), "segments") == []
