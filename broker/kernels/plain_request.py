"""Read the header of a plain request where it lies, or say that it is not plain: of a view, a key query, a pull.

Plain is what Java's fastjson writes: compact JSON, members in any order, each at most once and of a known name, with
plain values (:mod:`broker.kernels.plain_json`). On these, this reader and the decoders of :mod:`protocol` agree by
construction; about everything else it has no opinion, and the ordinary way decides. So it may be narrow, and never has
to say what is wrong.
"""

import numpy as np
from numba import njit

from broker.kernels.plain_json import (
    CLOSING,
    COLON,
    COMMA,
    NOT_PLAIN,
    OPENING,
    QUOTE,
    leading,
    peek,
    plain_end,
    read_i32,
    read_integer,
    read_text,
    skip_text,
)
from protocol.codes import RequestCode
from storage.kernels.lookup import KIND_ANY, KIND_KEY, KIND_TAG, KIND_UNIQUE
from storage.kernels.memory import load_i64, load_u8

VIEW = int(RequestCode.VIEW_MESSAGE_BY_ID)
QUERY = int(RequestCode.QUERY_MESSAGE)
PULL = int(RequestCode.PULL_MESSAGE)
LITE_PULL = int(RequestCode.LITE_PULL_MESSAGE)

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
GROUP_AT = 17
GROUP_LENGTH = 18
SUBSCRIPTION_AT = 19
SUBSCRIPTION_LENGTH = 20
TYPE_AT = 21
TYPE_LENGTH = 22
"""The lengths of topic, subscription and type are ABSENT where they are."""
QUEUE_ID = 23
QUEUE_OFFSET = 24
MAX_MESSAGES = 25
MAX_BYTES = 26
"""ABSENT where it is; no i32 is."""
SYS_FLAG = 27
COMMIT_OFFSET = 28
SUB_VERSION = 29
IGNORED = 30
LENGTH = 32

ABSENT = -(2**62)

# What stands behind a name.
AN_I32, AN_I64, A_TEXT, SOME_TEXT, A_KIND, A_BOOLEAN, EMPTY_TEXT, FIELDS, NULL_OR_TEXT, THE_OPAQUE = range(10)

MEMBERS = (
    (b"code", AN_I32, CODE),
    (b"flag", AN_I32, FLAG),
    (b"opaque", THE_OPAQUE, OPAQUE),
    (b"remark", NULL_OR_TEXT, 0),
    (b"version", AN_I32, VERSION),
    (b"language", SOME_TEXT, 0),
    (b"extFields", FIELDS, 0),
    (b"serializeTypeCurrentRPC", SOME_TEXT, 0),
)
"""Name, what stands behind it and its place, by ascending length of the names."""

EXT_FIELDS = (
    (b"lo", SOME_TEXT, 0),
    (b"ns", SOME_TEXT, 0),
    (b"key", A_TEXT, KEY_AT),
    (b"nsd", SOME_TEXT, 0),
    (b"oway", SOME_TEXT, 0),
    (b"topic", A_TEXT, TOPIC_AT),
    (b"bname", SOME_TEXT, 0),
    (b"offset", AN_I64, OFFSET),
    (b"maxNum", AN_I32, MAXIMUM),
    (b"lastKey", EMPTY_TEXT, 0),
    (b"queueId", AN_I32, QUEUE_ID),
    (b"sysFlag", AN_I32, SYS_FLAG),
    (b"indexType", A_KIND, KIND),
    (b"liteTopic", SOME_TEXT, 0),
    (b"maxMsgNums", AN_I32, MAX_MESSAGES),
    (b"subVersion", AN_I64, SUB_VERSION),
    (b"maxMsgBytes", AN_I32, MAX_BYTES),
    (b"queueOffset", AN_I64, QUEUE_OFFSET),
    (b"commitOffset", AN_I64, COMMIT_OFFSET),
    (b"endTimestamp", AN_I64, END),
    (b"subscription", A_TEXT, SUBSCRIPTION_AT),
    (b"consumerGroup", A_TEXT, GROUP_AT),
    (b"requestSource", AN_I32, IGNORED),
    (b"beginTimestamp", AN_I64, BEGIN),
    (b"expressionType", A_TEXT, TYPE_AT),
    (b"_UNIQUE_KEY_QUERY", A_BOOLEAN, IS_UNIQUE),
    (b"proxyFrowardClientId", SOME_TEXT, 0),
    (b"suspendTimeoutMillis", AN_I64, IGNORED),
)
"""The same. An answer that the lane writes is the same whatever stands in what is only skipped or ignored."""

LONGEST_NAME = 24
TRUE, FALSE, NULL = (int.from_bytes(word, "big") for word in (b'true"', b'false"', b"null"))

OF_HEADER, OF_REQUEST = 0, 1
"""Groups of names: the header's own members, and the request's fields."""


def _name_rows() -> np.ndarray:
    """A row a name: its first eight bytes or all, last eight, bytes 8 to 16, length, what follows, place; int64."""
    rows = [
        (*(int.from_bytes(part, "big") for part in (name[:8], name[-8:], name[8:16])), len(name), what, place)
        for name, what, place in MEMBERS + EXT_FIELDS
    ]
    return np.array(rows, dtype=np.int64)


def _first_by_length() -> np.ndarray:
    """For members and for fields: the first row whose name is at least so long."""
    lengths = [[len(name) for name, _, _ in names] for names in (MEMBERS, EXT_FIELDS)]
    starts = [
        [start + sum(length < wanted for length in some) for wanted in range(LONGEST_NAME + 2)]
        for start, some in zip((0, len(MEMBERS)), lengths, strict=True)
    ]
    return np.array(starts, dtype=np.int64)


def _bits(*names: bytes) -> int:
    """The bits of SEEN for the header's own members that every request has, and for these fields."""
    known = [name for name, _, _ in MEMBERS + EXT_FIELDS]
    return sum(1 << known.index(name) for name in (b"code", b"opaque", b"flag", b"extFields", *names))


NAMES = _name_rows()
FIRST_BY_LENGTH = _first_by_length()
NAME_LENGTH, WHAT, PLACE = 3, 4, 5
NEEDED_VIEW = _bits(b"offset")
NEEDED_QUERY = _bits(b"topic", b"key", b"maxNum", b"beginTimestamp", b"endTimestamp")
NEEDED_PULL = _bits(
    *(b"consumerGroup", b"topic", b"queueId", b"queueOffset", b"maxMsgNums", b"sysFlag", b"commitOffset"),
    *(b"suspendTimeoutMillis", b"subVersion"),
)


@njit(cache=True, nogil=True)
def find_name(at: int, length: int, group: int) -> int:
    """Row of the known name that stands at an address, a member's or a field's, or −1; reads eight bytes there."""
    if length < 1 or length > LONGEST_NAME:
        return -1
    head = load_i64(at) >> (8 * max(8 - length, 0))
    for name in range(FIRST_BY_LENGTH[group, length], FIRST_BY_LENGTH[group, length + 1]):
        if NAMES[name, 0] == head and (
            length <= 8
            or (load_i64(at + length - 8) == NAMES[name, 1] and (length <= 16 or load_i64(at + 8) == NAMES[name, 2]))
        ):
            return name
    return -1


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
def read_value(name: int, at: int, stop: int, request: np.ndarray) -> int:
    """Read what stands behind the name of a row; address behind it, or NOT_PLAIN."""
    what, place = NAMES[name, WHAT], NAMES[name, PLACE]
    if what == A_TEXT:
        return read_text(at, stop, request, place)
    if what == AN_I32:
        return read_i32(at, stop, request, place)
    if what == AN_I64:
        return read_integer(at, stop, request, place)
    if what == A_KIND:
        return read_index_type(at, stop, request)
    if what == A_BOOLEAN:
        return read_boolean(at, stop, request)
    if what == EMPTY_TEXT and not (peek(at, stop) == QUOTE and peek(at + 1, stop) == QUOTE):
        return NOT_PLAIN
    return skip_text(at, stop)


@njit(cache=True, nogil=True)
def read_name(at: int, stop: int, group: int, request: np.ndarray) -> int:
    """The row of the known name in quotes at ``at``, before a colon and for the first time; −1 if none."""
    if peek(at, stop) != QUOTE or at + 9 > stop:
        return -1
    end = plain_end(at + 1, stop)
    if peek(end, stop) != QUOTE or peek(end + 1, stop) != COLON:
        return -1
    name = find_name(at + 1, end - at - 1, group)
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
        name = read_name(at, stop, OF_REQUEST, request)
        if name < 0:
            return NOT_PLAIN
        at = read_value(name, at + NAMES[name, NAME_LENGTH] + 3, stop, request)
        if at == NOT_PLAIN:
            return NOT_PLAIN
        separator = peek(at, stop)
    return at + 1 if separator == CLOSING else NOT_PLAIN


@njit(cache=True, nogil=True)
def read_member(name: int, at: int, stop: int, request: np.ndarray) -> int:
    """Read the value of one of the header's own members; address behind it, or NOT_PLAIN."""
    what = NAMES[name, WHAT]
    if what == FIELDS:
        return read_ext_fields(at, stop, request)
    if what == NULL_OR_TEXT and leading(at, stop, 4) == NULL:
        return at + 4
    if what != AN_I32 and what != THE_OPAQUE:
        return skip_text(at, stop)
    end = read_i32(at, stop, request, NAMES[name, PLACE])
    if what == THE_OPAQUE:
        request[OPAQUE_AT], request[OPAQUE_LENGTH] = at, end - at
    return NOT_PLAIN if peek(at, stop) == QUOTE else end


@njit(cache=True, nogil=True)
def is_complete(request: np.ndarray) -> bool:
    """Whether a request is one that the lane knows, says all that it has to, and wants an answer."""
    code = request[CODE]
    if code == VIEW:
        needed = NEEDED_VIEW
    elif code == QUERY:
        needed = NEEDED_QUERY
    elif code in (PULL, LITE_PULL):
        needed = NEEDED_PULL
    else:
        return False
    return bool(request[SEEN] & needed == needed and request[FLAG] == 0)


@njit(cache=True, nogil=True)
def read_request(at: int, stop: int, request: np.ndarray) -> bool:
    """Read a header, ``at`` to ``stop``, into a request; whether it is plain, and complete for its code."""
    request[SEEN] = 0
    request[KIND] = KIND_ANY
    request[IS_UNIQUE] = 0
    request[TOPIC_LENGTH] = request[SUBSCRIPTION_LENGTH] = request[TYPE_LENGTH] = request[MAX_BYTES] = ABSENT
    if peek(at, stop) != OPENING:
        return False
    separator = COMMA
    while separator == COMMA:
        at += 1
        name = read_name(at, stop, OF_HEADER, request)
        if name < 0:
            return False
        at = read_member(name, at + NAMES[name, NAME_LENGTH] + 3, stop, request)
        if at == NOT_PLAIN:
            return False
        separator = peek(at, stop)
    if separator != CLOSING or at + 1 != stop:
        return False
    if request[IS_UNIQUE]:
        request[KIND] = KIND_UNIQUE
    return is_complete(request)
