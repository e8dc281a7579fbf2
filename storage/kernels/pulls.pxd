"""One pull over the units of a plain queue (store-format §5.4), as long as nothing odd is met: see pulls.pyx."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from storage.kernels.lookups cimport Hit
from storage.kernels.records cimport Text
from storage.kernels.sql92 cimport Program
from storage.kernels.store_view cimport ColdBytes, File, FileView, Log


cpdef enum:
    # What a broker returns of one pull at most.
    MAXIMUM_FOUND = 32
    # How a filter chooses.
    EVERYTHING = 0
    BY_TAG = 1
    BY_EXPRESSION = 2
    # Why a pull has to be made otherwise.
    ODD = -1  # Something needs more than a kernel: a unit or record that is not what it should be, an extension.
    UNITS_COLD = -2  # The units are not in memory,
    RECORD_COLD = -3  # or a record.


cdef struct QueueView:  # Units of a queue as they stand one behind the other in one of its files.
    File file
    int64_t position  # Of the first unit.
    int64_t first  # Its queue offset.
    int64_t stop  # The queue offset behind the last unit.
    int32_t queue_id
    Text topic

cdef struct Pull:  # What is asked, and what came of it.
    int64_t queue_offset  # From `first` of the queue's view on.
    int64_t scan  # Units that are looked through at most.
    int64_t messages  # How many are returned at most; one at least is.
    int64_t record_bytes  # And their bytes; the first is returned however long it is.
    # What was found.
    Hit found[MAXIMUM_FOUND]  # Ascending.
    int64_t count
    int64_t total_bytes
    int64_t decided  # Messages for which an expression was evaluated.
    ColdBytes cold


cdef class Choice:
    cdef readonly int kind  # EVERYTHING, BY_TAG or BY_EXPRESSION.
    # Whether extension units may speak of the filter, so that a kernel has to leave them alone.
    cdef readonly bint has_bits
    cdef int64_t *codes  # The low 32 bits of the tags' hashes by open addressing, −1 where there is none.
    cdef uint64_t filter[64]  # 4,096 bits, of which those that stand for a code are set.
    cdef int code_bits  # Places are 2 to the power of it, twice as many as codes at least.
    cdef readonly Program program  # `Program | None`: The compiled expression.
    cdef readonly int64_t cost  # What deciding one message may take: steps and names of the expression, else 1.
    cdef list _blocks


# See units of a file as a queue's; raises ValueError where they do not lie in it. File and topic must live as long.
cdef int view_units(
    QueueView *queue, FileView file, int64_t position, int64_t first, int64_t stop, int32_t queue_id, bytes topic
) except -1

# Units that were gone through from the pull's queue offset on, or ODD, UNITS_COLD, RECORD_COLD: then the pull's `cold`
# says what is to be read first. What was found is in the pull.
cdef int64_t pull_units(
    const Log *log, const QueueView *queue, Choice choice, int64_t tick, Pull *pull
) noexcept nogil
