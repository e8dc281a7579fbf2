"""CRC-32 (IEEE, the one of zlib) of bytes in memory: see checksum.h."""

from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t, uint64_t


cdef extern from "checksum.h" nogil:
    uint32_t crc32_of(const uint8_t *data, size_t length) noexcept  # The checksum, unsigned; a record keeps its low 31 bits.
    uint32_t crc32_moved(uint32_t crc, uint64_t length) noexcept  # What it adds to that of the same bytes with more behind them.
    ctypedef struct crc32_way:
        const char *name
        uint32_t (*function)(const uint8_t *data, size_t length) noexcept
        bint (*is_possible)() noexcept
    enum:
        CRC32_WAYS
    const crc32_way crc32_ways[]  # The best first; `crc32_of` goes the first that is possible on this processor.
