"""Segments of the CommitLog: single records checked, walks from record to record, what records are found under.

These loops read headers, topics and properties, never bodies unless a checksum is asked for, so a segment is scanned
at memory speed.
"""

cimport cython
from libc.stdint cimport INT64_MIN, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memchr

from storage.kernels cimport checksum
from storage.kernels.memory cimport load_i32, load_i64
from storage.kernels.region cimport Region, Room, region_of, require

CRC32_PATH = checksum.crc32_path().decode()
ANY_TIME = INT64_MIN


def crc32(buffer):
    cdef Region region = region_of(buffer)
    cdef uint32_t result
    with nogil:
        result = checksum.crc32_of(region.data, region.size)
    return result


def crc32_by_tables(buffer):
    cdef Region region = region_of(buffer)
    return checksum.crc32_by_tables(region.data, region.size)


cdef int require_record(Region region, int64_t position, int64_t stop, Record *record) except -1:
    """Read the record that starts at a position; raises ValueError where none of sound shape does."""
    require(region, position, stop)
    if read_shape(record, region.data + position, stop - position, -1) < 0:
        raise ValueError(f"no record starts at position {position} of a region of {region.size} bytes")
    return 0


cdef int make_room(Entries *entries, int64_t count) except -1:
    """Room for so many entries and MAXIMUM_PIECES more, to be freed from ``entries.offsets`` on."""
    entries.offsets = <int64_t *>malloc((count + MAXIMUM_PIECES) * (sizeof(int64_t) + sizeof(int32_t)))
    if entries.offsets == NULL:
        raise MemoryError
    entries.hashes = <int32_t *>(entries.offsets + count + MAXIMUM_PIECES)
    entries.count = 0
    return 0


# --- One record ---


def check_shape(Region region not None, int64_t position, int64_t stop, int64_t physical_offset):
    cdef Record record
    require(region, position, stop)
    return read_shape(&record, region.data + position, stop - position, physical_offset)


def check_record(Region region not None, int64_t position, int64_t stop, int64_t physical_offset):
    cdef Record record
    cdef int64_t size
    require(region, position, stop)
    with nogil:
        size = read_shape(&record, region.data + position, stop - position, physical_offset)
        if size > 0:
            size = check_checksums(&record)
    return size


def check_step(Region region not None, int64_t position, int64_t stop, int64_t physical_offset, int64_t boundary):
    cdef Record record
    cdef int64_t size
    require(region, position, stop)
    if stop - position < HEAD:
        raise ValueError(f"{stop - position} bytes are too few to tell what is there")
    size = read_shape(&record, region.data + position, stop - position, physical_offset)
    return size if size > 0 else check_blank(region.data + position, size, boundary - physical_offset)


def closes_segment(Region region not None, int64_t position, int64_t left):
    require(region, position, position + HEAD)
    return closes_segment_at(region.data + position, left)


def store_timestamp(Region region not None, int64_t position):
    require(region, position, position + MINIMUM_SIZE)
    return store_timestamp_at(region.data + position)


def has_sane_texts(Region region not None, int64_t position, int64_t stop):
    cdef Record record
    require_record(region, position, stop, &record)
    return (
        memchr(record.topic.start, 0, record.topic.length) == NULL
        and memchr(record.properties.start, 0, record.properties.length) == NULL
    )


def tag_entry_hash(Region region not None, int64_t position, int64_t stop):
    cdef Record record
    cdef Indexed indexed
    require_record(region, position, stop, &record)
    find_indexed(&record, &indexed)
    return None if indexed.tags.start == NULL else tag_hash(&record, &indexed.tags)


def entry_hashes(Region region not None, int64_t position, int64_t stop):
    cdef Record record
    cdef Entries entries
    require_record(region, position, stop, &record)
    make_room(&entries, 0)
    try:
        emit_record(&record, 0, &entries)
        return [entries.hashes[i] for i in range(entries.count)]
    finally:
        free(entries.offsets)


# --- Walks ---


@cython.final
cdef class Walk:
    cdef readonly int64_t position
    cdef readonly int64_t records
    cdef readonly int64_t last
    cdef readonly int reason
    cdef readonly int code


def walk_records(
    Region region not None, int64_t position, int64_t stop, int64_t base, int64_t boundary, bint checksums
):
    cdef Walk walk = Walk()
    cdef Record record
    cdef int64_t size, records = 0, last = -1
    cdef int reason = AT_LIMIT, code = 0
    require(region, position, stop)
    with nogil:
        while position + HEAD <= stop:
            size = read_shape(&record, region.data + position, stop - position, base + position)
            if size > 0 and checksums:
                size = check_checksums(&record)
            if size < 0:
                size = check_blank(region.data + position, size, boundary - base - position)
                if size == 0:
                    reason = AT_BLANK
                else:
                    reason, code = AT_DAMAGE, <int>size
                break
            records += 1
            last = position
            position += size
    walk.position, walk.records, walk.last, walk.reason, walk.code = position, records, last, reason, code
    return walk


@cython.final
cdef class Scan:
    cdef readonly int64_t position
    cdef readonly int64_t entries
    cdef readonly int64_t records
    cdef readonly int reason


def scan_keys(
    Region region not None,
    int64_t position,
    int64_t stop,
    int64_t readable,
    int64_t base,
    int64_t boundary,
    hashes,
    offsets,
):
    cdef Room hash_room = Room(hashes, sizeof(int32_t)), offset_room = Room(offsets, sizeof(int64_t))
    cdef int64_t room = min(hash_room.count, offset_room.count) - MAXIMUM_PIECES
    cdef Scan scan = Scan()
    cdef Record record
    cdef Entries entries
    cdef int64_t size, records = 0
    cdef int reason = AT_LIMIT
    require(region, position, readable)
    if room < 0:
        raise ValueError(f"room for {room + MAXIMUM_PIECES} entries, expected {MAXIMUM_PIECES} at least")
    entries.hashes, entries.offsets, entries.count = <int32_t *>hash_room.items, <int64_t *>offset_room.items, 0
    with nogil:
        while position < stop and position + HEAD <= readable:
            size = read_shape(&record, region.data + position, readable - position, base + position)
            if size < 0:
                size = check_blank(region.data + position, size, boundary - base - position)
                reason = AT_BLANK if size == 0 else AT_DAMAGE
                break
            if entries.count > room:
                reason = OUTPUT_FULL
                break
            if not is_rolled_back(record.start):
                emit_record(&record, base + position, &entries)
            records += 1
            position += size
    scan.position, scan.entries, scan.records, scan.reason = position, entries.count, records, reason
    return scan


# --- Looking for a record where none is known ---


cdef inline bint may_be_record(const uint8_t *at, int64_t physical_offset) noexcept nogil:
    """Whether magic and own offset are those of a record; up to its own offset must be readable."""
    return has_record_magic(at) and load_i64(at + PHYSICAL_OFFSET) == physical_offset


cdef int64_t next_candidate(const uint8_t *data, int64_t position, int64_t stop, int64_t base) noexcept nogil:
    """As :func:`find_candidate`."""
    while position + PHYSICAL_OFFSET + 8 <= stop:
        if data[position + MAGIC] == MAGIC_FIRST_BYTE and may_be_record(data + position, base + position):
            return position
        position += 1
    return -1


def find_candidate(Region region not None, int64_t position, int64_t stop, int64_t base):
    cdef int64_t found
    require(region, position, stop)
    with nogil:
        found = next_candidate(region.data, position, stop, base)
    return found


cdef int64_t next_recent(
    const uint8_t *data, int64_t position, int64_t stop, int64_t readable, int64_t base, int64_t earliest
) noexcept nogil:
    cdef Record record
    while True:
        position = next_candidate(data, position, min(stop - 1 + PHYSICAL_OFFSET + 8, readable), base)
        if position < 0:
            return stop
        if read_shape(&record, data + position, readable - position, base + position) > 0:
            if check_checksums(&record) > 0:
                if store_timestamp_at(record.start) >= earliest:
                    return position
                position += record.topic.start - record.start - 3  # no byte of the body is summed up twice
        position += 1


def find_recent(
    Region region not None, int64_t position, int64_t stop, int64_t readable, int64_t base, int64_t earliest
):
    require(region, position, readable)
    with nogil:
        position = next_recent(region.data, position, stop, readable, base, earliest)
    return position


def find_record(Region region not None, int64_t position, int64_t stop, int64_t base):
    require(region, position, stop)
    with nogil:
        position = next_recent(region.data, position, stop, stop, base, INT64_MIN)
    return position


def find_record_backwards(Region region not None, int64_t lowest, int64_t position, int64_t base):
    cdef int64_t at = min(position - 1, region.size - PHYSICAL_OFFSET - 8)
    require(region, lowest, position)
    with nogil:
        while at >= lowest and not may_be_record(region.data + at, base + at):
            at -= 1
    return at if at >= lowest else -1
