"""A store on a read-only file system: jobs that only read do so, and those that would write say why they cannot."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from command_line import rocketlens

UNREADABLE = 3

READ: dict[str, tuple[str, ...]] = {
    "verify": (),
    "doctor": (),
    "rebuild all": ("--out",),
    "compact index": ("--out",),
    "export": ("--format", "ndjson", "--out"),
}
WRITE = ("rebuild all", "rebuild index", "rebuild queues", "compact index")


@pytest.fixture(scope="module")
def read_only(g1_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    if os.geteuid():
        pytest.skip("only root mounts a file system")
    folder = tmp_path_factory.mktemp("read-only")
    shutil.copytree(g1_store, folder / "store")
    place = folder / "mounted"
    place.mkdir()
    subprocess.run(["mount", "--bind", str(folder / "store"), str(place)], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(place)], check=True)
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("job", READ)
def test_a_job_that_only_reads_needs_no_right_to_write(job: str, read_only: Path, tmp_path: Path) -> None:
    options = [*READ[job], *([tmp_path / "out"] if READ[job] else [])]
    ended = rocketlens(*job.split(), read_only, *options)
    assert ended.code == 0, ended.errors


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("job", WRITE)
def test_a_job_in_place_says_that_nothing_can_be_written(job: str, read_only: Path) -> None:
    ended = rocketlens(*job.split(), read_only)
    assert ended.code in (2, UNREADABLE), ended.errors
    assert "Read-only file system" in ended.errors
    assert "Traceback" not in ended.errors
    assert len(ended.errors.splitlines()) < 5


@pytest.mark.parametrize("job", ["export", "rebuild all"])
def test_output_on_such_a_file_system_is_refused_in_words(job: str, g1_store: Path, read_only: Path) -> None:
    options = ("--format", "ndjson") if job == "export" else ()
    ended = rocketlens(*job.split(), g1_store, *options, "--out", read_only / "out")
    assert ended.code in (2, UNREADABLE), ended.errors
    assert "Read-only file system" in ended.errors
