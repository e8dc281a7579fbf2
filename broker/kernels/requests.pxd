"""The header of a request read where it lies: see requests.pyx."""

from libc.stdint cimport int64_t, uint8_t

from protocol.kernels.memory cimport Text


cpdef enum:
    VIEW = 33
    QUERY = 12
    PULL = 11
    LITE_PULL = 361


cdef struct Request:
    int64_t code
    Text opaque_digits  # As they were sent, to be sent back.
    Text topic  # Starts at NULL where there is none; so do subscription and type.
    # Of a view, and of a key query.
    int64_t offset
    Text key
    int64_t maximum
    int64_t begin_timestamp
    int64_t end_timestamp
    int kind  # Of key, as :mod:`storage.kernels.lookups` has them.
    bint is_unique
    # Of a pull.
    Text group
    Text subscription
    Text expression_type
    int64_t queue_id
    int64_t queue_offset
    int64_t max_messages
    int64_t max_bytes
    bint has_max_bytes
    int64_t sys_flag
    int64_t commit_offset
    int64_t sub_version


cdef bint read_request(const uint8_t *at, const uint8_t *stop, Request *request) except -1
