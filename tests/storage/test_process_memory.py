"""What bursts leave behind is given back."""

import ctypes
from pathlib import Path

import pytest

from storage import process_memory
from storage.process_memory import trim_heap


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
