"""How much memory a process keeps for later: enough for the next answers, and not what bursts leave behind."""

import ctypes
from typing import Any, Final

KEPT_BLOCK: Final = 4 * 1024 * 1024
"""Bytes of the longest block that is used again, and not given back at once."""
KEPT_END: Final = 16 * 1024 * 1024
"""Bytes that may lie unused at the end of the heap until :func:`trim_heap` is called."""
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3

_library: Final[Any] = ctypes.CDLL(None)
_malloc_trim: Final = getattr(_library, "malloc_trim", None)
_mallopt: Final = getattr(_library, "mallopt", None)


def keep_heap() -> None:
    """Have glibc use the memory of long answers again; otherwise each costs a call and fresh pages of the system's."""
    if _mallopt is not None:
        _mallopt(_M_MMAP_THRESHOLD, KEPT_BLOCK)
        _mallopt(_M_TRIM_THRESHOLD, KEPT_END)


def trim_heap() -> None:
    """Have glibc give back pages that it keeps for later, in a fraction of a millisecond; others do nothing."""
    if _malloc_trim is not None:
        _malloc_trim(0)
