"""Records of a log copied into a plain segment, each to its new place (store-format §2.2, other-formats §1).

What stands between records, the heads of DLedger entries above all, is left out, so that a record's place is that of
the one before it and its size. A record says its own place, a commit's also that of the half message; both are
rewritten, and the checksum of the whole record with them, where it has one.
"""

cimport cython
from cpython.bytearray cimport PyByteArray_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from protocol.kernels.memory cimport load_i64, store_i64
from storage.kernels.checksum cimport crc32_of
from storage.kernels.dispatching cimport DAMAGE, FULL, LIMIT, Step, enter_entry
from storage.kernels.records cimport (
    BAD_SIZE,
    CRC_MASK,
    CRC_PROPERTY,
    FIXED,
    MINIMUM_SIZE,
    PHYSICAL_OFFSET,
    PREPARED_TRANSACTION_OFFSET,
    Record,
    check_checksums,
    property_crc,
    read_shape,
    store_timestamp_at,
)
from storage.kernels.region cimport Region, Room, require, take


cdef enum:
    BEFORE_BODY = FIXED - PREPARED_TRANSACTION_OFFSET  # Bytes from that offset to the body.
    CRC_DIGITS = 10
    MOST_LINKS = 1 << 16  # That are held at once.
    LONGEST_SEGMENT = 0xFFFFFFFF  # Positions have 32 bits.


cdef struct Move:  # A record's position in the segment that is read, and in the one that is written.
    uint32_t before
    uint32_t after

cdef struct Link:  # A record whose half message is not among those that were moved, by its new position.
    int64_t position
    int64_t half


cdef void write_crc(uint8_t *record, int64_t size) noexcept nogil:
    """Write the checksum of a whole record into its last property, as a broker does: ten digits, the lowest first."""
    cdef int64_t value = <int64_t>(crc32_of(record, size - CRC_PROPERTY) & CRC_MASK)
    cdef uint8_t *digits = record + size - 1 - CRC_DIGITS
    cdef int i
    for i in range(CRC_DIGITS):
        digits[i] = <uint8_t>(c'0' + value % 10)
        value //= 10


cdef int64_t find_half(RecordMover mover, int64_t half) noexcept nogil:
    """The new physical offset of a record of this segment by its old one; −1 where none was moved from there."""
    cdef int64_t low = 0, high = mover.records, middle, wanted = half - mover.base
    if wanted < 0 or wanted > LONGEST_SEGMENT:
        return -1
    while low < high:
        middle = (low + high) >> 1
        if mover.moves[middle].before < wanted:
            low = middle + 1
        else:
            high = middle
    if low < mover.records and mover.moves[low].before == wanted:
        return mover.base + mover.moves[low].after
    return -1


cdef void move_record(RecordMover mover, const Record *record, int64_t position) noexcept nogil:
    """Copy a sound record behind the last one."""
    cdef uint8_t *target = mover.target + mover.used
    cdef int64_t before_body = record.body.start - record.start - BEFORE_BODY
    cdef int64_t half = load_i64(record.start + before_body), found
    cdef bint has_crc = property_crc(record.start, record.size) >= 0
    memcpy(target, record.start, record.size)
    store_i64(target + PHYSICAL_OFFSET, mover.base + mover.used)
    if half > 0:
        found = find_half(mover, half)
        if found >= 0:
            store_i64(target + before_body, found)
        else:
            mover.links[mover.link_count].position, mover.links[mover.link_count].half = mover.used, half
            mover.link_count += 1
    if has_crc:
        write_crc(target, record.size)
    mover.moves[mover.records].before, mover.moves[mover.records].after = <uint32_t>position, <uint32_t>mover.used
    mover.records += 1
    mover.last_timestamp = store_timestamp_at(record.start)
    mover.last_record = mover.base + mover.used
    mover.used += record.size


cdef int64_t move_records(
    RecordMover mover, const uint8_t *data, int64_t position, int64_t available, int64_t start, int64_t boundary,
    int64_t limit, int *reason, int *code,
) noexcept nogil:
    """As :meth:`RecordMover.run`; where the run ended."""
    cdef Record record
    cdef int64_t size
    while position < limit:
        if mover.link_count >= MOST_LINKS or mover.used - mover.taken >= mover.most:
            reason[0] = FULL
            return position
        size = read_shape(&record, data + position, available - position, start + position)
        if size < 0:
            size = enter_entry(&record, data, &position, available, start, boundary, limit, size, reason, code)
            if size == 0:
                continue
            if size < 0:
                return position
        size = check_checksums(&record)
        if size > mover.room - mover.used or mover.records >= mover.most_records:
            size = BAD_SIZE
        if size < 0:
            reason[0], code[0] = DAMAGE, <int>size
            return position
        move_record(mover, &record, start - mover.base + position)
        position += size
    reason[0] = LIMIT
    return position


@cython.final
cdef class RecordMover:
    """The new segment, in memory, while it is filled. Only intact records are moved, with checksums that hold."""

    cdef Room _memory
    cdef uint8_t *target
    cdef int64_t room
    cdef int64_t base
    cdef int64_t most  # Bytes that are moved until somebody takes notice.
    cdef int64_t taken
    cdef int64_t most_records
    cdef Move *moves
    cdef Link *links
    cdef list _blocks
    cdef int64_t link_count
    cdef readonly int64_t used  # Position behind the last record.
    cdef readonly int64_t records  # Records that were moved.
    cdef readonly int64_t last_record  # New physical offset of the last of them, −1 without one.
    cdef readonly int64_t last_timestamp  # When it was stored, ms; 0 without one.

    def __cinit__(self, memory: bytearray | mmap.mmap, int64_t size, int64_t base, int64_t most) -> None:
        """Fill the first `size` bytes of memory, for the segment at the physical offset `base`.

        A run ends FULL once `most` bytes are there to be taken. Raises ValueError for more bytes than there are, and
        for a segment of 4 GiB or more.
        """
        self._memory = Room(memory, 1)
        self.target, self.room = <uint8_t *>self._memory.items, size
        if base < 0 or most < 1 or not 0 <= size <= LONGEST_SEGMENT or size > self._memory.count:
            raise ValueError(
                f"a segment of {size} bytes at {base} in {self._memory.count} bytes, taken {most} at a time"
            )
        self.base, self.most, self.last_record = base, most, -1
        self.most_records = self.room // MINIMUM_SIZE
        self._blocks = []
        self.moves = <Move *>take(self._blocks, self.most_records, sizeof(Move))
        self.links = <Link *>take(self._blocks, MOST_LINKS, sizeof(Link))

    def run(
        self, Region region not None, int64_t position, int64_t available, int64_t start, int64_t boundary,
        int64_t limit,
    ) -> Step:
        """Move the records that start in [position, limit) of a region, as far as there are any.

        `available` bytes of the region may be read; `start` is the physical offset of its first byte; the next segment
        starts at `boundary`, or would start there. Raises ValueError where `available` lies outside the region.
        """
        cdef int reason = LIMIT, code = 0
        require(region, position, available)
        if start < self.base:
            raise ValueError(f"bytes from {start} on are not of a segment that starts at {self.base}")
        with nogil:
            position = move_records(self, region.data, position, available, start, boundary, limit, &reason, &code)
        return Step(position, reason, code)

    def take_links(self) -> bytearray:
        """What points elsewhere, since this was last asked for: pairs of int64 in the machine's byte order.

        Each is the new position of a record in the segment and the old physical offset of a half message that was not
        moved before it in the same segment. Bytes up to `used` are what they will be but for these.
        """
        cdef bytearray links = PyByteArray_FromStringAndSize(
            <const char *>self.links, self.link_count * <int64_t>sizeof(Link)
        )
        self.taken, self.link_count = self.used, 0
        return links

    def moves_made(self) -> bytearray:
        """Of every record its position in the old and in the new segment: pairs of uint32, both ascending."""
        return PyByteArray_FromStringAndSize(<const char *>self.moves, self.records * <int64_t>sizeof(Move))


def mend_record(memory: bytearray, int64_t position, int64_t size, int64_t half) -> None:
    """Let the record at a position say another offset of its half message, and state its checksum anew if it has one.

    Raises ValueError where no record of that size lies.
    """
    cdef Room room = Room(memory, 1)
    cdef Record record
    cdef uint8_t *start
    if position < 0 or size < MINIMUM_SIZE or size > room.count or position > room.count - size:
        raise ValueError(f"{size} bytes at position {position} do not lie in {room.count} bytes")
    start = <uint8_t *>room.items + position
    if read_shape(&record, start, size, -1) != size:
        raise ValueError(f"no record of {size} bytes at position {position}")
    store_i64(start + (record.body.start - record.start - BEFORE_BODY), half)
    if property_crc(start, size) >= 0:
        write_crc(start, size)
