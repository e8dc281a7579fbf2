"""A unit as it is in the file of a plain queue (store-format §5.1): physical offset i64, size i32, tags code i64."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from protocol.kernels.memory cimport store_i32, store_i64


cdef enum:
    UNIT_BYTES = 20
    UNIT_SIZE = 8
    UNIT_TAGS_CODE = 12


cdef inline void write_plain_unit(
    uint8_t *target, int64_t physical_offset, int32_t size, int64_t tags_code
) noexcept nogil:
    """Write a unit, last of all what says that it leads somewhere."""
    store_i64(target + UNIT_TAGS_CODE, tags_code)
    store_i32(target + UNIT_SIZE, size)
    store_i64(target, physical_offset)
