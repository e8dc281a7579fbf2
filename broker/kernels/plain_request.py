"""Read the header of a plain VIEW_MESSAGE_BY_ID or QUERY_MESSAGE request where it lies, or say that it is not plain.

Plain is what Java's fastjson writes: compact JSON, members in any order, each at most once and of a known name, texts
without escapes and in well-formed UTF-8 without U+FFFD, integers in their shortest form, in quotes or not. On these,
this reader and the decoders of :mod:`protocol` agree by construction; about everything else it has no opinion, and the
ordinary way decides. So it may be narrow, and never has to say what is wrong.

Bytes are read by address; each function takes ``stop``, the address behind the last byte of the header, and reads none
at or behind it. A header comes from a peer: nothing in it is trusted.
"""

import numpy as np
from numba import njit

from protocol.codes import RequestCode
from storage.kernels.java_string import REPLACEMENT, decode_sequence
from storage.kernels.lookup import KIND_ANY, KIND_KEY, KIND_TAG, KIND_UNIQUE
from storage.kernels.memory import load_i64, load_u8

NOT_PLAIN = 0
"""Where a reader has stopped: at no address."""

VIEW = int(RequestCode.VIEW_MESSAGE_BY_ID)
QUERY = int(RequestCode.QUERY_MESSAGE)

# Places in the request, an int64 array; of a text, its address and its bytes.
SEEN = 0
CODE = 1
FLAG = 2
VERSION = 3
OPAQUE = 4
OPAQUE_AT = 5
OPAQUE_LENGTH = 6
OFFSET = 7
TOPIC_AT = 8
TOPIC_LENGTH = 9
KEY_AT = 10
KEY_LENGTH = 11
MAXIMUM = 12
BEGIN = 13
END = 14
KIND = 15
IS_UNIQUE = 16
LENGTH = 24

MEMBERS = (b"code", b"opaque", b"flag", b"version", b"language", b"extFields", b"serializeTypeCurrentRPC", b"remark")
IS_CODE, IS_OPAQUE, IS_FLAG, IS_VERSION, IS_LANGUAGE, IS_EXT_FIELDS, IS_SERIALIZE_TYPE, IS_REMARK = range(8)

EXT_FIELDS = (
    *(b"offset", b"topic", b"key", b"maxNum", b"beginTimestamp", b"endTimestamp", b"indexType", b"_UNIQUE_KEY_QUERY"),
    *(b"lastKey", b"lo", b"bname", b"ns", b"nsd", b"oway"),
)
IS_OFFSET, IS_TOPIC, IS_KEY, IS_MAXIMUM, IS_BEGIN, IS_END, IS_INDEX_TYPE, IS_UNIQUE_QUERY = range(8, 16)
IS_LAST_KEY = 16
"""The fields behind it say who asks of whom; a hit is the same whatever they say."""

NEEDED = 1 << IS_CODE | 1 << IS_OPAQUE | 1 << IS_FLAG | 1 << IS_EXT_FIELDS
NEEDED_VIEW = NEEDED | 1 << IS_OFFSET
NEEDED_QUERY = NEEDED | 1 << IS_TOPIC | 1 << IS_KEY | 1 << IS_MAXIMUM | 1 << IS_BEGIN | 1 << IS_END

LONGEST_NAME = 24
I32_MAXIMUM = 2**31 - 1
I64_MAXIMUM = 2**63 - 1

QUOTE, COLON, COMMA, BACKSLASH, MINUS = ord('"'), ord(":"), ord(","), ord("\\"), ord("-")
OPENING, CLOSING, ZERO, NINE = ord("{"), ord("}"), ord("0"), ord("9")
TRUE, FALSE, NULL = (int.from_bytes(word, "big") for word in (b'true"', b'false"', b"null"))


def _name_rows() -> np.ndarray:
    """One row for each known name: length, its first eight bytes or all, its last eight, its bytes 8 to 16; int64."""
    rows = [
        (len(name), *(int.from_bytes(part, "big") for part in (name[:8], name[-8:], name[8:16])))
        for name in MEMBERS + EXT_FIELDS
    ]
    return np.array(rows, dtype=np.int64)


NAMES = _name_rows()
FIRST_EXT_FIELD = len(MEMBERS)
NAME_COUNT = len(MEMBERS) + len(EXT_FIELDS)


@njit(cache=True, nogil=True)
def peek(at: int, stop: int) -> int:
    """The byte at an address, or −1 at the end."""
    return load_u8(at) if at < stop else -1


@njit(cache=True, nogil=True)
def leading(at: int, stop: int, count: int) -> int:
    """The first ``count`` (1 to 8) bytes as a big-endian number, or −1 when no eight bytes are left to read at once."""
    if at + 8 > stop:
        return -1
    return load_i64(at) >> (8 * (8 - count))


@njit(cache=True, nogil=True)
def text_end(at: int, stop: int) -> int:
    """Address of the quote that closes a plain text whose first byte is at ``at``, or NOT_PLAIN."""
    while at < stop:
        byte = load_u8(at)
        if byte == QUOTE:
            return at
        if byte < 32 or byte == BACKSLASH:
            return NOT_PLAIN
        if byte < 128:
            at += 1
            continue
        decoded = decode_sequence(at, stop - at, byte)
        if decoded >> 3 == REPLACEMENT:
            return NOT_PLAIN
        at += decoded & 7
    return NOT_PLAIN


@njit(cache=True, nogil=True)
def find_name(at: int, length: int, first: int, behind: int) -> int:
    """Which of the known names ``first`` to ``behind - 1`` stands at an address, or −1; reads eight bytes there."""
    if length < 1 or length > LONGEST_NAME:
        return -1
    head = load_i64(at) >> (8 * max(8 - length, 0))
    for name in range(first, behind):
        if NAMES[name, 0] != length or NAMES[name, 1] != head:
            continue
        if length <= 8 or (
            load_i64(at + length - 8) == NAMES[name, 2] and (length <= 16 or load_i64(at + 8) == NAMES[name, 3])
        ):
            return name
    return -1


@njit(cache=True, nogil=True)
def read_integer(at: int, stop: int, request: np.ndarray, place: int) -> int:
    """Read a 64-bit integer in its shortest form, in quotes or not; address behind it, or NOT_PLAIN."""
    is_quoted = peek(at, stop) == QUOTE
    if is_quoted:
        at += 1
    is_negative = peek(at, stop) == MINUS
    if is_negative:
        at += 1
    start = at
    value = 0
    byte = peek(at, stop)
    while ZERO <= byte <= NINE:
        digit = byte - ZERO
        if value > I64_MAXIMUM // 10 or (value == I64_MAXIMUM // 10 and digit > 7):
            return NOT_PLAIN
        value = value * 10 + digit
        at += 1
        byte = peek(at, stop)
    if at == start or (load_u8(start) == ZERO and (is_negative or at - start > 1)):
        return NOT_PLAIN
    request[place] = -value if is_negative else value
    if not is_quoted:
        return at
    return at + 1 if byte == QUOTE else NOT_PLAIN


@njit(cache=True, nogil=True)
def read_i32(at: int, stop: int, request: np.ndarray, place: int) -> int:
    """The same for a 32-bit integer."""
    at = read_integer(at, stop, request, place)
    return at if -I32_MAXIMUM - 1 <= request[place] <= I32_MAXIMUM else NOT_PLAIN


@njit(cache=True, nogil=True)
def read_text(at: int, stop: int, request: np.ndarray, place: int) -> int:
    """Read a text in quotes: its address and length go to ``place`` and behind; address behind it, or NOT_PLAIN."""
    if peek(at, stop) != QUOTE:
        return NOT_PLAIN
    end = text_end(at + 1, stop)
    if end == NOT_PLAIN:
        return NOT_PLAIN
    request[place], request[place + 1] = at + 1, end - at - 1
    return end + 1


@njit(cache=True, nogil=True)
def skip_text(at: int, stop: int) -> int:
    """Address behind a text in quotes, or NOT_PLAIN."""
    if peek(at, stop) != QUOTE:
        return NOT_PLAIN
    end = text_end(at + 1, stop)
    return end + 1 if end != NOT_PLAIN else NOT_PLAIN


@njit(cache=True, nogil=True)
def read_boolean(at: int, stop: int, request: np.ndarray) -> int:
    """Read ``"true"`` or ``"false"`` as what IS_UNIQUE says; address behind it, or NOT_PLAIN."""
    if peek(at, stop) != QUOTE:
        return NOT_PLAIN
    if leading(at + 1, stop, 5) == TRUE:
        request[IS_UNIQUE] = 1
        return at + 6
    return at + 7 if leading(at + 1, stop, 6) == FALSE else NOT_PLAIN


@njit(cache=True, nogil=True)
def read_index_type(at: int, stop: int, request: np.ndarray) -> int:
    """Read the kind of key: K, U or T, any other text means any; address behind it, or NOT_PLAIN."""
    end = skip_text(at, stop)
    if end == NOT_PLAIN:
        return NOT_PLAIN
    request[KIND] = KIND_ANY
    if end - at == 3:
        letter = load_u8(at + 1)
        if letter == 75:
            request[KIND] = KIND_KEY
        elif letter == 85:
            request[KIND] = KIND_UNIQUE
        elif letter == 84:
            request[KIND] = KIND_TAG
    return end


@njit(cache=True, nogil=True)
def read_ext_field(name: int, at: int, stop: int, request: np.ndarray) -> int:
    """Read the value of a request's own field; address behind it, or NOT_PLAIN."""
    if name == IS_TOPIC:
        return read_text(at, stop, request, TOPIC_AT)
    if name == IS_KEY:
        return read_text(at, stop, request, KEY_AT)
    if name == IS_OFFSET:
        return read_integer(at, stop, request, OFFSET)
    if name == IS_MAXIMUM:
        return read_i32(at, stop, request, MAXIMUM)
    if name == IS_BEGIN:
        return read_integer(at, stop, request, BEGIN)
    if name == IS_END:
        return read_integer(at, stop, request, END)
    if name == IS_INDEX_TYPE:
        return read_index_type(at, stop, request)
    if name == IS_UNIQUE_QUERY:
        return read_boolean(at, stop, request)
    if name == IS_LAST_KEY and not (peek(at, stop) == QUOTE and peek(at + 1, stop) == QUOTE):
        return NOT_PLAIN
    return skip_text(at, stop)


@njit(cache=True, nogil=True)
def read_name(at: int, stop: int, first: int, behind: int, request: np.ndarray) -> int:
    """Which known name stands in quotes at ``at``, before a colon and for the first time; −1 if none."""
    if peek(at, stop) != QUOTE or at + 9 > stop:
        return -1
    end = at + 1
    while end < stop and load_u8(end) != QUOTE:
        end += 1
    if peek(end + 1, stop) != COLON:
        return -1
    name = find_name(at + 1, end - at - 1, first, behind)
    if name < 0 or request[SEEN] >> name & 1:
        return -1
    request[SEEN] |= 1 << name
    return name


@njit(cache=True, nogil=True)
def read_ext_fields(at: int, stop: int, request: np.ndarray) -> int:
    """Read the object of a request's own fields; address behind it, or NOT_PLAIN."""
    if peek(at, stop) != OPENING:
        return NOT_PLAIN
    separator = COMMA
    while separator == COMMA:
        at += 1
        name = read_name(at, stop, FIRST_EXT_FIELD, NAME_COUNT, request)
        if name < 0:
            return NOT_PLAIN
        at = read_ext_field(name, at + NAMES[name, 0] + 3, stop, request)
        if at == NOT_PLAIN:
            return NOT_PLAIN
        separator = peek(at, stop)
    return at + 1 if separator == CLOSING else NOT_PLAIN


@njit(cache=True, nogil=True)
def read_member(name: int, at: int, stop: int, request: np.ndarray) -> int:
    """Read the value of one of the header's own members; address behind it, or NOT_PLAIN."""
    if name == IS_EXT_FIELDS:
        return read_ext_fields(at, stop, request)
    if name == IS_OPAQUE:
        end = read_i32(at, stop, request, OPAQUE)
        request[OPAQUE_AT], request[OPAQUE_LENGTH] = at, end - at
    elif name == IS_CODE:
        end = read_i32(at, stop, request, CODE)
    elif name == IS_FLAG:
        end = read_i32(at, stop, request, FLAG)
    elif name == IS_VERSION:
        end = read_i32(at, stop, request, VERSION)
    elif name == IS_REMARK and leading(at, stop, 4) == NULL:
        return at + 4
    else:
        return skip_text(at, stop)
    return NOT_PLAIN if peek(at, stop) == QUOTE else end


@njit(cache=True, nogil=True)
def read_request(at: int, stop: int, request: np.ndarray) -> bool:
    """Read a header, ``at`` to ``stop``, into a request; whether it is plain, and complete for its code."""
    request[SEEN] = 0
    request[KIND] = KIND_ANY
    request[IS_UNIQUE] = 0
    if peek(at, stop) != OPENING:
        return False
    separator = COMMA
    while separator == COMMA:
        at += 1
        name = read_name(at, stop, 0, FIRST_EXT_FIELD, request)
        if name < 0:
            return False
        at = read_member(name, at + NAMES[name, 0] + 3, stop, request)
        if at == NOT_PLAIN:
            return False
        separator = peek(at, stop)
    if separator != CLOSING or at + 1 != stop:
        return False
    needed = NEEDED_QUERY if request[CODE] == QUERY else NEEDED_VIEW
    if request[SEEN] & needed != needed or request[FLAG] != 0:
        return False
    if request[IS_UNIQUE]:
        request[KIND] = KIND_UNIQUE
    return bool(request[CODE] == QUERY or request[CODE] == VIEW)
