"""The doctor on the checkpoint: each field at its byte."""

import subprocess
from pathlib import Path

import pytest

from doctoring import findings_of, make_store, only, put
from oracles import packed
from storage.doctor.examine import examine
from storage.doctor.finding import CLEARED_BY_A_START, Severity


@pytest.fixture
def root(tmp_path: Path) -> Path:
    writer, _ = make_store(tmp_path)
    writer.close()
    return tmp_path


@pytest.mark.parametrize("position", [0, 8, 16, 32, 40])
@pytest.mark.parametrize("value", [2**60, -1])
def test_a_number_that_cannot_be_is_named(root: Path, position: int, value: int) -> None:
    put(root / "checkpoint", position, packed(value, 8))
    finding = only(root, "checkpoint")
    assert (finding.severity, finding.path) == (Severity.WARNING, str(root / "checkpoint"))
    assert finding.position == position


@pytest.mark.parametrize("position", [32, 40])
def test_after_a_crash_a_broker_that_starts_clears_offsets_behind_the_log(tmp_path: Path, position: int) -> None:
    writer, _ = make_store(tmp_path)
    writer.crash()
    put(tmp_path / "checkpoint", position, packed(2**60, 8))
    assert only(tmp_path, "checkpoint").remedy == CLEARED_BY_A_START


def test_a_checkpoint_is_not_to_be_removed_without_the_index_being_made_safe(root: Path) -> None:
    put(root / "checkpoint", 0, packed(2**60, 8))
    remedy = only(root, "checkpoint").remedy
    assert remedy == f"rm {root}/checkpoint && rocketlens rebuild index {root}"


@pytest.mark.parametrize("size", [0, 1, 47])
def test_a_checkpoint_that_is_too_short_is_named(root: Path, size: int) -> None:
    with (root / "checkpoint").open("r+b") as file:
        file.truncate(size)
    assert f"only {size} are there" in only(root, "checkpoint").found


def test_a_directory_in_the_place_of_the_checkpoint_is_set_aside_by_the_line_that_is_printed(root: Path) -> None:
    (root / "checkpoint").unlink()
    (root / "checkpoint").mkdir()
    (root / "checkpoint" / "notes").write_text("kept")
    (line,) = {each.remedy for each in examine(root).findings}
    aside = Path(f"{root}-set-aside") / "checkpoint"
    moved, _, rebuilt = line.rpartition(" && ")
    assert (moved, rebuilt) == (
        f"mkdir -p {aside.parent} && mv -T {root}/checkpoint {aside}",
        f"rocketlens rebuild index {root}",
    )
    subprocess.run(["sh", "-c", moved], check=True)
    assert (aside / "notes").read_text() == "kept"
    assert only(root, "checkpoint").remedy == rebuilt


def test_a_missing_checkpoint_is_named(root: Path) -> None:
    (root / "checkpoint").unlink()
    finding = only(root, "checkpoint")
    assert (finding.found, finding.remedy) == ("is missing", f"rocketlens rebuild index {root}")


def test_a_log_without_messages_needs_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(bytes(4096))
    finding = only(tmp_path, "checkpoint")
    assert (finding.severity, finding.remedy) == (Severity.INFO, "no fix is needed: a broker writes one")


def test_a_checkpoint_behind_the_log_is_as_brokers_leave_it(root: Path) -> None:
    put(root / "checkpoint", 0, packed(1000, 8) * 3)
    assert findings_of(examine(root), "checkpoint") == []
