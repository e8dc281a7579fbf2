"""What kernels see of a store at one moment: its segments, its index files, and entries that were scanned.

Every structure points into memory that an extension type holds, the one that has it as a field: a :class:`FileView`
holds the map of its file, a :class:`LogView` the files of its segments, a :class:`StoreView` all of them. Who hands a
structure on to code without the GIL keeps that object meanwhile.

Nothing here looks at bytes that are cold on a thread that must not wait: ``tick`` is what
:func:`storage.files.waiting.current_tick` says, 0 where the thread may wait.
"""

cimport cython
from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from protocol.kernels.memory cimport __builtin_prefetch
from storage.kernels.indexes cimport IndexView
from storage.kernels.records cimport NO_SEGMENT, Record
from storage.kernels.region cimport Column, Region, Room


cpdef enum:
    # Pages count as hot or cold in units of so many bytes.
    PROBE_BYTES = 65536
    PROBE_SHIFT = 16


cdef enum:
    CACHE_LINE = 64
    FETCHED_BYTES = 1024
    # Seconds after which bytes are asked for again that were looked at in each of them. What is in use stays in memory.
    ASKED_AGAIN = 16
    # Of what says that it is a longer record, so much is asked to be brought in before it is looked at once more.
    MOST_WARMED = 4194304
    SHORTCUTS = 256  # That an index file has room for.


cdef struct File:  # A file in memory.
    const uint8_t *data
    int64_t size
    int32_t *heat  # For each 64 KiB the tick at which they were last known to be in memory,
    int32_t *asked  # and the one at which that was last asked.
    int descriptor  # What is asked whether pages are in memory; −1 says that all are.
    bint is_hollow  # Whether its bytes are fetched when they are first looked at.
    PyObject *view  # The FileView that holds all this.

cdef struct Segment:
    File file
    int64_t base_offset
    int64_t valid_length  # Bytes that may hold records, from the first one on; no more than the file has.

cdef struct Log:  # The segments, ascending, none of which overlap.
    const Segment *segments
    int64_t count
    int64_t segment_size  # That all share and by which they adjoin, or 0.

cdef struct IndexFileView:
    File file
    IndexView view  # Its `entries` are as many as fit: a broker may put entries behind those that are known.
    int64_t maximum  # The largest physical offset of its entries.
    bint ascending  # Whether physical offsets never fall from one entry to the next.
    bint has_tags  # Whether it keeps an entry for each tagged record.
    uint64_t *shortcuts  # SHORTCUTS cells of a :class:`Shortcuts`.

cdef struct Run:  # Entries found by scanning the log, sorted by hash and then by physical offset.
    const int32_t *hashes
    const int64_t *offsets
    int64_t count

cdef struct Store:
    Log log
    const IndexFileView *index_files  # By falling maximum.
    int64_t index_count
    const Run *runs  # The latest scan is the last.
    int64_t run_count
    const int64_t *damage  # Places where no record starts although the index rightly points there; ascending.
    int64_t damage_count

cdef struct ColdBytes:  # What has to be read first, on a thread that may wait.
    const File *file
    int64_t position
    int64_t length


cdef class FileView:
    cdef File file
    cdef Region _region
    cdef memoryview _view
    cdef object _content  # What fetches the bytes of a hollow file, else None.
    cdef readonly object heat  # `Any`: For each 64 KiB the tick at which they were last found in memory.
    cdef Room _heat
    cdef list _blocks


@cython.final
cdef class LogView:
    cdef Log log
    cdef Segment *_segments
    cdef list _blocks
    cdef tuple _files


@cython.final
cdef class Shortcuts:
    # Each the number of an entry and, in the lower half, that of the one it leads down to; 0 where there is none.
    cdef uint64_t cells[SHORTCUTS]


@cython.final
cdef class IndexFilesView:
    cdef IndexFileView *files
    cdef list _blocks
    cdef int64_t count
    cdef tuple _files
    cdef tuple _shortcuts


@cython.final
cdef class RunsView:
    cdef Run *runs
    cdef list _blocks
    cdef int64_t count
    cdef list _columns


@cython.final
cdef class StoreView:
    cdef Store store
    cdef readonly LogView log  # The segments.
    cdef IndexFilesView _index
    cdef RunsView _tail
    cdef Column _damage


cdef bint is_unit_hot(const File *file, int64_t unit, int64_t position, int64_t stop, int64_t tick) noexcept nogil


# Fetch bytes of a hollow file that are not there yet; true. An error is kept by what fetches.
cdef bint show_bytes(const File *file, int64_t position, int64_t length) noexcept with gil


cdef inline bint is_hot(const File *file, int64_t position, int64_t length, int64_t tick) noexcept nogil:
    """Whether bytes of a file, at least one, are in memory, as far as is known. They must lie in it."""
    cdef int64_t unit, last
    if tick == 0 or file.descriptor < 0:
        return not file.is_hollow or show_bytes(file, position, length)
    unit, last = position >> PROBE_SHIFT, (position + length - 1) >> PROBE_SHIFT
    while unit <= last:
        if file.heat[unit] != tick:
            if file.heat[unit] + 1 >= tick:
                if tick - file.asked[unit] < ASKED_AGAIN:
                    file.heat[unit] = <int32_t>tick
            elif not is_unit_hot(file, unit, position, position + length, tick):
                return False
        unit += 1
    return True


cdef inline const Segment *find_segment(const Log *log, int64_t physical_offset) noexcept nogil:
    """The segment whose valid part holds a physical offset, or NULL."""
    cdef int64_t low = 0, high = log.count - 1, middle
    cdef const Segment *segment
    if log.count == 0 or physical_offset < log.segments[0].base_offset:
        return NULL
    if log.segment_size > 0:
        low = (physical_offset - log.segments[0].base_offset) // log.segment_size
        low = low if low < high else high
    else:
        while low < high:
            middle = (low + high + 1) >> 1
            if log.segments[middle].base_offset <= physical_offset:
                low = middle
            else:
                high = middle - 1
    segment = &log.segments[low]
    return segment if physical_offset - segment.base_offset < segment.valid_length else NULL


cdef inline int64_t log_begin(const Log *log) noexcept nogil:
    """The physical offset at which the log begins."""
    return log.segments[0].base_offset if log.count > 0 else 0


cdef inline int64_t log_end(const Log *log) noexcept nogil:
    """The physical offset before which its last record ends."""
    return log.segments[log.count - 1].base_offset + log.segments[log.count - 1].valid_length if log.count > 0 else 0


cdef inline void fetch_record(const uint8_t *record, int64_t size) noexcept nogil:
    """Ask for the lines of a record at once: its parts are then read in an order that no processor foresees."""
    cdef int64_t position = CACHE_LINE
    while position < size and position < FETCHED_BYTES:
        __builtin_prefetch(record + position)
        position += CACHE_LINE


# The record at a place of a segment: its size if its shape is sound, else a code of records.pxd. COLD where its pages
# are not known to be in memory; `cold` says which. With `expected` > 0 a record of another size counts as none; who
# gives that size has asked memory for the record.
cdef int64_t locate_in(
    const Segment *segment, int64_t physical_offset, int64_t expected, int64_t tick, Record *record, ColdBytes *cold
) noexcept nogil


cdef inline int64_t locate_record(
    const Log *log, int64_t physical_offset, int64_t expected, int64_t tick, Record *record, ColdBytes *cold
) noexcept nogil:
    """The record of sound shape at a physical offset, its checksums unseen: its size, or NO_SEGMENT or another code."""
    cdef const Segment *segment = find_segment(log, physical_offset)
    return NO_SEGMENT if segment == NULL else locate_in(segment, physical_offset, expected, tick, record, cold)


# The intact record that starts at a physical offset, its checksums checked: its size, or a code as above.
cdef int64_t check_record(
    const Log *log, int64_t physical_offset, int64_t tick, Record *record, ColdBytes *cold
) noexcept nogil

# Whether there is no record at a physical offset because the log is damaged there, as far as that is known.
cdef bint is_known_damage(const Store *store, int64_t physical_offset) noexcept nogil
