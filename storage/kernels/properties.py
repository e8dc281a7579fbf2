"""The property block of a record, gone over once for the properties that searches and rows need (store-format §2.5).

Names and values are told apart by bytes 0x01 and 0x02, which are looked for in eight bytes at a time.
"""

from numba import njit

from storage.kernels.java_string import HIGH_BITS
from storage.kernels.memory import (
    count_trailing_zeros,
    load_i8,
    load_i16,
    load_i32,
    load_i64,
    load_native_i64,
    load_u8,
    store_native_i64,
)
from storage.kernels.record import KEYS_NAME, NAME_SEPARATOR, PROPERTY_SEPARATOR, TAGS_NAME, UNIQUE_KEY_NAME

KEYS = 0
TAGS = 1
UNIQUE_KEY = 2
DELAY = 3
INNER_NUM = 4
INNER_BASE = 5
MULTI_DISPATCH = 6
MULTI_QUEUE_OFFSET = 7
PROPERTIES = 8
"""How many there are: numbers in the table that :func:`find_properties` fills."""

SHORT = 16
INT = 32
LONG = 64
"""Bits of numbers that are parsed."""

THREES = 0x0303030303030303


def _number(text: bytes) -> int:
    return int.from_bytes(text, "big")


_DELA = _number(b"DELA")
_INNER_NU = _number(b"INNER_NU")
_INNER_BA = _number(b"INNER_BA")
_INNER_MU = _number(b"INNER_MU")
_LTI_DISP = _number(b"LTI_DISP")
_LTI_QUEU = _number(b"LTI_QUEU")
_E_OFFSET = _number(b"E_OFFSET")
_ATCH = _number(b"ATCH")
_SE = _number(b"SE")


@njit(cache=True, nogil=True, inline="always")
def get(table: int, index: int) -> int:
    """A number of a table of native i64."""
    return load_native_i64(table + 8 * index)


@njit(cache=True, nogil=True, inline="always")
def put(table: int, index: int, value: int) -> None:
    """Set a number of a table."""
    store_native_i64(table + 8 * index, value)


@njit(cache=True, nogil=True)
def find_below_three(start: int, position: int, length: int) -> int:
    """First position of a byte 0x00, 0x01 or 0x02 in [position, length), or ``length``.

    Eight bytes before ``start + length`` must be readable, whatever the length.
    """
    while position + 8 <= length:
        word = load_native_i64(start + position)
        # Subtracting borrows out of the bytes that are below three; the lowest mark is right, only later ones may lie.
        marks = (word - THREES) & ~word & HIGH_BITS
        if marks != 0:
            return position + (count_trailing_zeros(marks) >> 3)
        position += 8
    if position < length:
        word = load_native_i64(start + length - 8) >> ((position + 8 - length) << 3)
        marks = (word - THREES) & ~word & HIGH_BITS
        if marks != 0:
            return min(position + (count_trailing_zeros(marks) >> 3), length)
    return length


@njit(cache=True, nogil=True)
def find_separator(start: int, position: int, length: int) -> int:
    """First position of 0x01 or 0x02 in [position, length), or ``length``."""
    position = find_below_three(start, position, length)
    while position < length and load_i8(start + position) == 0:
        position = find_below_three(start, position + 1, length)
    return position


@njit(cache=True, nogil=True)
def find_end(start: int, position: int, length: int) -> int:
    """First position of 0x02 in [position, length), or ``length``."""
    position = find_below_three(start, position, length)
    while position < length and load_i8(start + position) != PROPERTY_SEPARATOR:
        position = find_below_three(start, position + 1, length)
    return position


@njit(cache=True, nogil=True)
def name_number(name: int, length: int) -> int:
    """Which of the properties a name is, or −1."""
    if length == 4:
        word = load_i32(name)
        return KEYS if word == KEYS_NAME else TAGS if word == TAGS_NAME else -1
    if length == 5:
        return DELAY if load_i32(name) == _DELA and load_i8(name + 4) == ord("Y") else -1
    if length < 8:
        return -1
    word = load_i64(name)
    if length == 8:
        return UNIQUE_KEY if word == UNIQUE_KEY_NAME else -1
    if length == 9:
        return INNER_NUM if word == _INNER_NU and load_i8(name + 8) == ord("M") else -1
    if length == 10:
        return INNER_BASE if word == _INNER_BA and load_i16(name + 8) == _SE else -1
    if length == 20 and word == _INNER_MU:
        return MULTI_DISPATCH if load_i64(name + 8) == _LTI_DISP and load_i32(name + 16) == _ATCH else -1
    if length == 24 and word == _INNER_MU:
        is_offset = load_i64(name + 8) == _LTI_QUEU and load_i64(name + 16) == _E_OFFSET
        return MULTI_QUEUE_OFFSET if is_offset else -1
    return -1


@njit(cache=True, nogil=True)
def find_properties(start: int, length: int, found: int) -> None:
    """Where the values of a block lie: position times 65536 plus length in table ``found``, −1 for each that is absent.

    By the broker's parsing rules: of several of one name the last counts; a segment whose first 0x01 is missing, leads
    or closes it is no property, so that an empty value is none. A record lies around the block.
    """
    for i in range(PROPERTIES):
        put(found, i, -1)
    segment = 0
    while segment < length:
        separator = find_separator(start, segment, length)
        if separator < length and load_i8(start + separator) == NAME_SEPARATOR:
            end = find_end(start, separator + 1, length)
            if end - separator > 1:
                name = name_number(start + segment, separator - segment)
                if name >= 0:
                    put(found, name, ((separator + 1) << 16) | (end - separator - 1))
            segment = end + 1
        else:
            segment = separator + 1


@njit(cache=True, nogil=True)
def parse_integer(address: int, length: int, bits: int, parsed: int) -> bool:
    """Whether Java parses some text as a number of so many bits, which is put at the address ``parsed``.

    An optional sign and decimal digits. Java would take the digits of other scripts, too, which nobody sends.
    """
    first = load_u8(address) if length > 0 else 0
    position = 1 if first == ord("-") or first == ord("+") else 0
    if position >= length:
        return False
    half = 1 << (bits - 2)  # of the largest magnitude, which itself is no i64
    largest, last_digit = half // 5, half % 5 * 2
    number = 0  # counted downwards, as the smallest number has no counterpart above zero
    while position < length:
        digit = load_u8(address + position) - 48
        if digit < 0 or digit > 9 or -number > largest or (-number == largest and digit > last_digit):
            return False
        number = number * 10 - digit
        position += 1
    if first != ord("-"):
        if number == -2 * half:
            return False
        number = -number
    put(parsed, 0, number)
    return True
