"""Memory that kernels read and write: see region.pyx. What a kernel is given, it checks at its door by these."""

cimport cython
from cpython.buffer cimport Py_buffer
from libc.stdint cimport int64_t, uint8_t


@cython.final
cdef class Region:
    cdef Py_buffer _export
    cdef const uint8_t *data
    cdef readonly Py_ssize_t size  # How many bytes.


@cython.final
cdef class Column:
    cdef Py_buffer _export
    cdef const void *items
    cdef Py_ssize_t count


@cython.final
cdef class Room:
    cdef Py_buffer _export
    cdef void *items
    cdef Py_ssize_t count


@cython.final
cdef class Block:
    cdef void *items
    cdef int64_t size  # Of its memory, in bytes.

    cdef bint grow(self, int64_t size) noexcept nogil


cdef void *take(list held, int64_t count, int64_t item_bytes) except NULL
cdef void *take_zeroes(list held, int64_t count, int64_t item_bytes) except NULL


cdef inline Region region_of(object buffer):
    """The buffer itself where it is a region, else one over it."""
    return <Region>buffer if isinstance(buffer, Region) else Region(buffer)


cdef inline int require(Region region, int64_t position, int64_t stop) except -1:
    """Raise ValueError unless both lie in the region, at its end at most; ``stop`` may lie before ``position``."""
    if position < 0 or position > region.size or stop < 0 or stop > region.size:
        raise ValueError(f"bytes {position} to {stop} do not lie in a region of {region.size} bytes")
    return 0


cdef inline int require_bytes(Region region, int64_t position, int64_t length) except -1:
    """Raise ValueError unless so many bytes lie in the region from a position on."""
    if position < 0 or length < 0 or length > region.size or position > region.size - length:
        raise ValueError(f"{length} bytes at position {position} do not lie in a region of {region.size} bytes")
    return 0
