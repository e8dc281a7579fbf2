"""The doctor after a rebuild: it does not advise what was just done, and does again once something was written."""

import os
import time
from pathlib import Path

import pytest

from doctoring import findings_of, make_store, only
from storage.doctor.examine import examine

TIME = "20260102030405"
MOMENT = 1_767_323_045.9
"""The same moment in seconds, at the end of its second."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store whose queue file is too short, and which a rebuild left so: all its files are older than the backup."""
    writer, _ = make_store(tmp_path, 400)
    writer.close()
    with (tmp_path / "consumequeue" / "T" / "1" / f"{1000:020d}").open("r+b") as file:
        file.truncate(980)
    (tmp_path / f"consumequeue.bak-{TIME}").mkdir()
    for path in tmp_path.rglob("*"):
        os.utime(path, (MOMENT, MOMENT))
    return tmp_path


def remedies(root: Path) -> set[str]:
    found = findings_of(examine(root), "queues")
    assert found
    return {finding.remedy for finding in found}


def test_what_a_rebuild_left_is_not_to_be_rebuilt_again(root: Path) -> None:
    (remedy,) = remedies(root)
    assert remedy.startswith(f"`rocketlens rebuild queues {root}` was run at 2026-01-02 03:04:05 UTC and left this")


@pytest.mark.parametrize("name", ["abort", f"consumequeue/T/1/{1000:020d}"])
def test_once_something_was_written_a_rebuild_is_advised_again(root: Path, name: str) -> None:
    (root / name).touch()
    os.utime(root / name, (time.time(), time.time()))
    whole = name == "abort"  # then the index lacks messages too, and one command does both
    assert remedies(root) == {f"rocketlens rebuild {'all' if whole else 'queues'} {root}"}


def test_a_rebuild_of_the_queues_says_nothing_of_the_index(root: Path) -> None:
    for path in (root / "index").iterdir():
        path.unlink()
    assert only(root, "index-reach").remedy == f"rocketlens rebuild all {root}"


@pytest.mark.parametrize("name", ["consumequeue.bak-20269999999999", "consumequeue.new-20260102030405"])
def test_other_names_are_no_backups(root: Path, name: str) -> None:
    (root / f"consumequeue.bak-{TIME}").rename(root / name)
    assert remedies(root) == {f"rocketlens rebuild queues {root}"}
