from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcmp

from protocol.kernels.memory cimport load_i32
from storage.kernels.region cimport Region, Room, require

cdef enum:
    PREFIX = 8  # length i32, serialize type u8, header length u24
    LENGTH_FIELD = 4

cpdef enum:  # Places in a tally, and how many there are.
    ANSWERS
    BAD
    FRAME_BYTES
    BODY_BYTES
    FIRST_BAD
    COUNTERS

UNANSWERED: Final = -1


cdef int64_t number_behind(const uint8_t *at, const uint8_t *end, const char *name, size_t length) noexcept nogil:
    """The decimal number behind a JSON member's name; −1 without that name."""
    cdef int64_t value = 0
    while end - at > <int64_t>length:
        if memcmp(at, name, length) == 0:
            at += length
            while at < end and c'0' <= at[0] <= c'9':
                value = value * 10 + (at[0] - c'0')
                at += 1
            return value
        at += 1
    return -1


def read_answers(
    Region buffer not None, int64_t start, int64_t end, int64_t now, sent_at: npt.NDArray[np.int64],
    latency: npt.NDArray[np.int64], tally: npt.NDArray[np.int64],
) -> int:
    """Take each whole frame from ``start`` to ``end``; where the first incomplete one starts."""
    cdef Room sent_room = Room(sent_at, sizeof(int64_t)), latency_room = Room(latency, sizeof(int64_t))
    cdef Room tally_room = Room(tally, sizeof(int64_t))
    cdef const int64_t *sent = <const int64_t *>sent_room.items
    cdef int64_t *waited = <int64_t *>latency_room.items
    cdef int64_t *counts = <int64_t *>tally_room.items
    cdef int64_t frame_end, header_end, code, opaque, bytes_of_length
    cdef const uint8_t *frame
    cdef bint is_ours
    require(buffer, start, end)
    if tally_room.count != 5 or sent_room.count != latency_room.count:
        raise ValueError("a tally of five numbers, and a latency for each time of sending")
    with nogil:
        while end - start >= PREFIX:
            frame = buffer.data + start
            bytes_of_length = <int64_t>load_i32(frame)
            frame_end = start + LENGTH_FIELD + bytes_of_length
            header_end = start + PREFIX + (load_i32(frame + LENGTH_FIELD) & 0xFFFFFF)
            if frame_end > end or header_end > frame_end:
                break
            code = number_behind(frame + PREFIX, buffer.data + header_end, b'"code":', 7)
            opaque = number_behind(frame + PREFIX, buffer.data + header_end, b'"opaque":', 9)
            is_ours = 0 <= opaque < latency_room.count and waited[opaque] == -1
            if is_ours:
                waited[opaque] = now - sent[opaque]
            if not is_ours or code != 0 or header_end >= frame_end:
                if counts[1] == 0:
                    counts[4] = start
                counts[1] += 1
            counts[0] += 1
            counts[2] += frame_end - start
            counts[3] += frame_end - header_end
            start = frame_end
    return start
