"""A CommitLog record read where it lies: shape, checksums, topic, properties (store-format §2.2, §2.5, §2.6).

Positions are those of the record with two IPv4 hosts; a 16-byte host moves everything behind it by IPV6_EXTRA.

A record may change while it is read (a broker that writes, a file that is copied): what bounds reading is loaded once,
into a :c:struct:`Record`, checked, and taken from there ever after.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp

cimport cython

from protocol.kernels.java_string cimport fold_hash, hash_utf8
from protocol.kernels.memory cimport Text, __builtin_ctzll, load_i16, load_i32, load_i64
from storage.kernels.checksum cimport crc32_of
from storage.kernels.region cimport Block, Region


cdef extern from "held_memory.h" nogil:
    const uint8_t *hold_bytes(const uint8_t *start, int64_t length) noexcept


cdef extern from "separators.h" nogil:
    enum:
        SEPARATORS_WIDE
    ctypedef struct Separators:  # Bit n says whether byte n is the separator of a name, 0x01, or of properties, 0x02.
        uint64_t names
        uint64_t properties
    Separators find_separators(const uint8_t *at) noexcept  # Those of SEPARATORS_WIDE bytes.


include "record_layout.pxi"  # Positions, lengths, magic numbers and flags, from protocol/message_layout.py.


cpdef enum:
    CRC_PROPERTY = 20  # Bytes of the property CRC that closes a record: name 8, 0x01, ten digits, 0x02.
    # The head of a DLedger entry, which stands in front of its record (other-formats §1): positions, length, kinds.
    ENTRY_SIZE = 4
    ENTRY_POSITION = 24
    ENTRY_BODY_SIZE = 44
    ENTRY_HEAD = 48
    ENTRY_OF_RECORD = 1
    LAST_ENTRY_KIND = 3  # the others hold no record
    ENTRY_BLANK = -1
    IS_BATCH = INNER_BATCH | NEED_UNWRAP  # Both bits: the body is a batch (store-format §2.9).
    CRC_MASK = 0x7FFFFFFF
    NAME_SEPARATOR = 1
    PROPERTY_SEPARATOR = 2
    SPACE = 32
    # Why something is no record, or cannot be read as one.
    BAD_SIZE = -1
    BAD_MAGIC = -2
    BAD_OFFSET = -3
    BAD_LENGTHS = -4
    BAD_BODY_CRC = -5
    BAD_PROPERTY_CRC = -6
    NO_SEGMENT = -7
    COLD = -8
    BAD_NUMBER = -9  # a property that must be a number is none that Java can parse: to a broker, no valid record
    BAD_BLANK = -10  # the magic number of a BLANK with a size that does not lead to the end of the segment
    # Why a walk from record to record ended.
    AT_LIMIT = 0
    AT_BLANK = 1  # that closes the segment
    AT_DAMAGE = 2
    OUTPUT_FULL = 3
    QUEUES_FULL = 4  # too many queues for one walk
    AT_NOTHING = 5  # nothing was written there yet, or nothing but the beginning of the first eight bytes
    AT_RECORD = 6  # that was looked for
    AT_PACKED = 7  # a batch that is compressed as a whole
    # How many messages of a batch there may be, and queues of one walk.
    MOST_INNER = 32767
    MAXIMUM_QUEUES = 2048
    # How far back a repeated key of one record is looked for: a double costs bytes, a full search a square.
    RECENT_PIECES = 64
    # Every how many bytes a CRC is kept, and how many are summed up for nothing before that begins.
    SUM_STEP = 1024
    SUM_PATIENCE = 1 << 24
    # More keys than one property block of 32,767 bytes can hold.
    MAXIMUM_PIECES = 32768


cdef struct Property:
    Text name
    Text value

cdef struct PropertyWalk:
    const uint8_t *at  # Where the next property starts.
    const uint8_t *end
    const uint8_t *piece  # The bytes that are looked at,
    Separators marks  # and those of their separators that have not been passed.

cdef struct Record:
    const uint8_t *start
    int64_t size  # In bytes, or why it is no record.
    int64_t physical_offset  # What it says of itself.
    Text body
    Text topic
    Text properties

cdef struct Indexed:  # The values of the properties that a record is indexed under.
    Text unique_key
    Text keys
    Text tags

cdef struct Entries:  # Room for index entries, and how many there are.
    int32_t *hashes
    int64_t *offsets
    int64_t count


cdef inline Text text_of(bytes content) noexcept:
    """The place of bytes that are kept elsewhere; that of None starts at NULL."""
    cdef Text text
    text.start, text.length = NULL, 0
    if content is not None:
        text.length = len(content)
        text.start = hold_bytes(<const uint8_t *><const char *>content, text.length)
    return text


cdef inline int64_t store_timestamp_at(const uint8_t *record) noexcept nogil:
    """When the broker stored a record, in ms; MINIMUM_SIZE bytes of it must be there."""
    return load_i64(record + STORE_TIMESTAMP + (IPV6_EXTRA if load_i32(record + SYS_FLAG) & BORN_HOST_V6 else 0))


cdef inline bint is_rolled_back(const uint8_t *record) noexcept nogil:
    """Whether a record is a transaction's that was rolled back: such are in no index."""
    return load_i32(record + SYS_FLAG) & TRANSACTION_MASK == TRANSACTION_ROLLBACK


cdef inline bint is_batch(const uint8_t *record) noexcept nogil:
    """Whether the body of a record holds messages, which a reader has to take apart."""
    return load_i32(record + SYS_FLAG) & IS_BATCH == IS_BATCH


cdef inline bint is_packed_batch(const Record *record) noexcept nogil:
    """Whether a batch is compressed as a whole, so that its messages cannot be read in place."""
    return is_batch(record.start) and load_i32(record.start + SYS_FLAG) & COMPRESSED and record.body.length > 0


cdef inline bint has_record_magic(const uint8_t *at) noexcept nogil:
    cdef int32_t magic = load_i32(at + MAGIC)
    return magic == MAGIC_V1 or magic == MAGIC_V2


cdef inline int64_t check_head(const uint8_t *at, int64_t available) noexcept nogil:
    """Size that the first eight bytes of a record announce, or a ``BAD_`` code; reads nothing else."""
    if available < MINIMUM_SIZE:
        return BAD_SIZE
    if not has_record_magic(at):
        return BAD_MAGIC
    cdef int32_t size = load_i32(at + TOTAL_SIZE)
    return BAD_SIZE if size < MINIMUM_SIZE or size > available else size


cdef inline int64_t read_parts(Record *record) noexcept nogil:
    """Find body, topic and properties of a record whose start and size are known; the size, or BAD_LENGTHS."""
    cdef const uint8_t *start = record.start
    cdef int32_t flags = load_i32(start + SYS_FLAG)
    cdef int64_t length, position = BODY_LENGTH
    if flags & BORN_HOST_V6:
        position += IPV6_EXTRA
    if flags & STORE_HOST_V6:
        position += IPV6_EXTRA
    if position + 4 > record.size:
        return BAD_LENGTHS
    length = load_i32(start + position)
    position += 4
    record.body.start, record.body.length = start + position, length if length > 0 else 0
    position += record.body.length
    if position + 2 > record.size:
        return BAD_LENGTHS
    if load_i32(start + MAGIC) == MAGIC_V1:
        length = <int8_t>start[position]
        position += 1
    else:
        length = load_i16(start + position)
        position += 2
    record.topic.start, record.topic.length = start + position, length
    position += length
    if length < 0 or position + 2 > record.size:
        return BAD_LENGTHS
    length = load_i16(start + position)
    position += 2
    record.properties.start, record.properties.length = start + position, length if length > 0 else 0
    return record.size if position + record.properties.length == record.size else BAD_LENGTHS


cdef inline int64_t read_shape(
    Record *record, const uint8_t *start, int64_t available, int64_t physical_offset
) noexcept nogil:
    """Read the parts of the record at ``start``: its size if they add up, else one of the ``BAD_`` codes.

    No byte of the body is read. As the broker sees it, a negative length of body or properties counts as 0 and one of
    the topic is an error. ``available`` bytes may be read; ``physical_offset`` is what the record must say of itself,
    or −1 for any.
    """
    record.start = start
    record.size = check_head(start, available)
    if record.size < 0:
        return record.size
    record.physical_offset = load_i64(start + PHYSICAL_OFFSET)
    if physical_offset >= 0 and record.physical_offset != physical_offset:
        record.size = BAD_OFFSET
    else:
        record.size = read_parts(record)
    return record.size


cdef inline bint closes_segment_at(const uint8_t *at, int64_t left) noexcept nogil:
    """Whether eight bytes are the BLANK that closes their segment, of which ``left`` bytes remain from there on.

    That is the size which a broker writes; a BLANK that says another one is damage, and records may follow it. DLedger
    writes its own number and the size behind it.
    """
    cdef int32_t first = load_i32(at), second = load_i32(at + MAGIC)
    return (second == MAGIC_BLANK and first == left) or (first == ENTRY_BLANK and second == left)


cdef inline int64_t check_blank(const uint8_t *at, int64_t code, int64_t left) noexcept nogil:
    """What is where :c:func:`read_shape` found no record, but a code: 0 for the BLANK that closes the segment.

    ``left`` bytes lie between the address and the next segment. Else BAD_BLANK for another BLANK, or the code itself.
    At least eight bytes must be readable. Walks ask this of what is no record alone, so that records cost nothing more.
    """
    if closes_segment_at(at, left):
        return 0
    return BAD_BLANK if load_i32(at + MAGIC) == MAGIC_BLANK else code


cdef inline int64_t entry_at(const uint8_t *at, int64_t available, int64_t physical_offset) noexcept nogil:
    """Bytes from the head of a DLedger entry to its record, or behind an entry that has none; 0 where no head is."""
    cdef int32_t kind, size
    if available < ENTRY_HEAD:
        return 0
    kind, size = load_i32(at), load_i32(at + ENTRY_SIZE)
    if kind < ENTRY_OF_RECORD or kind > LAST_ENTRY_KIND or size < ENTRY_HEAD:
        return 0
    if load_i64(at + ENTRY_POSITION) != physical_offset or load_i32(at + ENTRY_BODY_SIZE) != size - ENTRY_HEAD:
        return 0
    if kind == ENTRY_OF_RECORD:
        return ENTRY_HEAD
    return size if size <= available else 0


cdef inline bint is_cut_entry(const uint8_t *at, int64_t available) noexcept nogil:
    """Whether what stands there begins like an entry of which not all bytes that are read of it are available.

    That are its head, and all of an entry that has no record.
    """
    cdef int32_t kind = load_i32(at), size = load_i32(at + ENTRY_SIZE)
    if kind < ENTRY_OF_RECORD or kind > LAST_ENTRY_KIND or size < ENTRY_HEAD:
        return False
    return available < (ENTRY_HEAD if kind == ENTRY_OF_RECORD else size)


cdef int64_t read_entry(
    Record *record, const uint8_t *at, int64_t available, int64_t physical_offset, int64_t boundary, int64_t code
) noexcept nogil


cdef inline int64_t read_step(
    Record *record, const uint8_t *at, int64_t available, int64_t physical_offset, int64_t boundary
) noexcept nogil:
    """As :c:func:`read_shape`, but 0 for the BLANK that closes the segment, behind which the next starts at boundary.

    In front of the record the head of a DLedger entry may stand: it counts among the bytes to step over, and the record
    starts behind it. A step over an entry that has no record leaves the record's start at NULL. What is no record costs
    the look at it; a plain record costs nothing more.
    """
    cdef int64_t size = read_shape(record, at, available, physical_offset)
    return size if size > 0 else read_entry(record, at, available, physical_offset, boundary, size)


cdef inline int64_t property_crc(const uint8_t *record, int64_t size) noexcept nogil:
    """The checksum that the record's last property states, or −1 where it has none."""
    cdef const uint8_t *at = record + size - CRC_PROPERTY
    cdef int64_t value = 0
    cdef int digit = 18
    if memcmp(at, b"__CRC32#\x01", 9) != 0 or at[19] != PROPERTY_SEPARATOR:
        return -1
    while digit > 8:
        if at[digit] < 48 or at[digit] > 57:
            return -1
        value = value * 10 + at[digit] - 48
        digit -= 1
    return value


cdef inline int64_t check_checksums(const Record *record) noexcept nogil:
    """The size if body CRC and property CRC, where there is one, hold; else the ``BAD_`` code."""
    return check_sums(record, None)


# Records may be nested in one another, by accident two, by malice a million: a search for an intact one among them must
# not sum up all their bodies. The CRC of a range follows from the CRCs of the bytes up to its begin and up to its end, so
# these are kept at regular distances. That has a cost, so it begins only when much was summed up for nothing.


@cython.final
cdef class KeptChecksums:
    cdef Region region  # That they are of.
    cdef int64_t anchor  # Position at which all the bytes begin
    cdef uint32_t *sums  # whose CRCs these are, the first of none, each of SUM_STEP bytes more.
    cdef int64_t count
    cdef Block block  # In which they lie.
    cdef int64_t patience
    cdef readonly int64_t summed  # How many bytes were read to compute checksums.


cdef KeptChecksums begin_sums(KeptChecksums sums, Region region)
cdef uint32_t sum_once(KeptChecksums sums, const uint8_t *start, int64_t length) noexcept nogil
cdef int64_t next_candidate(const uint8_t *data, int64_t position, int64_t stop, int64_t base) noexcept nogil
cdef int64_t next_recent(
    const uint8_t *data, int64_t position, int64_t stop, int64_t readable, int64_t base, int64_t earliest, KeptChecksums sums
) noexcept nogil


cdef inline uint32_t sum_up(KeptChecksums sums, const uint8_t *start, int64_t length) noexcept nogil:
    """CRC-32 of bytes of a record; with sums those of their region."""
    return crc32_of(start, length) if sums is None else sum_once(sums, start, length)


cdef inline int64_t check_sums(const Record *record, KeptChecksums sums) noexcept nogil:
    """As :c:func:`check_checksums`, in a pass that keeps its sums."""
    cdef int64_t stated
    if record.body.length > 0:
        if <int32_t>(sum_up(sums, record.body.start, record.body.length) & CRC_MASK) != load_i32(
            record.start + BODY_CRC
        ):
            if sums is not None:
                sums.patience -= record.body.length
            return BAD_BODY_CRC
    stated = property_crc(record.start, record.size)
    if stated >= 0 and <int64_t>(sum_up(sums, record.start, record.size - CRC_PROPERTY) & CRC_MASK) != stated:
        if sums is not None:
            sums.patience -= record.size
        return BAD_PROPERTY_CRC
    return record.size


cdef inline void mark_separators(PropertyWalk *walk) noexcept nogil:
    """Look at the bytes of the walk's piece; no record has fewer before the end of its properties."""
    cdef int64_t missing = SEPARATORS_WIDE - (walk.end - walk.piece)
    if missing <= 0:
        walk.marks = find_separators(walk.piece)
    elif missing < SEPARATORS_WIDE:
        walk.marks = find_separators(walk.piece - missing)
        walk.marks.names >>= missing
        walk.marks.properties >>= missing


cdef inline void begin_properties(PropertyWalk *walk, const Text *properties) noexcept nogil:
    """Get ready for going through properties; SEPARATORS_WIDE bytes before their end must be readable.

    That many are, of a record of sound shape.
    """
    walk.at = walk.piece = properties.start
    walk.end = properties.start + properties.length
    walk.marks.names = walk.marks.properties = 0
    mark_separators(walk)


cdef inline bint next_piece(PropertyWalk *walk) noexcept nogil:
    """Look at the bytes behind those that were looked at; False where there are none."""
    walk.piece += SEPARATORS_WIDE
    if walk.piece >= walk.end:
        return False
    mark_separators(walk)
    return True


cdef inline bint next_property(PropertyWalk *walk, Property *found) noexcept nogil:
    """Read the next property of a record; False where there is none.

    By the broker's parsing rules: a piece between two 0x02 whose first 0x01 is missing, leads or closes it is no
    property, so that an empty value is none. Of several of one name the last counts.
    """
    cdef const uint8_t *start
    cdef const uint8_t *separator
    cdef const uint8_t *stop
    cdef uint64_t first
    while walk.at < walk.end:
        start = walk.at
        while walk.marks.names | walk.marks.properties == 0:
            if not next_piece(walk):
                walk.at = walk.end
                return False
        first = walk.marks.names | walk.marks.properties
        separator = walk.piece + __builtin_ctzll(first)
        if first & (~first + 1) & walk.marks.properties:
            walk.marks.properties &= walk.marks.properties - 1
            walk.at = separator + 1
            continue
        while walk.marks.properties == 0:
            if not next_piece(walk):
                walk.marks.names = 0
                break
        if walk.marks.properties != 0:
            stop = walk.piece + __builtin_ctzll(walk.marks.properties)
            walk.marks.names &= ~(walk.marks.properties ^ (walk.marks.properties - 1))
            walk.marks.properties &= walk.marks.properties - 1
        else:
            stop = walk.end
        walk.at = stop + 1
        if separator > start and stop - separator > 1:
            found.name.start, found.name.length = start, separator - start
            found.value.start, found.value.length = separator + 1, stop - separator - 1
            return True
    return False


cdef inline Text split_off(Text *rest, uint8_t separator) noexcept nogil:
    """Take what stands before the first separator off a text, which is what stands behind it then."""
    cdef Text piece = rest[0]
    cdef const uint8_t *at = NULL
    if rest.length > 0:
        at = <const uint8_t *>memchr(rest.start, separator, rest.length)
    if at != NULL:
        piece.length = at - piece.start
        rest.start, rest.length = at + 1, rest.length - piece.length - 1
    else:
        rest.length = 0
    return piece


cdef inline bint is_text(const Text *text, const char *expected, int64_t length) noexcept nogil:
    """Whether a text is just these bytes; where the length is known to the compiler, a comparison of numbers."""
    return text.length == length and memcmp(text.start, expected, length) == 0


cdef inline void find_indexed(const Record *record, Indexed *found) noexcept nogil:
    """What the record is indexed under, in one pass over its properties."""
    cdef PropertyWalk walk
    cdef Property each
    found.unique_key.start = found.keys.start = found.tags.start = NULL
    found.unique_key.length = found.keys.length = found.tags.length = 0
    begin_properties(&walk, &record.properties)
    while next_property(&walk, &each):
        if is_text(&each.name, b"KEYS", 4):
            found.keys = each.value
        elif is_text(&each.name, b"TAGS", 4):
            found.tags = each.value
        elif is_text(&each.name, b"UNIQ_KEY", 8):
            found.unique_key = each.value


cdef inline bint next_inner(Record *inner, const uint8_t **at, const uint8_t *end) noexcept nogil:
    """Read body and properties of the message of a batch at an address, which moves behind it; False where none is.

    ``inner`` begins as a copy of the batch's record, and keeps all else of it; the batch's body ends at ``end``.
    """
    cdef int64_t length
    if end - at[0] < INNER_HEAD + 2:
        return False
    length = load_i32(at[0] + INNER_BODY_LENGTH)
    if length < 0 or length > end - at[0] - INNER_HEAD - 2:
        return False
    inner.body.start, inner.body.length = at[0] + INNER_HEAD, length
    inner.properties.start = inner.body.start + length + 2
    length = load_i16(inner.properties.start - 2)
    if length < 0 or length > end - inner.properties.start:
        return False
    inner.properties.length = length
    at[0] = inner.properties.start + length
    return True


cdef inline int64_t count_inner(const Record *record) noexcept nogil:
    """How many messages a batch that is not compressed holds; 0 where it is none as it should be."""
    cdef Record inner = record[0]
    cdef const uint8_t *at = record.body.start
    cdef const uint8_t *end = at + record.body.length
    cdef int64_t count = 0
    while count <= MOST_INNER and next_inner(&inner, &at, end):
        count += 1
    return count if count <= MOST_INNER and at == end else 0


cdef inline void emit(Entries *entries, int64_t first, int32_t hashed, int64_t physical_offset) noexcept nogil:
    """Append an entry unless the record, whose entries start at ``first``, has it already among its last few."""
    cdef int64_t count = entries.count
    cdef int64_t lowest = first if first > count - RECENT_PIECES else count - RECENT_PIECES
    cdef int64_t i = count - 1
    while i >= lowest:
        if entries.hashes[i] == hashed:
            return
        i -= 1
    entries.hashes[count] = hashed
    entries.offsets[count] = physical_offset
    entries.count = count + 1


cdef inline uint32_t topic_hash(const Record *record) noexcept nogil:
    """Hash of a record's topic, on which those of its keys go on."""
    return hash_utf8(0, record.topic.start, record.topic.length)


cdef inline int32_t tag_hash(uint32_t of_topic, const Text *tag) noexcept nogil:
    """Hash of ``topic#T#tag``, under which the tag of a record is indexed since 5.4."""
    return fold_hash(hash_utf8(((of_topic * 31 + c'#') * 31 + c'T') * 31 + c'#', tag.start, tag.length))


cdef inline void emit_keys(
    uint32_t of_topic, const Indexed *indexed, int64_t physical_offset, Entries *entries
) noexcept nogil:
    """Append the entries of one record's unique key and of each piece of KEYS; MAXIMUM_PIECES more must fit.

    ``of_topic`` is the hash of its topic.
    """
    cdef int64_t first = entries.count
    cdef uint32_t prefix = of_topic * 31 + c'#'
    cdef Text keys = indexed.keys
    cdef Text piece
    if indexed.unique_key.start != NULL:
        emit(
            entries, first, fold_hash(hash_utf8(prefix, indexed.unique_key.start, indexed.unique_key.length)),
            physical_offset,
        )
    if indexed.keys.start != NULL:
        while keys.length > 0:
            piece = split_off(&keys, SPACE)
            if piece.length > 0:
                emit(entries, first, fold_hash(hash_utf8(prefix, piece.start, piece.length)), physical_offset)


cdef inline void emit_record(const Record *record, int64_t physical_offset, Entries *entries) noexcept nogil:
    """Append what one record is found under: its unique key, each piece of KEYS, its tag.

    MAXIMUM_PIECES more entries must fit.
    """
    cdef Indexed indexed
    cdef int64_t first = entries.count
    cdef uint32_t of_topic = topic_hash(record)
    find_indexed(record, &indexed)
    emit_keys(of_topic, &indexed, physical_offset, entries)
    if indexed.tags.start != NULL:
        emit(entries, first, tag_hash(of_topic, &indexed.tags), physical_offset)
