"""A store on a read-only file system: jobs that only read do so, and those that would write say why they cannot."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from command_line import rocketlens
from ledger_stores import Ledger

UNREADABLE = 3

READ: dict[str, tuple[str, ...]] = {
    "verify": (),
    "doctor": (),
    "rebuild all": ("--out",),
    "compact index": ("--out",),
    "export": ("--format", "ndjson", "--out"),
}
WRITE = ("rebuild all", "rebuild index", "rebuild queues", "compact index")


@contextlib.contextmanager
def mounted(store: Path, place: Path) -> Iterator[Path]:
    """A store on a read-only file system."""
    if os.geteuid():
        pytest.skip("only root mounts a file system")
    place.mkdir()
    subprocess.run(["mount", "--bind", str(store), str(place)], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(place)], check=True)
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.fixture(scope="module")
def read_only(g1_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("read-only")
    shutil.copytree(g1_store, folder / "store")
    with mounted(folder / "store", folder / "mounted") as place:
        yield place


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("ledger")
    made = Ledger(folder / "store")
    made.transaction(0, 30)
    made.timer(0)
    made.write_timer_log()
    made.writer.close()
    with mounted(made.root, folder / "mounted") as place:
        yield place


def test_a_conversion_needs_no_right_to_write_to_the_old_store(ledger: Path, tmp_path: Path) -> None:
    ended = rocketlens("convert", ledger, "--out", tmp_path / "new")
    assert ended.code == 0, ended.errors
    assert rocketlens("verify", tmp_path / "new").code == 0


@pytest.mark.parametrize(
    "job", [pytest.param(job, marks=[] if job in ("verify", "export") else pytest.mark.soak) for job in READ]
)
def test_a_job_that_only_reads_needs_no_right_to_write(job: str, read_only: Path, tmp_path: Path) -> None:
    options = [*READ[job], *([tmp_path / "out"] if READ[job] else [])]
    ended = rocketlens(*job.split(), read_only, *options)
    assert ended.code == 0, ended.errors


@pytest.mark.parametrize(
    "job", [pytest.param(job, marks=[] if job == "rebuild all" else pytest.mark.soak) for job in WRITE]
)
def test_a_job_in_place_says_that_nothing_can_be_written(job: str, read_only: Path) -> None:
    ended = rocketlens(*job.split(), read_only)
    assert ended.code in (2, UNREADABLE), ended.errors
    assert "Read-only file system" in ended.errors
    assert "Traceback" not in ended.errors
    assert len(ended.errors.splitlines()) < 5


@pytest.mark.parametrize(
    "job",
    ["export", "convert", *(pytest.param(job, marks=pytest.mark.soak) for job in ("rebuild all", "compact index"))],
)
def test_output_on_such_a_file_system_is_refused_in_words(
    job: str, g1_store: Path, ledger: Path, read_only: Path
) -> None:
    options = ("--format", "ndjson") if job == "export" else ()
    store = ledger if job == "convert" else g1_store
    ended = rocketlens(*job.split(), store, *options, "--out", read_only / "out")
    assert ended.code in (2, UNREADABLE), ended.errors
    assert "Read-only file system" in ended.errors
