"""Segments of the CommitLog: single records checked, walks from record to record, what records are found under.

These loops read headers, topics and properties, never bodies unless a checksum is asked for, so a segment is scanned
at memory speed.
"""

import os

cimport cython
from libc.stdint cimport INT64_MIN, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport bsearch, qsort
from libc.string cimport memchr, memcmp, memcpy, memset

from protocol.kernels.memory cimport load_i32, load_i64
from storage.kernels cimport checksum
from storage.kernels.checksum cimport crc32_moved, crc32_of
from storage.kernels.indexes cimport ENTRY_BYTES, ENTRY_OFFSET
from storage.kernels.queue_units cimport hash_name
from storage.kernels.region cimport Region, Room, region_of, require, require_bytes, take, take_zeroes

CRC32_PATHS: Final[tuple[str, ...]] = tuple(way.name.decode() for way in checksum.crc32_ways[:checksum.CRC32_WAYS] if way.is_possible())
CRC32_PATH: Final[str] = CRC32_PATHS[0]
ANY_TIME: Final[int] = INT64_MIN


def crc32(buffer: ReadableBuffer | Region) -> int:
    """CRC-32 of some bytes, unsigned; a record keeps its low 31 bits."""
    cdef Region region = region_of(buffer)
    cdef uint32_t result
    with nogil:
        result = checksum.crc32_of(region.data, region.size)
    return result


def crc32_by(str path not None, buffer: ReadableBuffer | Region) -> int:
    """CRC-32 of some bytes, computed in one way of `CRC32_PATHS`; raises ValueError for any other way."""
    cdef Region region = region_of(buffer)
    cdef checksum.crc32_way way
    for way in checksum.crc32_ways[:checksum.CRC32_WAYS]:
        if way.name.decode() == path and way.is_possible():
            return way.function(region.data, region.size)
    raise ValueError(f"checksums cannot be made by {path} on this processor")


cdef bint has_record(Region region, int64_t position, int64_t stop, Record *record) except -1:
    """Read the record that starts at a position; whether one of sound shape does, for it may have changed."""
    require(region, position, stop)
    return read_shape(record, region.data + position, stop - position, -1) > 0


cdef list make_room(Entries *entries, int64_t count):
    """Room for so many entries and MAXIMUM_PIECES more, for as long as the caller holds what is returned."""
    cdef list blocks = []
    entries.offsets = <int64_t *>take(blocks, count + MAXIMUM_PIECES, sizeof(int64_t))
    entries.hashes = <int32_t *>take(blocks, count + MAXIMUM_PIECES, sizeof(int32_t))
    entries.count = 0
    return blocks


# --- One record ---


def check_shape(Region region not None, int64_t position, int64_t stop, int64_t physical_offset) -> int:
    """Size of the record at a position if the lengths of its parts add up; does not read the body.

    As in a broker, a negative length of body or properties counts as 0, and a negative one of the topic is an error.
    """
    cdef Record record
    require(region, position, stop)
    return read_shape(&record, region.data + position, stop - position, physical_offset)


def check_intact(
    Region region not None, int64_t position, int64_t stop, int64_t physical_offset, KeptChecksums sums=None,
) -> int:
    """Size of the record at a position if `check_shape` accepts it and its checksums match.

    These are the checksum of the body and, if the record has one, that of the whole record. A caller that checks many
    positions of one region passes the same `sums` to every call, so that bytes are not read again for each position.
    """
    cdef Record record
    cdef int64_t size
    require(region, position, stop)
    if sums is not None:
        begin_sums(sums, region)
    with nogil:
        size = read_shape(&record, region.data + position, stop - position, physical_offset)
        if size > 0:
            if sums is not None and sums.patience < 0 and sums.count == 0:
                keep_sums(sums, 0, stop)  # the next one may lie anywhere
            size = check_sums(&record, sums)
    return size


def check_step(
    Region region not None, int64_t position, int64_t stop, int64_t physical_offset, int64_t boundary,
) -> int:
    """As :func:`check_shape`, but 0 for the BLANK that closes the segment. At least eight bytes must be readable.

    The head of a DLedger entry in front of the record counts among its bytes; so does an entry without a record.
    """
    cdef Record record
    require(region, position, stop)
    if stop - position < HEAD:
        raise ValueError(f"{stop - position} bytes are too few to tell what is there")
    return read_step(&record, region.data + position, stop - position, physical_offset, boundary)


def closes_segment(Region region not None, int64_t position, int64_t left) -> bool:
    """Whether the eight bytes at a position are the BLANK that closes their segment, `left` bytes before its end.

    A broker writes a BLANK with exactly this size. A BLANK with another size is damage, and records may follow it.
    """
    require_bytes(region, position, HEAD)
    return closes_segment_at(region.data + position, left)


def store_timestamp(Region region not None, int64_t position) -> int:
    """When the broker stored the record at a position, in ms; its first `MINIMUM_SIZE` bytes must be there."""
    require_bytes(region, position, MINIMUM_SIZE)
    return store_timestamp_at(region.data + position)


def has_sane_texts(Region region not None, int64_t position, int64_t stop) -> bool:
    """Whether topic and properties of a record, which no checksum covers, have no zero byte; False without a record."""
    cdef Record record
    return (
        has_record(region, position, stop, &record)
        and memchr(record.topic.start, 0, record.topic.length) == NULL
        and memchr(record.properties.start, 0, record.properties.length) == NULL
    )


def tag_entry_hash(Region region not None, int64_t position, int64_t stop) -> int | None:
    """Hash of ``topic#T#tag``, under which the tag of a record is indexed since 5.4; None without tag or record."""
    cdef Record record
    cdef Indexed indexed
    if not has_record(region, position, stop, &record):
        return None
    find_indexed(&record, &indexed)
    return None if indexed.tags.start == NULL else tag_hash(topic_hash(&record), &indexed.tags)


def entry_hashes(Region region not None, int64_t position, int64_t stop) -> list[int] | None:
    """The hashes that one record is indexed under: those of its unique key, of each piece of KEYS, and of its tag.

    None where there is no record of sound shape: the bytes may have changed since an earlier check.
    """
    cdef Record record
    cdef Entries entries
    cdef list blocks
    if not has_record(region, position, stop, &record):
        return None
    blocks = make_room(&entries, 0)
    emit_record(&record, 0, &entries)
    return [entries.hashes[i] for i in range(entries.count)]


# --- Checksums that are kept ---


@cython.final
cdef class KeptChecksums:
    """Checksums that one pass over a segment has computed and keeps, so that it does not read the same bytes again.

    Damaged or hostile bytes can look like records that lie in one another's bodies, up to a million of them. Checking
    each by itself would read all these bodies, which takes quadratic time. Once more than `patience` bytes were read
    for records whose checksum did not match, checksums are kept at regular distances; that of any range follows from
    them.

    A pass that goes on after damage passes the same object to every call; without one, each call makes its own. The
    object must not be used after the pass: bytes that are written after their checksum was kept are not read again.
    """

    def __cinit__(self, int64_t patience=SUM_PATIENCE) -> None:
        """No checksums yet; `patience` bytes may be read in vain before any are kept, none if it is negative."""
        self.patience, self.block = patience, Block()


cdef KeptChecksums begin_sums(KeptChecksums sums, Region region):
    """The sums of a pass, emptied if they are of another region; new ones for None."""
    if sums is None:
        sums = KeptChecksums()
    if sums.region is not region:
        sums.region, sums.count = region, 0
    return sums


cdef bint keep_sums(KeptChecksums sums, int64_t start, int64_t stop) noexcept nogil:
    """Have sums that begin at a position or before it and reach up to another one; False without memory for them."""
    cdef const uint8_t *data = sums.region.data
    cdef int64_t needed, at
    if sums.count == 0 or start < sums.anchor or start >= sums.anchor + sums.count * SUM_STEP:
        sums.anchor, sums.count = start, 0
    needed = (stop - sums.anchor) // SUM_STEP + 1
    if needed * <int64_t>sizeof(uint32_t) > sums.block.size:
        if not sums.block.grow(2 * needed * sizeof(uint32_t)):
            return False
        sums.sums = <uint32_t *>sums.block.items
    if sums.count == 0:
        sums.sums[0], sums.count = 0, 1
    while sums.count < needed:
        at = sums.anchor + (sums.count - 1) * SUM_STEP
        sums.sums[sums.count] = crc32_moved(sums.sums[sums.count - 1], SUM_STEP) ^ crc32_of(data + at, SUM_STEP)
        sums.count += 1
        sums.summed += SUM_STEP
    return True


cdef uint32_t sum_from_anchor(KeptChecksums sums, int64_t stop) noexcept nogil:
    """CRC of the bytes from the anchor up to a position that the sums reach."""
    cdef int64_t number = (stop - sums.anchor) // SUM_STEP
    cdef int64_t at = sums.anchor + number * SUM_STEP
    sums.summed += stop - at
    return crc32_moved(sums.sums[number], stop - at) ^ crc32_of(sums.region.data + at, stop - at)


cdef uint32_t sum_once(KeptChecksums sums, const uint8_t *start, int64_t length) noexcept nogil:
    cdef int64_t position = start - sums.region.data
    cdef int64_t stop = position + length
    if length > 2 * SUM_STEP and sums.patience < 0 and keep_sums(sums, position, stop):
        return crc32_moved(sum_from_anchor(sums, position), length) ^ sum_from_anchor(sums, stop)
    sums.summed += length
    return crc32_of(start, length)


# --- Walks ---


@cython.final
cdef class Walk:
    """Where a walk from record to record ended, and why."""

    cdef readonly int64_t position  # Where it ended.
    cdef readonly int64_t records  # Records that it stepped over.
    cdef readonly int64_t last  # Position of the last one; −1 for none.
    cdef readonly int reason  # AT_LIMIT, AT_BLANK or AT_DAMAGE.
    cdef readonly int code  # The `BAD_` code that says why no record is there, if the walk ended at damage; else 0.

    def __cinit__(self, int64_t position, int64_t records, int64_t last, int reason, int code):
        self.position, self.records, self.last, self.reason, self.code = position, records, last, reason, code


def walk_records(
    Region region not None, int64_t position, int64_t stop, int64_t base, int64_t boundary, bint checksums,
    KeptChecksums sums=None,
) -> Walk:
    """Step over the records of a segment from a position on; `checksums` says whether theirs are checked.

    Entries of DLedger's that have no record are stepped over as well.
    """
    cdef Record record
    cdef int64_t size, intact, records = 0, last = -1
    cdef int reason = AT_LIMIT, code = 0
    require(region, position, stop)
    sums = begin_sums(sums, region)
    with nogil:
        while position + HEAD <= stop:
            size = read_step(&record, region.data + position, stop - position, base + position, boundary)
            if size <= 0:
                reason, code = AT_BLANK if size == 0 else AT_DAMAGE, <int>size
                break
            if record.start == NULL:
                position += size
                continue
            if checksums:
                intact = check_sums(&record, sums)
                if intact < 0:
                    reason, code, position = AT_DAMAGE, <int>intact, record.start - region.data
                    break
            records += 1
            last = record.start - region.data
            position += size
    return Walk(position, records, last, reason, code)


@cython.final
cdef class Scan:
    """Where a scan ended, and why."""

    cdef readonly int64_t position  # Where it ended.
    cdef readonly int64_t entries  # Entries written.
    cdef readonly int64_t records  # Records read.
    # How many messages of the batch at the position were taken in, where the output was full among them.
    cdef readonly int64_t inner
    cdef readonly int64_t first_batch  # Position of the first batch, −1 without one.
    cdef readonly int64_t last_batch  # Position of the last batch, −1 without one.
    cdef readonly int reason  # AT_LIMIT, AT_BLANK, AT_DAMAGE, OUTPUT_FULL or AT_PACKED.

    def __cinit__(
        self, int64_t position, int64_t entries, int64_t records, int64_t inner, int64_t first_batch,
        int64_t last_batch, int reason,
    ):
        self.position, self.entries, self.records, self.reason = position, entries, records, reason
        self.inner, self.first_batch, self.last_batch = inner, first_batch, last_batch


cdef int64_t emit_inner(const Record *record, int64_t number, int64_t room, Entries *entries) noexcept nogil:
    """Append what the messages of a batch are found under, from a number on; where room ended, or 0."""
    cdef Record inner = record[0]
    cdef const uint8_t *at = record.body.start
    cdef const uint8_t *end = at + record.body.length
    cdef int64_t passed = 0
    while passed < MOST_INNER and next_inner(&inner, &at, end):
        if passed >= number:
            if entries.count > room:
                return passed
            emit_record(&inner, record.physical_offset, entries)
        passed += 1
    return 0


def scan_keys(
    Region region not None, int64_t position, int64_t stop, int64_t readable, int64_t base, int64_t boundary,
    hashes: WriteableBuffer, offsets: WriteableBuffer, int64_t inner=0,
) -> Scan:
    """Write the index entries of the records that start in [position, stop), until damage or until the output is full.

    Those of each message of a batch lead to the batch's record, whose own come first; `inner` of them, of the first
    record, are there already. A batch that is compressed as a whole ends the scan after its own: AT_PACKED.
    Rolled-back records are in no index. `hashes` (int32) and `offsets` (int64) must each have room for at least
    `MAXIMUM_PIECES`, and count as full when less room is left. Raises ValueError for arrays of other integers.
    """
    cdef Room hash_room = Room(hashes, sizeof(int32_t)), offset_room = Room(offsets, sizeof(int64_t))
    cdef int64_t room = min(hash_room.count, offset_room.count) - MAXIMUM_PIECES
    cdef Record record
    cdef Entries entries
    cdef int64_t size, records = 0, first_batch = -1, last_batch = -1
    cdef int reason = AT_LIMIT
    require(region, position, readable)
    if room < 0:
        raise ValueError(f"room for {room + MAXIMUM_PIECES} entries, expected {MAXIMUM_PIECES} at least")
    entries.hashes, entries.offsets, entries.count = <int32_t *>hash_room.items, <int64_t *>offset_room.items, 0
    with nogil:
        while position < stop and position + HEAD <= readable:
            size = read_step(&record, region.data + position, readable - position, base + position, boundary)
            if size <= 0:
                reason = AT_BLANK if size == 0 else AT_DAMAGE
                break
            if record.start == NULL:
                position += size
                continue
            if entries.count > room:
                reason = OUTPUT_FULL
                break
            if record.start - region.data >= stop:
                position = record.start - region.data
                break
            if not is_rolled_back(record.start):
                if inner == 0:
                    emit_record(&record, record.physical_offset, &entries)
                if is_batch(record.start):
                    last_batch = record.start - region.data
                    if first_batch < 0:
                        first_batch = last_batch
                    if is_packed_batch(&record):
                        reason, position = AT_PACKED, last_batch
                        break
                    inner = emit_inner(&record, inner, room, &entries)
                    if inner > 0:
                        reason = OUTPUT_FULL
                        break
            inner = 0
            records += 1
            position += size
    return Scan(position, entries.count, records, inner, first_batch, last_batch, reason)


# --- Scanned entries in order ---


cdef enum:
    DIGITS = 256
    OFFSET_DIGITS = 8
    HASH_DIGITS = 4


cdef inline int digit_of(const Entries *entries, int64_t number, int place) noexcept nogil:
    """A byte of an entry's offset, from the lowest on, or behind those one of its hash; neither has a sign."""
    if place < OFFSET_DIGITS:
        return (<uint64_t>entries.offsets[number] >> (8 * place)) & 0xff
    return (<uint32_t>entries.hashes[number] >> (8 * (place - OFFSET_DIGITS))) & 0xff


cdef bint deal(const Entries *source, Entries *target, int place) noexcept nogil:
    """Order entries by one byte, those that are equal in it as they came; False, and nothing moved, where all are."""
    cdef int64_t starts[DIGITS]
    cdef int64_t i, size, start = 0
    cdef int digit
    memset(starts, 0, sizeof(starts))
    for i in range(source.count):
        starts[digit_of(source, i, place)] += 1
    if starts[digit_of(source, 0, place)] == source.count:
        return False
    for digit in range(DIGITS):
        size = starts[digit]
        starts[digit] = start
        start += size
    for i in range(source.count):
        digit = digit_of(source, i, place)
        start = starts[digit]
        starts[digit] += 1
        target.hashes[start], target.offsets[start] = source.hashes[i], source.offsets[i]
    return True


@cython.final
cdef class OffsetSpan:
    """The lowest and the highest physical offset of some entries."""

    cdef readonly int64_t first  # The lowest.
    cdef readonly int64_t last  # The highest.

    def __cinit__(self, int64_t first, int64_t last):
        self.first, self.last = first, last


def sort_entries(hashes: WriteableBuffer, offsets: WriteableBuffer) -> OffsetSpan:
    """Sort entries by hash, then by physical offset, where they lie: `hashes` (int32) and `offsets` (int64), none < 0.

    Those in the order of the log take a pass for each byte of a hash, others more. Raises ValueError for arrays of
    other integers, of different lengths, or without items.
    """
    cdef Room hash_room = Room(hashes, sizeof(int32_t)), offset_room = Room(offsets, sizeof(int64_t))
    cdef int64_t i, count = hash_room.count, first, last
    cdef Entries given, other
    cdef Entries *source = &given
    cdef Entries *target = &other
    cdef list blocks
    cdef bint is_ascending = True
    cdef int place
    if offset_room.count != count or count == 0:
        raise ValueError(f"{count} hashes of {offset_room.count} offsets")
    given.hashes, given.offsets = <int32_t *>hash_room.items, <int64_t *>offset_room.items
    blocks = make_room(&other, count)
    given.count = other.count = count
    with nogil:
        first = last = given.offsets[0]
        for i in range(1, count):
            is_ascending &= given.offsets[i - 1] <= given.offsets[i]
            first, last = min(first, given.offsets[i]), max(last, given.offsets[i])
        for place in range(OFFSET_DIGITS if is_ascending else 0, OFFSET_DIGITS + HASH_DIGITS):
            if deal(source, target, place):
                source, target = target, source
        if source == &other:
            memcpy(given.hashes, other.hashes, count * sizeof(int32_t))
            memcpy(given.offsets, other.offsets, count * sizeof(int64_t))
    return OffsetSpan(first, last)


# --- Heads of DLedger entries ---


cdef int64_t read_entry(
    Record *record, const uint8_t *at, int64_t available, int64_t physical_offset, int64_t boundary, int64_t code
) noexcept nogil:
    """As :c:func:`read_step` where no record is at the address itself, for the reason ``code``."""
    cdef int64_t head = entry_at(at, available, physical_offset), size
    if head == 0:
        return check_blank(at, code, boundary - physical_offset)
    if load_i32(at) != ENTRY_OF_RECORD:
        record.start, record.size = NULL, 0
        return head
    size = read_shape(record, at + head, available - head, physical_offset + head)
    return head + size if size > 0 else size


def record_start(Region region not None, int64_t position, int64_t stop, int64_t physical_offset) -> int:
    """Position behind the heads of DLedger entries that stand at a position: itself where none does."""
    cdef int64_t head
    cdef bint has_record = False
    require(region, position, stop)
    with nogil:
        while not has_record:
            head = entry_at(region.data + position, stop - position, physical_offset)
            if head == 0:
                break
            has_record = load_i32(region.data + position) == ENTRY_OF_RECORD
            position += head
            physical_offset += head
    return position


# --- Looking for a record where none is known ---


cdef inline bint may_be_record(const uint8_t *at, int64_t physical_offset) noexcept nogil:
    """Whether magic and own offset are those of a record; up to its own offset must be readable."""
    return has_record_magic(at) and load_i64(at + PHYSICAL_OFFSET) == physical_offset


cdef int64_t next_candidate(const uint8_t *data, int64_t position, int64_t stop, int64_t base) noexcept nogil:
    """As :func:`find_candidate`."""
    cdef const uint8_t *at
    cdef int64_t last = stop - PHYSICAL_OFFSET - 8
    while position <= last:
        at = <const uint8_t *>memchr(data + position + MAGIC, MAGIC_FIRST_BYTE, last - position + 1)
        if at == NULL:
            break
        position = at - data - MAGIC
        if may_be_record(data + position, base + position):
            return position
        position += 1
    return -1


def find_candidate(Region region not None, int64_t position, int64_t stop, int64_t base) -> int:
    """First position that has a record's magic and the right physical offset, both before `stop`; −1 for none."""
    cdef int64_t found
    require(region, position, stop)
    with nogil:
        found = next_candidate(region.data, position, stop, base)
    return found


cdef int64_t next_recent(
    const uint8_t *data, int64_t position, int64_t stop, int64_t readable, int64_t base, int64_t earliest, KeptChecksums sums
) noexcept nogil:
    """As :func:`find_recent`."""
    cdef Record record
    while True:
        position = next_candidate(data, position, min(stop - 1 + PHYSICAL_OFFSET + 8, readable), base)
        if position < 0:
            return stop
        if read_shape(&record, data + position, readable - position, base + position) > 0:
            if check_sums(&record, sums) > 0:
                if store_timestamp_at(record.start) >= earliest:
                    return position
                position += record.topic.start - record.start - 3  # no byte of the body is summed up twice
        position += 1


def find_recent(
    Region region not None, int64_t position, int64_t stop, int64_t readable, int64_t base, int64_t earliest,
    KeptChecksums sums=None,
) -> int:
    """Position of the first intact record that starts in [position, stop) and was stored at `earliest` (ms) or later.

    Intact means that shape, physical offset and checksums are right. Returns `stop` if there is none. The body of a
    record that is too old is stepped over, so that no byte is read twice for a checksum.
    """
    require(region, position, readable)
    sums = begin_sums(sums, region)
    with nogil:
        position = next_recent(region.data, position, stop, readable, base, earliest, sums)
    return position


def find_record(Region region not None, int64_t position, int64_t stop, int64_t base, KeptChecksums sums=None) -> int:
    """Position of the first record at or after a position with right shape, offset and checksums; `stop` for none."""
    require(region, position, stop)
    sums = begin_sums(sums, region)
    with nogil:
        position = next_recent(region.data, position, stop, stop, base, INT64_MIN, sums)
    return position


def find_intact_backwards(
    Region region not None, int64_t lowest, int64_t position, int64_t readable, int64_t base,
) -> int:
    """Position of the last intact record that starts in [lowest, position) and ends by `readable`; −1 for none."""
    cdef int64_t at = min(position - 1, readable - MINIMUM_SIZE)
    cdef KeptChecksums sums = begin_sums(None, region)
    cdef Record record
    require(region, lowest, position)
    require(region, lowest, readable)
    with nogil:
        while at >= lowest:
            if may_be_record(region.data + at, base + at):
                if read_shape(&record, region.data + at, readable - at, base + at) > 0:
                    if sums.patience < 0 and sums.count == 0:
                        keep_sums(sums, lowest, readable)
                    if check_sums(&record, sums) > 0:
                        break
            at -= 1
    return at if at >= lowest else -1


def find_record_backwards(Region region not None, int64_t lowest, int64_t position, int64_t base) -> int:
    """Position of the last record in [lowest, position), going by magic and physical offset alone; −1 for none."""
    cdef int64_t at = min(position - 1, region.size - PHYSICAL_OFFSET - 8)
    require(region, lowest, position)
    with nogil:
        while at >= lowest and not may_be_record(region.data + at, base + at):
            at -= 1
    return at if at >= lowest else -1


# --- Index entries beside the records that they should be of ---


cdef enum:
    FEW_HASHES = 16  # for each of which the entries are gone through
    MISSED = 0
    MET = 1


@cython.final
cdef class Comparison:
    """Where a comparison of log and index entries ended, and why."""

    cdef readonly int64_t position  # Where it ended.
    cdef readonly int64_t number  # Number of an entry; all entries before it have offsets before that position.
    cdef readonly int reason  # AT_LIMIT, AT_BLANK, AT_DAMAGE, or AT_RECORD if a record was found.

    def __cinit__(self, int64_t position, int64_t number, int reason):
        self.position, self.number, self.reason = position, number, reason


cdef int order_of_hashes(const void *left, const void *right) noexcept nogil:
    cdef int32_t one = (<const int32_t *>left)[0], other = (<const int32_t *>right)[0]
    return (one > other) - (one < other)


cdef bint is_among(const uint8_t *entries, int64_t first, int64_t stop, int32_t hashed) noexcept nogil:
    """Whether one of the entries [first, stop) of an array has a hash."""
    cdef int64_t number
    for number in range(first, stop):
        if load_i32(entries + ENTRY_BYTES * number) == hashed:
            return True
    return False


cdef void keep_missed(const uint8_t *entries, int64_t first, int64_t stop, Entries *wanted) noexcept nogil:
    """Leave those of many hashes that no entry [first, stop) has: sorted, so that neither are gone through for each."""
    cdef int32_t *hashes = wanted.hashes
    cdef const int32_t *found
    cdef int32_t hashed
    cdef int64_t i, number, count = 0
    qsort(hashes, wanted.count, sizeof(int32_t), order_of_hashes)
    for i in range(wanted.count):
        if count == 0 or hashes[i] != hashes[count - 1]:
            hashes[count], wanted.offsets[count] = hashes[i], MISSED
            count += 1
    for number in range(first, stop):
        hashed = load_i32(entries + ENTRY_BYTES * number)
        found = <const int32_t *>bsearch(&hashed, hashes, count, sizeof(int32_t), order_of_hashes)
        if found != NULL:
            wanted.offsets[found - hashes] = MET
    wanted.count = 0
    for i in range(count):
        if wanted.offsets[i] == MISSED:
            hashes[wanted.count] = hashes[i]
            wanted.count += 1


cdef bint has_all_entries(
    const Record *record, const uint8_t *entries, int64_t first, int64_t stop, bint has_tags, Entries *wanted
) noexcept nogil:
    """Whether entries [first, stop) of an array hold every hash that a record is found under."""
    cdef Indexed indexed
    cdef int64_t i
    cdef int32_t tag = 0
    cdef bint spares_tag = False, are_many
    if is_rolled_back(record.start):
        return True
    wanted.count = 0
    emit_record(record, 0, wanted)
    if not has_tags:
        find_indexed(record, &indexed)
        if indexed.tags.start != NULL:
            spares_tag, tag = True, tag_hash(topic_hash(record), &indexed.tags)
    are_many = wanted.count > FEW_HASHES
    if are_many:
        keep_missed(entries, first, stop, wanted)
    for i in range(wanted.count):
        if are_many or not is_among(entries, first, stop, wanted.hashes[i]):
            if not (spares_tag and wanted.hashes[i] == tag):
                return False
    return True


def find_record_by_entries(
    Region region not None, int64_t position, int64_t stop, int64_t readable, int64_t base, int64_t boundary,
    entries: ReadableBuffer, int64_t number, bint has_tags, bint complete,
) -> Comparison:
    """Find the first record in [position, stop) of a segment that lacks an entry, or, if `complete`, that lacks none.

    An index may be sound in itself and yet lack records: those written again after a crash had cut the log to before
    the last entry (a broker indexes nothing below that), those written while the index was off, and those after a
    damaged record. The physical offsets of entries never decrease, so one pass over both finds every record that lacks
    an entry.

    `entries` are those of an index file from entry 0 on; all entries before entry `number` have offsets before
    `position`. An entry for the tag is required only if `has_tags`.
    """
    cdef Region entry_region = region_of(entries)
    cdef const uint8_t *first = entry_region.data
    cdef int64_t count = entry_region.size // ENTRY_BYTES
    cdef Record record
    cdef Entries wanted
    cdef list blocks
    cdef int64_t size, after, following
    cdef int reason = AT_LIMIT
    require(region, position, readable)
    if number < 0:
        raise ValueError(f"there is no entry {number}")
    blocks = make_room(&wanted, 0)
    with nogil:
        while position < stop and position + HEAD <= readable:
            size = read_step(&record, region.data + position, readable - position, base + position, boundary)
            if size <= 0:
                reason = AT_BLANK if size == 0 else AT_DAMAGE
                break
            following = position + size
            if record.start == NULL:
                position = following
                continue
            position = record.start - region.data
            if position >= stop:
                break
            while number < count and load_i64(first + ENTRY_BYTES * number + ENTRY_OFFSET) < base + position:
                number += 1
            after = number
            while after < count and load_i64(first + ENTRY_BYTES * after + ENTRY_OFFSET) == base + position:
                after += 1
            if has_all_entries(&record, first, number, after, has_tags, &wanted) == complete:
                reason = AT_RECORD
                break
            number = after
            position = following
    return Comparison(position, number, reason)


# --- Records that a running broker appends ---
#
# A record is being copied while it is looked at, by plain stores and without a mark that it is done. Appends are
# serialised, so a record with something behind it is complete; the last one is judged by its bytes (store-format §6.7).


cdef enum:
    TABLE_SIZE = 4096


cdef uint64_t multiplier = int.from_bytes(os.urandom(8), "big") | 1  # Of the hash: nobody can make up queues that share a place.


cdef struct SeenQueues:
    int64_t count
    int64_t collisions
    int64_t first[MAXIMUM_QUEUES]  # Positions of the first record of each queue, in their order.
    int64_t table[TABLE_SIZE]  # The same, + 1, by hash of the queue.


@cython.final
cdef class Appended:
    """Where a walk over what a running broker appends ended, and why."""

    cdef readonly int64_t position  # Where it ended.
    cdef readonly int64_t records  # Records that it stepped over.
    cdef readonly int64_t last  # Position of the last one; −1 for none.
    # Where the walk stood before that record: its position, or that of the DLedger head in front; −1 for none.
    cdef readonly int64_t last_step
    cdef readonly int64_t before_last  # Position of the record before the last one; −1 for none.
    cdef readonly int reason  # AT_LIMIT, AT_BLANK, AT_NOTHING, AT_DAMAGE or QUEUES_FULL.
    cdef readonly int code  # The `BAD_` code that says why the bytes there are no intact record, or none yet; else 0.
    cdef readonly list[int] queues  # Position of the first record of each queue, in ascending order.
    # How often the table of queues held another queue at the place where one was looked up.
    cdef readonly int64_t collisions

    def __cinit__(
        self, int64_t position, int64_t records, int64_t last, int64_t last_step, int64_t before_last, int reason,
        int code, list queues, int64_t collisions,
    ):
        self.position, self.records, self.last, self.last_step = position, records, last, last_step
        self.before_last, self.reason, self.code = before_last, reason, code
        self.queues, self.collisions = queues, collisions


cdef bint is_same_queue(const Record *left, const uint8_t *start, int64_t available) noexcept nogil:
    """Whether a record says the topic and the queue id of one that was read before, of which not all may be as it was."""
    cdef Record right
    return (
        read_shape(&right, start, available, -1) > 0
        and load_i32(left.start + QUEUE_ID) == load_i32(start + QUEUE_ID)
        and left.topic.length == right.topic.length
        and memcmp(left.topic.start, right.topic.start, left.topic.length) == 0
    )


cdef void note_queue(
    SeenQueues *seen, const Record *record, const uint8_t *data, int64_t position, int64_t readable
) noexcept nogil:
    """Note the queue of the record at a position unless one of it was noted."""
    cdef int64_t place = hash_name(&record.topic, load_i32(record.start + QUEUE_ID), multiplier) % TABLE_SIZE
    cdef int64_t other
    while seen.table[place]:
        other = seen.table[place] - 1
        if is_same_queue(record, data + other, readable - other):
            return
        seen.collisions += 1
        place = (place + 1) % TABLE_SIZE
    seen.table[place] = position + 1
    seen.first[seen.count] = position
    seen.count += 1


cdef bint is_beginning(uint32_t magic, uint32_t whole) noexcept nogil:
    """Whether the first bytes of a magic number are there, one to all four of them, and zeros for the others."""
    cdef int missing
    for missing in range(4):
        if magic == whole & (<uint32_t>0xFFFFFFFF << 8 * missing):
            return True
    return False


cdef bint is_begun(const uint8_t *at, int64_t available, int64_t left) noexcept nogil:
    """Whether size and magic number are just being written: some of them are there, and zeros behind.

    ``available`` bytes may be read, ``left`` are those up to the next segment. A BLANK is one whose size may be any: it
    becomes right, or something else is written there.
    """
    cdef int64_t position
    cdef int32_t size = load_i32(at), magic = load_i32(at + MAGIC)
    for position in range(HEAD, min(available, MINIMUM_SIZE)):
        if at[position] != 0:
            return False
    if magic == MAGIC_BLANK:
        return True
    if magic == 0 or is_beginning(magic, <uint32_t>MAGIC_BLANK):
        return 0 <= size <= left
    return MINIMUM_SIZE <= size <= left and (
        is_beginning(magic, <uint32_t>MAGIC_V1) or is_beginning(magic, <uint32_t>MAGIC_V2)
    )


def walk_appended(
    Region region not None, int64_t position, int64_t limit, int64_t readable, int64_t base, int64_t boundary,
) -> Appended:
    """Step over the intact records that start in [position, limit) of a segment that may just be written to."""
    cdef const uint8_t *data = region.data
    cdef list blocks = []
    cdef SeenQueues *seen = <SeenQueues *>take_zeroes(blocks, 1, sizeof(SeenQueues))
    cdef Record record
    cdef int64_t size, start = -1, intact, records = 0, last = -1, last_step = -1, before_last = -1
    cdef int reason = AT_LIMIT, code = 0
    require(region, position, readable)
    with nogil:
        while position < limit and position + HEAD <= readable:
            if load_i64(data + position) == 0:
                reason = AT_NOTHING
                break
            size = read_step(&record, data + position, readable - position, base + position, boundary)
            if size == 0:
                reason = AT_BLANK
                break
            if size > 0 and record.start == NULL:
                position += size
                continue
            if seen.count == MAXIMUM_QUEUES:
                reason = QUEUES_FULL
                break
            intact = size
            if size > 0:
                start = record.start - data
                if start >= limit:
                    break
                intact = check_checksums(&record)
            if intact < 0:
                code = <int>intact
                if is_begun(data + position, readable - position, boundary - base - position):
                    reason = AT_NOTHING
                else:
                    reason = AT_DAMAGE
                break
            note_queue(seen, &record, data, start, readable)
            records += 1
            before_last, last, last_step = last, start, position
            position += size
    return Appended(
        position, records, last, last_step, before_last, reason, code, [seen.first[i] for i in range(seen.count)],
        seen.collisions,
    )
