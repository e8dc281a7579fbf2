"""Whether files were cut under their maps, for kernels: see file_map.pyx."""

from libc.stdint cimport int64_t


# How often this process looked at bytes of a guarded map that were not there any more, and saw zeros.
cdef int64_t cuts() noexcept nogil
