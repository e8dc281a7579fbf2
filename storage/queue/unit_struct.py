"""The bytes of a plain queue's unit, for those who read a few (their table: :mod:`storage.queue.consume_queue`)."""

from struct import Struct
from typing import Final

UNIT: Final = Struct(">qiq")
FILLER_SIZE: Final = 0x7FFFFFFF
"""The record size in a filler unit, which stands before the first message of a queue and points to none."""
FILLER: Final = (0, FILLER_SIZE, 0)
