"""A store on a read-only file system: jobs that only read do so, and those that would write say why they cannot."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from command_line import rocketlens
from store_kinds import Ledger

UNREADABLE = 3


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


@pytest.mark.parametrize(
    ("job", "options"),
    [("verify", ()), ("rebuild all", ("--out",)), ("export", ("--format", "ndjson", "--out")), ("convert", ("--out",))],
)
def test_a_job_that_only_reads_needs_no_right_to_write(
    job: str, options: tuple[str, ...], read_only: Path, ledger: Path, tmp_path: Path
) -> None:
    store = ledger if job == "convert" else read_only
    ended = rocketlens(*job.split(), store, *options, *([tmp_path / "out"] if options else []))
    assert ended.code == 0, ended.errors
    assert job != "convert" or rocketlens("verify", tmp_path / "out").code == 0


@pytest.mark.parametrize("job", ["rebuild all", "export", "convert"])
def test_what_would_write_there_says_why_it_cannot(job: str, g1_store: Path, ledger: Path, read_only: Path) -> None:
    arguments = {
        "rebuild all": (read_only,),
        "export": (g1_store, "--format", "ndjson", "--out", read_only / "out"),
        "convert": (ledger, "--out", read_only / "out"),
    }
    ended = rocketlens(*job.split(), *arguments[job])
    assert ended.code in (2, UNREADABLE), ended.errors
    assert "Read-only file system" in ended.errors
    assert "Traceback" not in ended.errors
    assert len(ended.errors.splitlines()) < 5
