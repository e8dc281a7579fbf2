"""Give back memory that a process was lent and does not use: what only its start needed, and what bursts leave behind.

Kernels are linked by LLVM when they are loaded, which brings 65 MB of its library into memory; from then on nobody
calls it. Pages of a library that nobody wrote to are its file's: they may be let go of at any time, and whoever touches
one again reads it anew, most times from the page cache.
"""

import ctypes
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

_MAPS: Final = Path("/proc/self/smaps")
_HEAD: Final = re.compile(r"([0-9a-f]+)-([0-9a-f]+) r-[-x]p \S+ \S+ [1-9]\d* +/.*\.so(?:\.[\d.]+)?$")
"""A private map of a library's file that is not written to."""
_ANY_HEAD: Final = re.compile(r"[0-9a-f]+-[0-9a-f]+ ")
_MADV_DONTNEED: Final = 4


def release_library_pages() -> int:
    """Let go of all clean pages of libraries; how many bytes of memory they were. 0 where the system cannot tell."""
    try:
        with open(_MAPS) as lines:
            found = list(_clean_maps(lines))
    except OSError:
        return 0
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return sum(resident for start, length, resident in found if madvise(start, length, _MADV_DONTNEED) == 0)


def trim_heap() -> None:
    """Have glibc give back pages that it keeps for later, in a fraction of a millisecond; others do nothing."""
    if _malloc_trim is not None:
        _malloc_trim(0)


_malloc_trim: Final = getattr(ctypes.CDLL(None), "malloc_trim", None)


def _clean_maps(lines: Iterable[str]) -> Iterator[tuple[int, int, int]]:
    """Address, length and resident bytes of each such map that has no page of its own."""
    head: re.Match[str] | None = None
    resident = 0
    for line in lines:
        if _ANY_HEAD.match(line):
            head = _HEAD.match(line)
        elif head is not None and line.startswith("Rss:"):
            resident = int(line.split()[1]) * 1024
        elif head is not None and line.startswith("Anonymous:") and line.split()[1] == "0":
            start = int(head[1], 16)
            yield start, int(head[2], 16) - start, resident
