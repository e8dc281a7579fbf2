"""The kernels under AddressSanitizer and UBSan: these see what is planted."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.soak
"""Compiling takes a minute. In each run: tests/storage/kernels with memory that ends where a kernel may read."""

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "build_backend"))

import judges  # noqa: E402  (what builds is in no package)

FEW = ("storage.kernels.region", "storage.kernels.file_map")
USE = """
import mmap, sys, tempfile
import numpy as np
import planted_faults as planted
from storage.kernels import region
from storage.kernels.file_map import FileMap
from storage.kernels.region import Region

def file_of(size):
    file = tempfile.TemporaryFile()
    file.write(b"x" * size)
    file.flush()
    return file

def mapped(size):
    file = file_of(size)
    return Region(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ))

def guarded(size):
    file = file_of(size)
    return Region(FileMap(file.fileno(), size))

numbers = np.arange(5, dtype=np.int32)
assert "sanitizers" in region.__file__
print("begun")
"""
SOUND = """
assert planted.read_region(Region(b"abc"), 2) == planted.read_text(b"abc", 2) == ord("c")
assert planted.read_region(mapped(5000), 4999) == planted.read_region(guarded(8192), 8191) == ord("x")
assert planted.read_column(numbers[:3], 2) == 2
planted.write_room(numbers[:3], 2)
assert numbers.tolist() == [0, 1, 7, 3, 4]
assert planted.add(2**31 - 2, 1) == 2**31 - 1
"""
FAULTS = {
    "a byte behind bytes": ('planted.read_region(Region(b"abc"), 3)', "heap-buffer-overflow"),
    "a byte before a part": ('planted.read_region(Region(memoryview(b"abcdefgh")[3:]), -1)', "heap-buffer-overflow"),
    "a byte behind a text": ('planted.read_text(b"abc", 3)', "heap-buffer-overflow"),
    "a number behind an array": ("planted.read_column(numbers, 5)", "heap-buffer-overflow"),
    "a number written behind a part": ("planted.write_room(numbers[:3], 3)", "heap-buffer-overflow"),
    "a byte behind a file": ("planted.read_region(mapped(5000), 5000)", "use-after-poison"),
    "a byte behind a file that may be cut": ("planted.read_region(guarded(5000), 5000)", "use-after-poison"),
    "a sum that is too large": ("planted.add(2**31 - 1, 1)", "signed integer overflow"),
    "a number that lies anywhere": ('planted.load_aligned(Region(b"abcdefgh"), 1)', "misaligned address"),
}


@pytest.fixture(scope="module")
def place():
    """Where a few modules are that were compiled for the sanitizers, if their sources changed."""
    try:
        place = judges.build(judges.SANITIZERS, [*FEW, judges.PLANTED.stem])
    except judges.Unavailable as missing:
        pytest.skip(str(missing))
    judges.take_reports(place)
    yield place
    judges.take_reports(place)


def run(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, env=judges.environment(place), capture_output=True, text=True, check=False)


def test_what_is_sound_goes_through(place: Path) -> None:
    outcome = run(place, "-c", USE + SOUND)
    assert (outcome.returncode, outcome.stdout, judges.take_reports(place)) == (0, "begun\n", ""), outcome.stderr


@pytest.fixture
def _without_names_of_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports have the addresses of frames alone: looking for the names of Python's own takes ten seconds each."""
    monkeypatch.setenv("ASAN_OPTIONS", "symbolize=0")


@pytest.mark.usefixtures("_without_names_of_frames")
@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_ends_the_run_and_is_named(place: Path, name: str) -> None:
    fault, reported = FAULTS[name]
    outcome = run(place, "-c", f"{USE}{fault}\nprint('went on')")
    assert (outcome.returncode != 0, outcome.stdout) == (True, "begun\n"), outcome.stderr
    assert reported in judges.take_reports(place)
