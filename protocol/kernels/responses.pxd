"""Headers of commands as they are written, in both forms: see responses.pyx."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from protocol.kernels.memory cimport Text, store_i32


cdef enum:
    PREFIX = 8
    LENGTH = 4  # Of those, what the length of a frame does not count.
    MOST_NUMBERS = 4
    LONGEST_NUMBER = 20


@cython.final
cdef class ResponseTemplate:
    cdef Text parts[MOST_NUMBERS + 1]
    cdef readonly int numbers  # How many numbers are left open.
    cdef readonly object body  # `bytes | memoryview`: What is to be written behind each head.
    cdef readonly int64_t size  # Bytes of the longest frame, body included.
    cdef int64_t fixed_length
    cdef int32_t word  # The serialize type where the header's length is added.
    cdef tuple _parts


cdef inline Text digits_of(int64_t number, uint8_t *room) noexcept nogil:
    """A number in decimal digits, in LONGEST_NUMBER bytes of room."""
    cdef Text digits
    cdef uint8_t *at = room + LONGEST_NUMBER
    cdef uint64_t left = -<uint64_t>number if number < 0 else <uint64_t>number
    while True:
        at -= 1
        at[0] = <uint8_t>(c"0" + left % 10)
        left //= 10
        if left == 0:
            break
    if number < 0:
        at -= 1
        at[0] = c"-"
    digits.start, digits.length = at, room + LONGEST_NUMBER - at
    return digits


cdef inline int64_t head_length(ResponseTemplate template, const Text *numbers) noexcept:
    """Bytes of prefix and header."""
    cdef int64_t length = PREFIX + template.fixed_length
    cdef int i
    for i in range(template.numbers):
        length += numbers[i].length
    return length


cdef inline uint8_t *write_text(uint8_t *at, const Text *text) noexcept nogil:
    memcpy(at, text.start, text.length)
    return at + text.length


cdef inline uint8_t *write_prefix(uint8_t *at, int32_t word, int64_t header_length, int64_t body_length) noexcept nogil:
    store_i32(at, <int32_t>(PREFIX - LENGTH + header_length + body_length))
    store_i32(at + LENGTH, word | <int32_t>header_length)
    return at + PREFIX


cdef inline uint8_t *write_head(
    uint8_t *at, ResponseTemplate template, const Text *numbers, int64_t head, int64_t body_length
) noexcept:
    """Write prefix and header of an answer, ``head`` bytes in all; the place behind them."""
    cdef int i
    at = write_text(write_prefix(at, template.word, head - PREFIX, body_length), &template.parts[0])
    for i in range(template.numbers):
        at = write_text(write_text(at, &numbers[i]), &template.parts[i + 1])
    return at
