"""Give back memory that a process was lent and does not use: what bursts leave behind."""

import ctypes
from typing import Final


def trim_heap() -> None:
    """Have glibc give back pages that it keeps for later, in a fraction of a millisecond; others do nothing."""
    if _malloc_trim is not None:
        _malloc_trim(0)


_malloc_trim: Final = getattr(ctypes.CDLL(None), "malloc_trim", None)
