"""The doctor on the checkpoint: each field at its byte."""

import os
import subprocess
from pathlib import Path

import pytest

from doctoring import findings_of, only, put
from oracles import packed
from storage.doctor.examine import examine
from storage.doctor.finding import CLEARED_BY_A_START, Severity


@pytest.mark.parametrize(("position", "value"), [(0, 2**60), (8, -1), (32, -1), (40, 2**60)])
def test_a_number_that_cannot_be_is_named(root: Path, position: int, value: int) -> None:
    put(root / "checkpoint", position, packed(value, 8))
    finding = only(root, "checkpoint")
    assert (finding.severity, finding.path) == (Severity.WARNING, str(root / "checkpoint"))
    assert finding.position == position
    if position == 0:
        assert finding.remedy == f"rm {root}/checkpoint && rocketlens rebuild index {root}"


@pytest.mark.parametrize("position", [32, 40])
def test_after_a_crash_a_broker_that_starts_clears_offsets_behind_the_log(root: Path, position: int) -> None:
    (root / "abort").touch()
    put(root / "checkpoint", position, packed(2**60, 8))
    assert only(root, "checkpoint").remedy == CLEARED_BY_A_START


@pytest.mark.parametrize("size", [0, 47])
def test_a_checkpoint_that_is_too_short_is_named(root: Path, size: int) -> None:
    os.truncate(root / "checkpoint", size)
    assert f"only {size} are there" in only(root, "checkpoint").found


def test_a_directory_in_the_place_of_the_checkpoint_is_set_aside_by_the_line_that_is_printed(root: Path) -> None:
    (root / "checkpoint").unlink()
    (root / "checkpoint").mkdir()
    (root / "checkpoint" / "notes").write_text("kept")
    (line,) = {each.remedy for each in examine(root).findings}
    aside = Path(f"{root}-set-aside") / "checkpoint"
    moved, _, rebuilt = line.rpartition(" && ")
    assert moved == f"mkdir -p {aside.parent} && mv -T {root}/checkpoint {aside}"
    assert rebuilt == f"rocketlens rebuild index {root}"
    subprocess.run(["sh", "-c", moved], check=True)
    assert (aside / "notes").read_text() == "kept"
    finding = only(root, "checkpoint")
    assert (finding.found, finding.remedy) == ("is missing", rebuilt)


def test_a_log_without_messages_needs_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(bytes(4096))
    finding = only(tmp_path, "checkpoint")
    assert (finding.severity, finding.remedy) == (Severity.INFO, "no fix is needed: a broker writes one")


def test_a_checkpoint_behind_the_log_is_as_brokers_leave_it(root: Path) -> None:
    put(root / "checkpoint", 0, packed(1000, 8) * 3)
    assert findings_of(examine(root), "checkpoint") == []
