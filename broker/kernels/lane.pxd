"""What the fast lane keeps between the requests that it answers: see lane.pyx."""

cimport cython
from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from broker.kernels.requests cimport Request
from protocol.kernels.memory cimport Text
from protocol.kernels.responses cimport ResponseTemplate
from storage.kernels.lookups cimport Hit
from storage.kernels.pulls cimport Choice, Pull, QueueView
from storage.kernels.store_view cimport FileView


cpdef enum:
    # Why answering stopped:
    LEFT_OVER = 0  # nothing is left, or a frame whose lengths are wrong;
    NOT_TAKEN = 1  # at a whole frame that is to be answered on the ordinary way;
    TURN_OVER = 2  # enough for once, other connections come first;
    WANTS_MORE = 3  # within a frame whose end is still to come.
    # Bytes of the longest body that the lane writes.
    LONGEST_BODY = 262144
    # Entries walked in one call, or what takes as long, and for one query: a longer walk is begun anew on the ordinary
    # way, which may leave it to a thread.
    STEPS_A_CALL = 8192
    STEPS_A_QUERY = 512
    # Messages of one answer, as QueryMessageProcessor caps them.
    MAXIMUM_BY_KEY = 64
    MAXIMUM_BY_UNIQUE_KEY = 32
    # A known pull is for a run of so many units at most, so that pulls of one queue differ in their hash.
    RUN_SHIFT = 16


cdef enum:
    COMMIT_OFFSET_FLAG = 1
    # Requests that are read before the first of them is answered, and lines that are fetched for one. By
    # `python -m benchmarks` a view took 1.4 µs so where one by one it took 1.8, a key 3.9 of 5.9, a unique key 2.4 of 3.3.
    MOST_AHEAD = 16
    FETCHED_LINES = 6


@cython.final
cdef class PullKind:
    cdef int64_t code
    cdef int32_t queue_id
    cdef int64_t max_messages
    cdef int64_t max_bytes
    cdef bint has_max_bytes
    cdef int64_t sys_flag
    cdef int64_t sub_version
    cdef Text topic
    cdef Text group
    cdef Text subscription
    cdef Text expression_type
    cdef tuple _texts


@cython.final
cdef class KnownPull:
    cdef PullKind kind
    cdef QueueView queue
    cdef int64_t first  # Queue offsets at which a pull may start,
    cdef int64_t stop
    cdef int64_t scan
    cdef int64_t messages
    cdef int64_t record_bytes
    cdef int64_t cost  # Steps that each unit counts for, in sixteenths.
    cdef Choice choice
    cdef ResponseTemplate template
    cdef FileView _file  # Of the units; None once it was let go.
    cdef int64_t pulled_offset  # Where the last pull goes on,
    cdef int64_t pulled_tick  # and when it was answered; 0 before the first.


@cython.final
cdef class KnownPulls:
    cdef int32_t *_slots  # The number of a pull plus 1, or 0.
    cdef PyObject **_pulls
    cdef uint64_t *_numbers
    cdef list _blocks
    cdef uint64_t _last_slot
    cdef uint64_t _multiplier
    cdef int64_t _most
    cdef int64_t _count
    cdef list _kept


cdef struct Output:  # Answers as they are written.
    PyObject *answers  # The bytes object, NULL before the first one.
    uint8_t *at
    int64_t room  # Bytes that are left.


cdef struct Commit:
    int64_t pull
    int64_t offset


@cython.final
cdef class Lane:
    cdef KnownPulls _known
    cdef ResponseTemplate _view
    cdef ResponseTemplate _query
    cdef ResponseTemplate _cut
    cdef bint _takes_queries
    cdef bint _takes_tags
    cdef int64_t _cuts  # Before the snapshot that is followed was opened.
    cdef int64_t _frame_limit
    cdef int64_t _query_bytes
    cdef int64_t _body_limit
    cdef int64_t _turn_frames
    cdef list _blocks
    cdef int64_t _turn_bytes
    cdef int64_t _window  # Requests that are read ahead.
    # Of one call.
    cdef const uint8_t *_at
    cdef const uint8_t *_stop
    cdef int64_t _steps
    cdef int64_t _likely  # Answers that may be expected of it, by the length of the request.
    cdef Request _requests[MOST_AHEAD]
    cdef const uint8_t *_ends[MOST_AHEAD]
    cdef Commit *_commits
    cdef int64_t _commit_count
    cdef Hit _hits[MAXIMUM_BY_KEY + 1]
    cdef Pull _found
    # What was answered, and what those key queries cost.
    cdef int64_t _views
    cdef int64_t _queries
    cdef int64_t _pulls
    cdef int64_t _lite_pulls
    cdef int64_t _walked
    cdef int64_t _refused
    cdef int64_t _bad_pointers
    cdef int64_t _strays
