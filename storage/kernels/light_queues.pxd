"""Lists of light queues: a message names further queues, and the broker adds its offsets in them (store-format §2.10).

    INNER_MULTI_DISPATCH      %LMQ%a,%LMQ%b
    INNER_MULTI_QUEUE_OFFSET  7,0
"""

from libc.stdint cimport int64_t
from libc.string cimport memchr, memcmp

from storage.kernels.records cimport SPACE, Text


cdef enum:
    LIGHT_PREFIX_BYTES = 5


cdef inline void trim_list(Text *text) noexcept nogil:
    """Drop the commas at the end of a list, as Java's split does; blank text, which is no list, becomes empty."""
    cdef int64_t first = 0
    while first < text.length and text.start[first] == SPACE:
        first += 1
    if first == text.length:
        text.length = 0
    while text.length > 0 and text.start[text.length - 1] == c',':
        text.length -= 1


cdef inline int64_t count_items(const Text *text) noexcept nogil:
    """Items of a trimmed list; none in an empty one."""
    cdef int64_t position, count = text.length > 0
    for position in range(text.length):
        count += text.start[position] == c','
    return count


cdef inline bint is_light_name(const Text *name) noexcept nogil:
    """Whether a name starts with %LMQ%."""
    return name.length >= LIGHT_PREFIX_BYTES and memcmp(name.start, b"%LMQ%", LIGHT_PREFIX_BYTES) == 0


cdef inline bint is_directory_name(const Text *name) noexcept nogil:
    """Whether a name can be that of a directory: a broker passes over those with a slash."""
    return name.length > 0 and memchr(name.start, c'/', name.length) == NULL
