"""The load generator's parser of answers: one call for all that a read brought.

A frame is length i32, serialize type u8, header length u24, JSON header, body (remoting-protocol §1). Of the header
only ``code`` and ``opaque`` are read: which request it answers, and whether well.
"""

from typing import Final

from benchmarks.store_plan import Numbers
from storage.kernels.region import Region

# What read_answers counts, as places in its tally: answers; those that are errors; bytes of frames; bytes of bodies;
# and where in the buffer the first error's frame started.
ANSWERS: Final = 0
BAD: Final = 1
FRAME_BYTES: Final = 2
BODY_BYTES: Final = 3
FIRST_BAD: Final = 4
COUNTERS: Final = 5
UNANSWERED: Final = -1

def read_answers(
    buffer: Region, start: int, end: int, now: int, sent_at: Numbers, latency: Numbers, tally: Numbers
) -> int:
    """Take each whole frame from ``start`` to ``end``; where the first incomplete one starts."""
