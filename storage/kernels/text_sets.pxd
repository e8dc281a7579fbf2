"""Texts in order, among which one is found by halves: shorter ones first, those of one length by their bytes."""

from libc.stdint cimport int64_t
from libc.string cimport memcmp

from storage.kernels.records cimport Text


cdef struct TextSet:
    Text *texts
    int64_t count


cdef inline int order_of(const Text *left, const Text *right) noexcept nogil:
    """Whether a text stands before another, or is the same, or stands behind it: below, at or above 0."""
    if left.length != right.length:
        return -1 if left.length < right.length else 1
    return memcmp(left.start, right.start, left.length)


cdef inline int64_t place_in(const TextSet *texts, const Text *wanted) noexcept nogil:
    """Which of some texts a text is, or −1."""
    cdef int64_t low = 0, high = texts.count, middle
    cdef int order
    while low < high:
        middle = (low + high) >> 1
        order = order_of(wanted, &texts.texts[middle])
        if order == 0:
            return middle
        if order < 0:
            high = middle
        else:
            low = middle + 1
    return -1
