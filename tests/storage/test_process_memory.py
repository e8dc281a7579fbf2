"""What bursts leave behind is given back."""

import ctypes
import json
import subprocess
import sys
from pathlib import Path

from storage.process_memory import trim_heap

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
