"""Pages of libraries are let go of once they are not needed, and are there again for whoever needs them."""

import ctypes
import json
import subprocess
import sys
from pathlib import Path

import numba
import pytest

from read_only import ROOT, environment
from storage import process_memory
from storage.process_memory import release_library_pages, trim_heap

PROGRAM = """
import storage.kernels.crc32, zlib, json
from pathlib import Path
from storage.process_memory import release_library_pages
def resident():
    lines = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return {name: int(lines[name].split()[0]) * 1024 for name in ("RssAnon", "RssFile")}
before = resident()
released = release_library_pages()
print(json.dumps([released, before, resident()]))
"""


def test_the_compiler_is_no_burden_once_the_kernels_are_loaded() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment(), cwd=ROOT, capture_output=True, text=True, check=True
    )
    released, before, after = json.loads(done.stdout)
    assert released > 30_000_000
    assert before["RssFile"] - after["RssFile"] > 30_000_000
    assert after["RssAnon"] < before["RssAnon"] + 5_000_000


def test_everything_works_on_as_before() -> None:
    assert release_library_pages() > 0
    assert numba.njit(lambda number: number + 1)(41) == 42
    assert ctypes.CDLL(None).getpid() > 0


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


def anonymous_bytes() -> int:
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon")]
    return int(line.split()[1]) * 1024


def test_without_such_an_allocator_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_memory, "_malloc_trim", None)
    trim_heap()


def test_where_maps_cannot_be_read_nothing_is_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_memory, "_MAPS", tmp_path / "nothing")
    assert release_library_pages() == 0


LIBRARY = "08:01 1234     /usr/lib/libLLVM.so.15"
COUNTS = "Rss:    8 kB\nAnonymous:     {} kB\n"


@pytest.mark.parametrize(
    ("head", "anonymous", "is_let_go"),
    [
        (f"7f00-7f0f r-xp 00000000 {LIBRARY}", 0, True),
        (f"7f00-7f0f r--p 00000000 {LIBRARY}", 0, True),
        (f"7f00-7f0f r--p 00000000 {LIBRARY}", 4, False),
        (f"7f00-7f0f rw-p 00000000 {LIBRARY}", 0, False),
        (f"7f00-7f0f r--s 00000000 {LIBRARY}", 0, False),
        ("7f00-7f0f r--p 00000000 08:01 1234     /usr/lib/python3.11/os.py", 0, False),
        ("7f00-7f0f r--p 00000000 08:01 1234     /usr/lib/libLLVM.so.15 (deleted)", 0, False),
        ("7f00-7f0f r-xp 00000000 00:00 0     [vdso]", 0, False),
        ("7f00-7f0f r--p 00000000 00:00 0", 0, False),
    ],
    ids=["code", "data", "relocated", "writable", "shared", "no library", "deleted", "of the kernel", "nothing"],
)
def test_only_clean_private_maps_of_libraries_are_let_go(head: str, anonymous: int, is_let_go: bool) -> None:
    lines = f"{head}\n{COUNTS.format(anonymous)}7f10-7f1f rw-p 0 00:00 0\n{COUNTS.format(0)}".splitlines()
    assert list(process_memory._clean_maps(lines)) == ([(0x7F00, 0xF, 8192)] if is_let_go else [])
