"""What a dispatch scan gathers, and the memory that it gathers it in: see dispatching.pyx."""

cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from protocol.kernels.memory cimport load_i32, load_native_u64
from storage.kernels.records cimport (
    BAD_BLANK,
    BAD_MAGIC,
    BAD_SIZE,
    ENTRY_OF_RECORD,
    HEAD,
    MAGIC,
    MAGIC_BLANK,
    MINIMUM_SIZE,
    Record,
    Text,
    closes_segment_at,
    entry_at,
    has_record_magic,
    is_cut_entry,
    read_shape,
)


cpdef enum:
    # Why a run ended.
    NEED_MORE = 0
    LIMIT = 1
    BLANK = 2
    ZERO = 3
    DAMAGE = 4
    FULL = 5
    # Kinds of queues; a light one has plain units, which never lead to an extension.
    PLAIN = 0
    BATCH = 1
    LIGHT = 2
    # Bytes of their units as they are in a queue's file.
    PLAIN_BYTES = 20
    BATCH_BYTES = 46
    # Numbers of a run, each an int64.
    RUN_NUMBERS = 5


cdef struct Queue:  # Known by its topic's bytes, its id, and whether messages are in it as in a light queue.
    uint64_t name_hash
    int64_t name  # Position of its topic among the names.
    int64_t name_length
    int64_t count  # Units so far,
    int64_t runs  # runs of them,
    int64_t last  # and the queue offset of the last one.
    int64_t next_byte  # Where its next unit goes when units are sorted,
    int64_t next_unit
    int64_t next_run
    int64_t shown  # and the number under which its runs show it.
    int64_t place  # In the table.
    int32_t queue_id
    uint32_t key_prefix  # Hash of the topic and '#', by which the keys of its messages begin.
    uint8_t kind
    uint8_t is_schedule  # Its tags codes are times.
    uint8_t may_have_light  # Its messages may be in light queues, too.

cdef struct Unit:
    int64_t physical_offset
    int64_t tags_code
    int64_t queue_offset
    int64_t timestamp
    int32_t queue
    int32_t size
    int16_t batch_size
    uint8_t starts_run

cdef struct Run:  # RUN_NUMBERS of numbers.
    int64_t queue
    int64_t kind
    int64_t first  # Queue offset.
    int64_t units
    int64_t position  # Of its first byte among the units.


@cython.final
cdef class DispatchMemory:
    cdef bint wants_tags
    cdef bint wants_checksums
    cdef bint wants_light
    cdef bint wants_entries
    cdef bint wants_units
    cdef bint wants_timestamps
    cdef int64_t row_room
    cdef int64_t hash_room
    cdef int64_t unit_room  # Of units, and of queues.
    cdef int64_t name_room
    cdef int64_t table_mask  # The table's length, a power of two, less one.
    cdef int64_t delay_levels
    cdef int64_t batch_topic_count
    cdef tuple batch_names
    # What has been gathered, and how much there is of it.
    cdef int64_t first_offset  # −1 before the first run.
    cdef int64_t end_offset
    cdef int64_t records
    cdef int64_t last_record
    cdef int64_t last_timestamp
    cdef int64_t rows  # Records with entries,
    cdef uint32_t *row_offsets  # each counted from the first offset,
    cdef int64_t *row_timestamps
    cdef uint16_t *row_entries
    cdef uint8_t *row_tagged
    cdef int64_t entries
    cdef int32_t *hashes
    cdef int64_t unit_count
    cdef Unit *units
    cdef int32_t queue_count
    cdef Queue *queues
    cdef int64_t name_bytes
    cdef uint8_t *names  # Of the queues, one behind the other.
    cdef int32_t *table  # Numbers of queues + 1 by hash, by open addressing; 0 where there is none.
    cdef int64_t *delays  # Ms of each delay level.
    cdef Text *batch_topics
    cdef list blocks  # The memory of all the above.

    cdef uint64_t multiplier
    # How often a queue was met in the table in the place of another one, since it was made.
    cdef readonly int64_t collisions
    cdef bint is_claimed  # By a thread that is just using it.

    cdef int claim(self) except -1
    cdef Gathered gathered(self)
    cdef int make_room(self) except -1
    cdef void forget(self) noexcept nogil
    cdef list shown_queues(self)


@cython.final
cdef class Step:
    cdef readonly int64_t position  # Where it ended.
    cdef readonly int reason  # NEED_MORE, LIMIT, BLANK, ZERO, DAMAGE or FULL.
    cdef readonly int code  # For damage, one of the ``BAD_`` codes of :mod:`storage.kernels.records`; else 0.


@cython.final
cdef class Gathered:
    cdef readonly int64_t first_offset  # Where the first run began, 0 without one.
    cdef readonly int64_t end_offset  # Where the last run ended, 0 without one.
    cdef readonly int64_t records  # All valid records, with entries and units or without.
    cdef readonly int64_t last_record  # Physical offset of the last of them, −1 without one.
    cdef readonly int64_t last_timestamp  # When that was stored, ms; 0 without one.
    # Where each record that has entries starts, counted from the first offset; uint32.
    cdef readonly bytearray record_offsets
    cdef readonly bytearray record_timestamps  # When it was stored, ms; int64.
    cdef readonly bytearray record_entries  # How many entries it has; uint16.
    cdef readonly bytearray record_tagged  # 1 where the last of them is that of its tag, else 0; uint8.
    cdef readonly bytearray hashes  # Hashes of the entries; int32.
    # Topic as stored and queue id of each queue that has units, in the order in which the log first has them. A queue
    # stands there twice where messages are in it as in a light queue, too.
    cdef readonly list[tuple[bytes, int]] queues
    # `RUN_NUMBERS` for each run, queue by queue. Plain units of a run have consecutive queue offsets; batches are one
    # run a queue, whatever their offsets.
    cdef readonly bytearray runs
    cdef readonly bytearray units  # Units as they are in the files of the queues: PLAIN_BYTES each, or BATCH_BYTES.
    # When the message of each unit was stored, ms; int64. Empty unless asked for.
    cdef readonly bytearray unit_timestamps


cdef inline int no_record(const uint8_t *at, int64_t available, int64_t left, int *code) noexcept nogil:
    """Why a run ends where :c:func:`read_shape` found no record, for the reason ``code``, which may be put right.

    ``available`` bytes may be read, ``left`` are those up to the next segment.
    """
    if available < HEAD:
        return NEED_MORE
    if not has_record_magic(at):
        if closes_segment_at(at, left):
            return BLANK
        if is_cut_entry(at, available):
            return NEED_MORE
        if load_i32(at + MAGIC) == MAGIC_BLANK:
            code[0] = BAD_BLANK
            return DAMAGE
        code[0] = BAD_MAGIC
        return ZERO if load_native_u64(at) == 0 else DAMAGE
    return NEED_MORE if code[0] == BAD_SIZE and load_i32(at) >= MINIMUM_SIZE else DAMAGE


cdef inline int64_t enter_entry(
    Record *record, const uint8_t *data, int64_t *position, int64_t available, int64_t base, int64_t boundary,
    int64_t limit, int64_t size, int *reason, int *code,
) noexcept nogil:
    """Size of the record behind the head of a DLedger entry, where :c:func:`read_shape` found none, as ``size`` says.

    ``position`` is then the record's. 0 where it went on without a record: behind an entry that has none, or to one
    that starts at the limit or beyond. Negative where the run ends at ``position``, for a reason.
    """
    cdef int64_t start = position[0] + entry_at(data + position[0], available - position[0], base + position[0])
    if start >= limit or (start > position[0] and load_i32(data + position[0]) != ENTRY_OF_RECORD):
        position[0] = start
        return 0
    if start > position[0]:
        size = read_shape(record, data + start, available - start, base + start)
    if size > 0:
        position[0] = start
        return size
    code[0] = <int>size
    reason[0] = no_record(data + start, available - start, boundary - base - start, code)
    if reason[0] != DAMAGE:
        code[0] = 0
    if reason[0] == NEED_MORE:  # what is known of an entry whose record is cut off is read only once
        position[0] = start
    return size
