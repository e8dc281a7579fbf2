"""Read the pieces of compact JSON where they lie, or say that they are not plain.

Plain is what Java's fastjson writes: texts without escapes and in well-formed UTF-8 without U+FFFD, integers in their
shortest form, in quotes or not. On these, these readers and the decoders of :mod:`protocol` agree by construction;
about everything else they have no opinion.

Bytes are read by address; each function takes ``stop``, the address behind the last byte that there is, and reads none
at or behind it. A header comes from a peer: nothing in it is trusted.
"""

import numpy as np
from numba import njit

from storage.kernels.java_string import REPLACEMENT, decode_sequence
from storage.kernels.memory import count_trailing_zeros, load_i64, load_native_i64, load_u8

NOT_PLAIN = 0
"""Where a reader has stopped: at no address."""

I32_MAXIMUM = 2**31 - 1
I64_MAXIMUM = 2**63 - 1

QUOTE, COLON, COMMA, BACKSLASH, MINUS = ord('"'), ord(":"), ord(","), ord("\\"), ord("-")
OPENING, CLOSING, ZERO, NINE = ord("{"), ord("}"), ord("0"), ord("9")
SPACE = ord(" ")

EACH_BYTE = 0x0101010101010101


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
def special_bytes(word: int) -> int:
    """1 in each of eight bytes that ends a run of plain ASCII, 0 in the others: right up to the first such byte.

    A quote, a backslash, a control or what is not ASCII. A byte less than ``n`` sets its top bit when ``n`` is taken
    away, and its borrow may set others, but only behind it.
    """
    quotes = word ^ (QUOTE * EACH_BYTE)
    backslashes = word ^ (BACKSLASH * EACH_BYTE)
    are_quotes = (quotes - EACH_BYTE) & ~quotes
    are_backslashes = (backslashes - EACH_BYTE) & ~backslashes
    are_controls = (word - SPACE * EACH_BYTE) & ~word
    return ((are_quotes | are_backslashes | are_controls | word) >> 7) & EACH_BYTE


@njit(cache=True, nogil=True)
def plain_end(at: int, stop: int) -> int:
    """Address of the first byte from ``at`` on that is a quote, a backslash, a control or not ASCII, or ``stop``."""
    while at + 8 <= stop:
        special = special_bytes(load_native_i64(at))
        if special:
            return at + (count_trailing_zeros(special) >> 3)
        at += 8
    while at < stop:
        byte = load_u8(at)
        if byte in (QUOTE, BACKSLASH) or not SPACE <= byte < 128:
            return at
        at += 1
    return stop


@njit(cache=True, nogil=True)
def text_end(at: int, stop: int) -> int:
    """Address of the quote that closes a plain text whose first byte is at ``at``, or NOT_PLAIN."""
    at = plain_end(at, stop)
    while at < stop:
        byte = load_u8(at)
        if byte == QUOTE:
            return at
        if byte < SPACE or byte == BACKSLASH:
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
