"""The doctor on the log's files: each fault is named at its place."""

from collections.abc import Callable
from pathlib import Path

import pytest

from doctoring import SEGMENT, findings_of, only, put
from storage.doctor.examine import examine
from storage.doctor.finding import Severity


def segment(root: Path, number: int) -> Path:
    return root / "commitlog" / f"{number * SEGMENT:020d}"


@pytest.mark.parametrize(
    ("harm", "severity", "position", "found"),
    [
        pytest.param(lambda path: path.unlink(), Severity.ERROR, -1, f"{SEGMENT} to {2 * SEGMENT}", id="missing"),
        pytest.param(lambda path: put(path, 0, bytes(4096)), Severity.ERROR, 0, "starts with zeros", id="zeros"),
        pytest.param(lambda path: put(path, 4, b"\xff"), Severity.ERROR, 0, "magic", id="a damaged first record"),
    ],
)
def test_a_damaged_segment_is_named(
    root: Path, harm: Callable[[Path], object], severity: Severity, position: int, found: str
) -> None:
    harm(segment(root, 1))
    finding = only(root, "segments")
    assert (finding.severity, finding.position, finding.physical_offset) == (severity, position, SEGMENT)
    assert found in finding.found


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
    put(segment(root, 1), SEGMENT, bytes(100))
    findings = [finding for finding in findings_of(examine(root), "segments") if "reaches" in finding.found]
    assert [(finding.path, finding.position) for finding in findings] == [(str(segment(root, 1)), SEGMENT)]
