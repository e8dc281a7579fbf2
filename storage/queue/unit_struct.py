"""The layout of a plain queue's unit, for modules that read single units; see :mod:`storage.queue.consume_queue`."""

from struct import Struct
from typing import Final

UNIT: Final = Struct(">qiq")
UNIT_DTYPE: Final = [("physical_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")]
"""The same in arrays."""
FILLER_SIZE: Final = 0x7FFFFFFF
"""The record size in a filler unit, which is before the first message of a queue and points to no message."""
FILLER: Final = (0, FILLER_SIZE, 0)

Unit = tuple[int, int, int, int, int]
"""One unit as a pull reads it: queue offset, queue offset after it, physical offset, record size, tags code."""
