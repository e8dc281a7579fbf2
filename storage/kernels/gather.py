"""Gather texts that lie here and there in memory into columns: one block of bytes, and where each text ends in it.

What is gathered is told by two arrays, addresses and lengths; a length of −1 is a text that is not there.
"""

import numpy as np
from numba import njit

from storage.kernels.java_string import HIGH_BITS
from storage.kernels.memory import (
    copy_bytes,
    equal_bytes,
    load_i8,
    load_i32,
    load_native_i64,
    load_u8,
    store_u8,
)
from storage.kernels.properties import find_end, find_separator
from storage.kernels.record import NAME_SEPARATOR, SPACE

MOST_PAIRS = 64
"""Properties of one message that are told apart here; each name is compared with all before it."""

TOO_MANY = -1

HOST_ROOM = 32
"""Bytes for the text of an IPv4 address and a port."""

POINT, COLON, MINUS, ZERO_DIGIT = ord("."), ord(":"), ord("-"), ord("0")


@njit("void(int64[::1], int64[::1], int32[::1], int64)", cache=True, nogil=True)
def copy_texts(addresses: np.ndarray, lengths: np.ndarray, offsets: np.ndarray, data: int) -> None:
    """Copy each text to its offset from the address ``data``."""
    for row in range(addresses.shape[0]):
        if lengths[row] > 0:
            copy_bytes(data + int(offsets[row]), addresses[row], lengths[row])


@njit("int64(int64[::1], int64[::1], int64[::1])", cache=True, nogil=True)
def find_non_ascii(addresses: np.ndarray, lengths: np.ndarray, found: np.ndarray) -> int:
    """Note which texts have a byte of 0x80 or above; how many have."""
    count = 0
    for row in range(addresses.shape[0]):
        address, length, position = addresses[row], lengths[row], 0
        bits = 0
        while position + 8 <= length:
            bits |= load_native_i64(address + position)
            position += 8
        while position < length:
            bits |= load_u8(address + position)
            position += 1
        if bits & HIGH_BITS:
            found[count] = row
            count += 1
    return count


@njit("int64(int64[::1], int64[::1], int64[::1], int64[::1], int64[::1])", cache=True, nogil=True)
def split_keys(
    addresses: np.ndarray, lengths: np.ndarray, counts: np.ndarray, starts: np.ndarray, sizes: np.ndarray
) -> int:
    """Split each text at blanks, forgetting empty pieces: how many pieces each has, where they lie; how many in all."""
    total = 0
    for row in range(addresses.shape[0]):
        before, piece = total, 0
        for position in range(lengths[row] + 1):
            if position == lengths[row] or load_i8(addresses[row] + position) == SPACE:
                if position > piece:
                    starts[total], sizes[total] = addresses[row] + piece, position - piece
                    total += 1
                piece = position + 1
        counts[row] = total - before
    return total


@njit(cache=True, nogil=True)
def put_pair(name: int, end: int, value: int, length: int, first: int, total: int, pairs: np.ndarray) -> int:
    """Note one property; of several of one name the last one's value counts, in the place of the first."""
    for known in range(first, total):
        if pairs[1, known] == end and equal_bytes(pairs[0, known], name, end):
            pairs[2, known], pairs[3, known] = value, length
            return total
    pairs[0, total], pairs[1, total], pairs[2, total], pairs[3, total] = name, end, value, length
    return total + 1


@njit(cache=True, nogil=True)
def split_block(start: int, length: int, first: int, pairs: np.ndarray) -> int:
    """Note the properties of one block by the broker's rules; how many there are then, or TOO_MANY."""
    total, segment = first, 0
    while segment < length:
        separator = find_separator(start, segment, length)
        if separator < length and load_i8(start + separator) == NAME_SEPARATOR:
            end = find_end(start, separator + 1, length)
            if end - separator > 1 and separator > segment:
                if total - first == MOST_PAIRS:
                    return TOO_MANY
                value = start + separator + 1
                total = put_pair(start + segment, separator - segment, value, end - separator - 1, first, total, pairs)
            segment = end + 1
        else:
            segment = separator + 1
    return total


@njit("int64(int64[::1], int64[::1], int64[::1], int64[:, ::1])", cache=True, nogil=True)
def split_properties(addresses: np.ndarray, lengths: np.ndarray, counts: np.ndarray, pairs: np.ndarray) -> int:
    """Split property blocks into names and values: how many each has (or TOO_MANY, and none), and how many in all.

    ``pairs`` gets address and length of name and value in its four rows. Records lie around the blocks.
    """
    total = 0
    for row in range(addresses.shape[0]):
        ended = split_block(addresses[row], lengths[row], total, pairs)
        counts[row] = TOO_MANY if ended == TOO_MANY else ended - total
        total = max(total, ended)
    return total


@njit(cache=True, nogil=True)
def put_number(at: int, number: int) -> int:
    """Write a number of 32 bits in decimal; the address behind it."""
    if number < 0:
        store_u8(at, MINUS)
        at += 1
        number = -number
    power = 1
    while power * 10 <= number:
        power *= 10
    while power > 0:
        store_u8(at, ZERO_DIGIT + number // power % 10)
        power //= 10
        at += 1
    return at


@njit("void(int64[::1], int64, int64[::1])", cache=True, nogil=True)
def write_hosts(addresses: np.ndarray, texts: int, lengths: np.ndarray) -> None:
    """Write IPv4 addresses and ports as texts, HOST_ROOM bytes for each from the address ``texts`` on."""
    for row in range(addresses.shape[0]):
        start = at = texts + HOST_ROOM * row
        for byte in range(4):
            at = put_number(at, load_u8(addresses[row] + byte))
            store_u8(at, COLON if byte == 3 else POINT)
            at += 1
        lengths[row] = put_number(at, load_i32(addresses[row] + 4)) - start
