"""Our processes and packages: children with modules and rights of ours alone, memory that is given back, extras."""

import ctypes
import json
import os
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from planted import NAMES, imported, plant
from process import START_SECONDS
from read_only import as_user
from read_only_guard import NOBODY
from storage import child_process, extras
from storage.child_process import child_environment, child_ids, python_command, settle_ids
from storage.extras import install_line, packages_of
from storage.process_memory import trim_heap

COMMAND = str(Path(sys.executable).with_name("rocketlens"))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    plant(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def store(g1_store, tmp_path, monkeypatch):
    """A store with such modules in it, which is the current directory."""
    store = tmp_path / "store"
    shutil.copytree(g1_store, store)
    plant(store)
    monkeypatch.chdir(store)
    yield store
    assert imported(store) == {}


def test_what_is_planted_runs_where_nothing_is_done_against_it(here: Path) -> None:
    subprocess.run([sys.executable, "-c", "import msgspec, storage, sitecustomize"], check=True)
    assert {"msgspec", "storage", "sitecustomize"} <= imported(here).keys() <= {n.split("/")[0] for n in NAMES}


@pytest.mark.parametrize("path", [None, f"relative{os.pathsep}/nowhere"])
def test_a_python_that_we_start_imports_our_packages_and_nothing_from_here(here, monkeypatch, path) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    if path is not None:
        monkeypatch.setenv("PYTHONPATH", path)
    code = "import msgspec, storage.child_process as ours; print(ours.__file__); print(*sys.argv[1:])"
    command = python_command(code, "some", "arguments")
    done = subprocess.run(command, env=child_environment(), capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [child_process.__file__, "some arguments"]
    assert imported(here) == {}


@pytest.mark.parametrize("arguments", [("find", ".", "hotkey"), pytest.param(("doctor", "."), marks=pytest.mark.soak)])
def test_commands_import_nothing_from_the_store_that_they_are_started_in(store: Path, arguments: tuple[str]) -> None:
    ended = subprocess.run([COMMAND, *arguments], capture_output=True, timeout=START_SECONDS, check=False)
    assert ended.returncode in (0, 4), ended.stderr
    assert b"Traceback" not in ended.stderr


STATUS = "sed -n 's/^[UG]id:\t//p; s/^Groups:/groups/p' /proc/self/status"
"""What a shell's child says of its real, effective, saved and file system's ids, and of its groups."""

ROOT_ALONE = pytest.mark.skipif(os.getuid() != 0, reason="root alone has what can be taken back")


@ROOT_ALONE
def test_a_child_of_a_process_that_runs_with_less_cannot_take_it_back() -> None:
    with as_user():
        ids = child_ids()
        mere = subprocess.run(["sh", "-c", STATUS], capture_output=True, text=True, check=True)
        held = subprocess.run(["sh", "-c", STATUS], capture_output=True, text=True, check=True, user=ids.user,
                              group=ids.group)  # fmt: skip
    assert "0" in mere.stdout.split(), "effective ids alone are not enough"
    assert held.stdout.split() == [str(NOBODY)] * 8 + ["groups"]


@ROOT_ALONE
def test_a_process_that_was_forked_cannot_take_it_back_either() -> None:
    with as_user():
        child = os.fork()
        if not child:
            settle_ids()
            is_settled = {*os.getresuid(), *os.getresgid()} == {NOBODY} and os.getgroups() == []
            os._exit(0 if is_settled else 1)
        assert os.waitpid(child, 0)[1] == 0


ALLOCATE = """
import ctypes, json, resource, sys
from storage.process_memory import keep_heap, trim_heap

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, (ctypes.c_void_p,)
libc.memset.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
if sys.argv[1] == "kept":
    keep_heap()
faults = []
for _ in range(30):
    # Two at a time, of growing length: what glibc learns from one that is given back does not do for the next.
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [libc.malloc(1_500_000), libc.malloc(1_500_000)]
    for block in blocks:
        libc.memset(block, 1, 1_500_000)
    for block in reversed(blocks):
        libc.free(block)
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(json.dumps(faults))
"""


def test_a_heap_that_shrank_is_given_back() -> None:
    """Small blocks of the allocator's, of which one at the end is kept, so that it cannot shrink by itself."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, (ctypes.c_void_p,)
    blocks = [libc.malloc(8192) for _ in range(4000)]
    for block in blocks[:-1]:
        ctypes.memset(block, 1, 8192)
        libc.free(block)
    before = anonymous_bytes()
    trim_heap()
    assert anonymous_bytes() < before - 20_000_000
    libc.free(blocks[-1])


def test_the_memory_of_long_answers_is_used_again() -> None:
    def faults(how: str) -> list[int]:
        done = subprocess.run([sys.executable, "-c", ALLOCATE, how], stdout=subprocess.PIPE, check=True)
        found: list[int] = json.loads(done.stdout)
        return found

    assert min(faults("given back")[10:]) > 300, "pages of 4 KiB, each brought in anew"
    assert max(faults("kept")[1:]) < 30


def anonymous_bytes() -> int:
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon")]
    return int(line.split()[1]) * 1024


PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
EXTRAS = sorted(set(PROJECT["optional-dependencies"]) - {"test", "dev"})


def test_a_line_names_the_packages_of_an_extra_and_not_the_distribution() -> None:
    for extra in EXTRAS:
        program, verb, *packages = shlex.split(install_line(extra))
        assert (program, verb) == ("pip", "install")
        assert packages == PROJECT["optional-dependencies"][extra]
        assert "rocketlens" not in install_line(extra)


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_installed_distribution_names_the_same(extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no pyproject.toml beside a wheel's packages; the order of versions is another one in its metadata."""
    monkeypatch.setattr(extras, "_SOURCES", tmp_path)
    found = packages_of.__wrapped__(extra)
    expected = [Requirement(each) for each in PROJECT["optional-dependencies"][extra]]
    assert sorted(map(Requirement, found), key=str) == sorted(expected, key=str)


@pytest.mark.soak
@pytest.mark.parametrize("extra", EXTRAS)
def test_a_line_finds_its_packages_in_a_fresh_environment(extra: str, tmp_path: Path) -> None:
    """By the index that pip is set up for, and with all that they need."""
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "fresh"], check=True)
    _, *rest = shlex.split(install_line(extra))
    typed = [tmp_path / "fresh" / "bin" / "pip", *rest, "--dry-run", "--quiet"]
    ended = subprocess.run(typed, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
