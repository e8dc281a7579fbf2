"""The load generator's parser of answers: one numba kernel call for all that a read brought.

A frame is length i32, serialize type u8, header length u24, JSON header, body (remoting-protocol §1). Of the header
only ``code`` and ``opaque`` are read: which request it answers, and whether well.
"""

import numba
import numpy as np
import numpy.typing as npt

from benchmarks.store_plan import Numbers

# What read_answers counts, as places in its tally: answers; those that are errors; bytes of frames; bytes of bodies;
# and where in the buffer the first error's frame started.
ANSWERS, BAD, FRAME_BYTES, BODY_BYTES, FIRST_BAD, COUNTERS = range(6)
UNANSWERED = -1

_PREFIX_SIZE = 8
_LENGTH_FIELD = 4
_CODE = np.frombuffer(b'"code":', dtype=np.uint8)
_OPAQUE = np.frombuffer(b'"opaque":', dtype=np.uint8)


@numba.njit(cache=True)
def read_answers(
    buffer: npt.NDArray[np.uint8],
    start: int,
    end: int,
    now: int,
    sent_at: Numbers,
    latency: Numbers,
    tally: Numbers,
) -> int:
    """Takes each whole frame in ``buffer[start:end]``; returns where the first incomplete one starts."""
    while end - start >= _PREFIX_SIZE:
        length = _big_endian(buffer, start, 4)
        frame_end = start + _LENGTH_FIELD + length
        if frame_end > end:
            break
        header_end = start + _PREFIX_SIZE + _big_endian(buffer, start + 5, 3)
        code = _number_behind(buffer, start + _PREFIX_SIZE, header_end, _CODE)
        opaque = _number_behind(buffer, start + _PREFIX_SIZE, header_end, _OPAQUE)
        is_ours = 0 <= opaque < len(latency) and latency[opaque] == UNANSWERED
        if is_ours:
            latency[opaque] = now - sent_at[opaque]
        if not is_ours or code != 0 or header_end >= frame_end:
            if tally[BAD] == 0:
                tally[FIRST_BAD] = start
            tally[BAD] += 1
        tally[ANSWERS] += 1
        tally[FRAME_BYTES] += frame_end - start
        tally[BODY_BYTES] += frame_end - header_end
        start = frame_end
    return start


@numba.njit(cache=True)
def _big_endian(buffer: npt.NDArray[np.uint8], position: int, size: int) -> int:
    value = 0
    for i in range(position, position + size):
        value = value << 8 | int(buffer[i])
    return value


@numba.njit(cache=True)
def _number_behind(buffer: npt.NDArray[np.uint8], start: int, end: int, name: npt.NDArray[np.uint8]) -> int:
    """The decimal number behind a JSON member's name; −1 without that name."""
    for position in range(start, end - len(name)):
        for i in range(len(name)):
            if buffer[position + i] != name[i]:
                break
        else:
            value = 0
            position += len(name)
            while position < end and 48 <= buffer[position] <= 57:
                value = value * 10 + int(buffer[position]) - 48
                position += 1
            return value
    return -1


def warm_up_kernel() -> None:
    """Loads (or compiles) the parser now, and not inside a measurement."""
    nothing = np.zeros(0, dtype=np.int64)
    read_answers(np.zeros(_PREFIX_SIZE, dtype=np.uint8), 0, 0, 0, nothing, nothing, np.zeros(COUNTERS, dtype=np.int64))
