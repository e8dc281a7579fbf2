"""Where what was written into a queue file ends: at the first invalid unit.

Shared by all queues of fixed-size units. A scan that runs long is refused on a thread that may not wait; what it
finds is kept by the queue, so that the thread finds it there the next time.
"""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from storage.mapped_file import MappedFile
from storage.residency import Cold, may_wait

FIRST_STEP: Final = 256
LARGEST_STEP: Final = 65_536
LONG_SCAN: Final = 1 << 20
"""Bytes of units that a thread which may not wait goes through at a time: about 0.2 ms."""


def refuse_long_scan(length: int, what: str, limit: int = LONG_SCAN) -> None:
    """Raise Cold when a scan of more than `limit` would hold up a thread that may not wait."""
    if length > limit and not may_wait():
        raise Cold(f"a long scan: {what}")


def count_leading(
    file: MappedFile,
    size: int,
    dtype: np.dtype[Any],
    are_valid: Callable[[npt.NDArray[np.void]], npt.NDArray[np.bool_]],
    known: int = 0,
) -> int:
    """How many units at the start of a file are valid, of those in its first `size` bytes; `known` ones are.

    Steps grow from `FIRST_STEP` units, so that a file that holds little is not read to its end.
    """
    total = min(size, file.size) // dtype.itemsize
    start, step = known, FIRST_STEP
    while start < total:
        count = min(step, total - start)
        refuse_long_scan((start + count - known) * dtype.itemsize, f"where {file.path} ends")
        data = file.read(start * dtype.itemsize, count * dtype.itemsize)
        valid = are_valid(np.frombuffer(data, dtype))
        if not valid.all():
            return start + int(valid.argmin())
        start += count
        step = min(step * 2, LARGEST_STEP)
    return start
