"""A plugin of pytest: where the tests and the processes that they start keep their files: in memory if there is room.

`--basetemp` and the environment variable PYTEST_DEBUG_TEMPROOT, both pytest's own, choose another place. Tests about
pages and holes of a disk ask for the fixture `disk_path`, those about a full one for `small_disk`.
"""

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")

NEEDED_BYTES = 8 << 30
"""Room that it must have, and memory that must be free besides: twice what `make test` takes, and its processes."""

_PREFIX = "rocketlens-tests-"
_DISK = "ROCKETLENS_TESTS_DISK"
"""The environment variable with the directory of temporary files as it was."""

_CREATED = pytest.StashKey[Path]()


def pytest_configure(config: pytest.Config) -> None:
    """Choose the directory, in the process that was started by a person; those of pytest-xdist get it from there."""
    if hasattr(config, "workerinput") or config.option.basetemp or "PYTEST_DEBUG_TEMPROOT" in os.environ:
        return
    _remove_left_ones()
    if _has_room():
        directory = config.stash[_CREATED] = MEMORY / f"{_PREFIX}{os.getpid()}"
        temporary = directory / "temporary"
        temporary.mkdir(parents=True)
        config.option.basetemp = directory / "base"
        os.environ[_DISK] = tempfile.gettempdir()
        os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Give the memory back. What a failed test left is lost: run that test alone with `--basetemp` to see it."""
    directory = config.stash.get(_CREATED, None)
    if directory is not None:
        os.environ["TMPDIR"] = tempfile.tempdir = os.environ[_DISK]
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def disk_path():
    """An empty directory on a disk, as `tmp_path` need not be."""
    directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=os.environ.get(_DISK)))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


def _has_room() -> bool:
    if not (MEMORY.is_dir() and os.access(MEMORY, os.W_OK)):
        return False
    lines = Path("/proc/meminfo").read_text().splitlines()
    available = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    return min(shutil.disk_usage(MEMORY).free, available // 2) >= NEEDED_BYTES


def _remove_left_ones() -> None:
    for directory in MEMORY.glob(f"{_PREFIX}*"):
        number = directory.name.removeprefix(_PREFIX)
        if number.isdigit() and not Path(f"/proc/{number}").exists():
            shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def small_disk(place):
    """A disk that is there once its room is said, as an option of mount; asked for again it has other room."""
    if os.geteuid():
        pytest.skip("only root mounts a disk")
    place.mkdir()
    mounted = False

    def give(options: str) -> Path:
        nonlocal mounted
        how = f"remount,{options}" if mounted else options
        subprocess.run(["mount", "-t", "tmpfs", "-o", how, "none", str(place)], check=True)
        mounted = True
        return place

    try:
        yield give
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(place)], check=True)
