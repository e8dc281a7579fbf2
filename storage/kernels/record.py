"""A CommitLog record checked where it lies: shape, checksums, topic, keys (store-format §2.2, §2.5, §2.6).

The positions below are those of the record with two IPv4 hosts; a 16-byte host moves everything behind it by 12.
A test holds them against the layout table of :mod:`protocol.message`.
"""

from numba import njit

from storage.kernels.crc32 import crc32
from storage.kernels.memory import equal_bytes, load_i8, load_i16, load_i32, load_i64, load_u8, prefetch

TOTAL_SIZE = 0
MAGIC = 4
BODY_CRC = 8
PHYSICAL_OFFSET = 28
SYS_FLAG = 36
BORN_HOST = 48
IPV4_HOST = 8
IPV6_EXTRA = 12
AFTER_HOSTS_TO_BODY_LENGTH = 12
"""Reconsume times and prepared transaction offset lie between the store host and the body length."""

MAGIC_V1 = -626843481
MAGIC_V2 = -626843477
MAGIC_BLANK = -875286124
MINIMUM_SIZE = 91
BORN_HOST_V6 = 0x10
STORE_HOST_V6 = 0x20
TRANSACTION_MASK = 0xC
ROLLBACK = 0xC
CRC_MASK = 0x7FFFFFFF

BAD_SIZE = -1
BAD_MAGIC = -2
BAD_OFFSET = -3
BAD_LENGTHS = -4
BAD_BODY_CRC = -5
BAD_PROPERTY_CRC = -6
NO_SEGMENT = -7
COLD = -8
BAD_NUMBER = -9
"""A property that must be a number is none that Java can parse: to a broker, no valid record."""
BAD_BLANK = -10
"""The magic number of a BLANK with a size that does not lead to the end of the segment."""

NAME_SEPARATOR = 1
PROPERTY_SEPARATOR = 2
SPACE = 32
KEYS_NAME = int.from_bytes(b"KEYS", "big")
TAGS_NAME = int.from_bytes(b"TAGS", "big")
UNIQUE_KEY_NAME = int.from_bytes(b"UNIQ_KEY", "big")
CRC_NAME = int.from_bytes(b"__CRC32#", "big")
CACHE_LINE = 64
FETCHED_BYTES = 1024
CRC_PROPERTY = 20
"""Bytes of the property-CRC entry that closes a record: name 8, 0x01, ten digits, 0x02."""


@njit(cache=True, nogil=True)
def body_length_position(record: int) -> int:
    """Where the body length of a record lies, by the hosts that its sysFlag announces."""
    flags = load_i32(record + SYS_FLAG)
    position = BORN_HOST + IPV4_HOST + 8 + IPV4_HOST + AFTER_HOSTS_TO_BODY_LENGTH
    if flags & BORN_HOST_V6:
        position += IPV6_EXTRA
    if flags & STORE_HOST_V6:
        position += IPV6_EXTRA
    return position


@njit("int64(int64)", cache=True, nogil=True)
def store_timestamp(record: int) -> int:
    """When the broker stored a record, in ms."""
    position = BORN_HOST + IPV4_HOST
    if load_i32(record + SYS_FLAG) & BORN_HOST_V6:
        position += IPV6_EXTRA
    return load_i64(record + position)


@njit(cache=True, nogil=True)
def topic_position(record: int) -> int:
    """Where the bytes of the topic start; the record's shape must have been checked."""
    at = body_length_position(record)
    body_end = at + 4 + max(load_i32(record + at), 0)
    return body_end + (1 if load_i32(record + MAGIC) == MAGIC_V1 else 2)


@njit(cache=True, nogil=True)
def topic_length(record: int) -> int:
    """Bytes of the topic; the record's shape must have been checked."""
    at = topic_position(record)
    return load_i8(record + at - 1) if load_i32(record + MAGIC) == MAGIC_V1 else load_i16(record + at - 2)


@njit(cache=True, nogil=True)
def check_head(record: int, available: int) -> int:
    """Size that the first eight bytes of a record announce, or a ``BAD_`` code; reads nothing else."""
    if available < MINIMUM_SIZE:
        return BAD_SIZE
    magic = load_i32(record + MAGIC)
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        return BAD_MAGIC
    size = load_i32(record + TOTAL_SIZE)
    return BAD_SIZE if size < MINIMUM_SIZE or size > available else size


@njit("void(int64, int64)", cache=True, nogil=True)
def fetch_record(record: int, size: int) -> None:
    """Ask for the lines of a record at once: its parts are then read in an order that no processor foresees."""
    for position in range(CACHE_LINE, min(size, FETCHED_BYTES), CACHE_LINE):
        prefetch(record + position)


@njit("int64(int64, int64, int64)", cache=True, nogil=True)
def check_shape(record: int, available: int, physical_offset: int) -> int:
    """Size of the record at an address if its parts add up, else one of the ``BAD_`` codes; reads no body.

    As the broker sees it, a negative length of body or properties counts as 0 and one of the topic is an error.
    ``available`` bytes may be read; ``physical_offset`` is what the record must say of itself, or −1 for any.
    """
    size = check_head(record, available)
    if size < 0:
        return size
    magic = load_i32(record + MAGIC)
    if physical_offset >= 0 and load_i64(record + PHYSICAL_OFFSET) != physical_offset:
        return BAD_OFFSET
    position = body_length_position(record)
    if position + 4 > size:
        return BAD_LENGTHS
    position += 4 + max(load_i32(record + position), 0)
    if position + 2 > size:
        return BAD_LENGTHS
    if magic == MAGIC_V1:
        length = load_i8(record + position)
        position += 1
    else:
        length = load_i16(record + position)
        position += 2
    position += length
    if length < 0 or position + 2 > size:
        return BAD_LENGTHS
    if position + 2 + max(load_i16(record + position), 0) != size:
        return BAD_LENGTHS
    return size


@njit("boolean(int64, int64)", cache=True, nogil=True)
def closes_segment(record: int, left: int) -> bool:
    """Whether the eight bytes at an address are the BLANK that closes their segment.

    ``left`` bytes lie between the address and the place where the next segment starts, or will start. That is the size
    which a broker writes; a BLANK that says another one is damage, and records may follow it.
    """
    return bool(load_i32(record + MAGIC) == MAGIC_BLANK and load_i32(record + TOTAL_SIZE) == left)


@njit("int64(int64, int64, int64)", cache=True, nogil=True)
def check_blank(record: int, code: int, left: int) -> int:
    """What is at an address where :func:`check_shape` found no record, but a code: 0 for its segment's closing BLANK.

    ``left`` bytes lie between the address and the next segment. Else BAD_BLANK for another BLANK, or the code itself.
    At least eight bytes must be readable. Walks ask this of what is no record alone, so that records cost nothing more.
    """
    if load_i32(record + MAGIC) != MAGIC_BLANK:
        return code
    return 0 if closes_segment(record, left) else BAD_BLANK


@njit(cache=True, nogil=True)
def property_crc(record: int, size: int) -> int:
    """The checksum that the record's last property states, or −1 where it has none."""
    at = record + size - CRC_PROPERTY
    if load_i64(at) != CRC_NAME or load_i8(at + 8) != NAME_SEPARATOR or load_i8(at + 19) != PROPERTY_SEPARATOR:
        return -1
    value = 0
    for digit in range(18, 8, -1):
        byte = load_u8(at + digit)
        if byte < 48 or byte > 57:
            return -1
        value = value * 10 + byte - 48
    return value


@njit("int64(int64, int64)", cache=True, nogil=True)
def check_checksums(record: int, size: int) -> int:
    """``size`` if body CRC and property CRC, where there is one, hold; else the ``BAD_`` code. Shape is given."""
    at = body_length_position(record)
    length = load_i32(record + at)
    if length > 0 and (crc32(record + at + 4, length) & CRC_MASK) != load_i32(record + BODY_CRC):
        return BAD_BODY_CRC
    stated = property_crc(record, size)
    if stated >= 0 and (crc32(record, size - CRC_PROPERTY) & CRC_MASK) != stated:
        return BAD_PROPERTY_CRC
    return size


@njit(cache=True, nogil=True)
def find_property(start: int, length: int, name_length: int, name: int) -> int:
    """The value of a property by the broker's parsing rules: its position times 65536 plus its length, or −1.

    ``name`` is the name's 4 or 8 bytes as a big-endian number. Of several the last one counts; a segment whose first
    0x01 is missing, leads, or closes it is no property (§2.5; an empty value therefore is none).
    """
    found = -1
    segment = 0
    while segment < length:
        separator = -1
        position = segment
        while position < length:
            byte = load_i8(start + position)
            if byte == PROPERTY_SEPARATOR:
                break
            if byte == NAME_SEPARATOR and separator < 0:
                separator = position
            position += 1
        if separator - segment == name_length and position - separator > 1:
            written = load_i32(start + segment) & 0xFFFFFFFF if name_length == 4 else load_i64(start + segment)
            if written == name:
                found = ((separator + 1) << 16) | (position - separator - 1)
        segment = position + 1
    return found


@njit(cache=True, nogil=True)
def has_piece(keys: int, keys_length: int, key: int, key_length: int) -> bool:
    """Whether one of the space-separated pieces of KEYS is the key."""
    if key_length == 0:
        return False
    piece = 0
    while piece + key_length <= keys_length:
        end = piece
        while end < keys_length and load_i8(keys + end) != SPACE:
            end += 1
        if end - piece == key_length and equal_bytes(keys + piece, key, key_length):
            return True
        piece = end + 1
    return False
