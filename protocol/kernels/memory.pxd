"""Loads from memory, the alphabet of every kernel: unaligned, and big-endian unless their names say otherwise.

Everything in a RocketMQ store is big-endian. Nothing here checks bounds: the caller has to.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy


cdef extern from * nogil:
    """
    #if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    #error "the kernels of RocketLens are written for processors that keep the lowest byte first"
    #endif
    """
    uint16_t __builtin_bswap16(uint16_t value) noexcept
    uint32_t __builtin_bswap32(uint32_t value) noexcept
    uint64_t __builtin_bswap64(uint64_t value) noexcept
    int __builtin_ctzll(uint64_t value) noexcept
    void __builtin_prefetch(const void *address) noexcept
    # For what threads without the GIL share: one whole value or another, in no order with what else is written.
    const int __ATOMIC_RELAXED
    uint64_t __atomic_load_n(const uint64_t *place, int order) noexcept
    void __atomic_store_n(uint64_t *place, uint64_t value, int order) noexcept


cdef struct Text:
    const uint8_t *start  # NULL where there is none.
    int64_t length


cdef inline int16_t load_i16(const uint8_t *at) noexcept nogil:
    cdef uint16_t value
    memcpy(&value, at, sizeof(value))
    return <int16_t>__builtin_bswap16(value)


cdef inline int32_t load_i32(const uint8_t *at) noexcept nogil:
    cdef uint32_t value
    memcpy(&value, at, sizeof(value))
    return <int32_t>__builtin_bswap32(value)


cdef inline int64_t load_i64(const uint8_t *at) noexcept nogil:
    cdef uint64_t value
    memcpy(&value, at, sizeof(value))
    return <int64_t>__builtin_bswap64(value)


cdef inline uint32_t load_native_u32(const uint8_t *at) noexcept nogil:
    """In the machine's byte order: for comparing and searching, where order says nothing."""
    cdef uint32_t value
    memcpy(&value, at, sizeof(value))
    return value


cdef inline uint64_t load_native_u64(const uint8_t *at) noexcept nogil:
    """In the machine's byte order."""
    cdef uint64_t value
    memcpy(&value, at, sizeof(value))
    return value


cdef inline void store_i16(uint8_t *at, int16_t value) noexcept nogil:
    cdef uint16_t swapped = __builtin_bswap16(<uint16_t>value)
    memcpy(at, &swapped, sizeof(swapped))


cdef inline void store_i32(uint8_t *at, int32_t value) noexcept nogil:
    cdef uint32_t swapped = __builtin_bswap32(<uint32_t>value)
    memcpy(at, &swapped, sizeof(swapped))


cdef inline void store_i64(uint8_t *at, int64_t value) noexcept nogil:
    cdef uint64_t swapped = __builtin_bswap64(<uint64_t>value)
    memcpy(at, &swapped, sizeof(swapped))
