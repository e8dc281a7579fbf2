"""Gather texts that lie here and there in memory into columns: one block of bytes, and where each text ends in it.

What is gathered is told by two arrays, addresses and lengths; a length of −1 is a text that is not there.
"""

import numpy as np
from numba import njit

from storage.kernels.java_string import HIGH_BITS
from storage.kernels.memory import (
    copy_bytes,
    count_trailing_zeros,
    load_i8,
    load_i32,
    load_native_i64,
    load_u8,
    store_u8,
)
from storage.kernels.record import SPACE

BLANKS = 0x2020202020202020
ONES = 0x0101010101010101

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


@njit(cache=True, nogil=True)
def find_blank(start: int, position: int, length: int) -> int:
    """First position of a blank in [position, length), or ``length``."""
    while position + 8 <= length:
        word = load_native_i64(start + position) ^ BLANKS
        # Subtracting borrows out of the bytes that are zero; the lowest mark is right, only later ones may lie.
        marks = (word - ONES) & ~word & HIGH_BITS
        if marks != 0:
            return position + (count_trailing_zeros(marks) >> 3)
        position += 8
    while position < length and load_i8(start + position) != SPACE:
        position += 1
    return position


@njit("int64(int64[::1], int64[::1], int64[::1], int64[::1], int64[::1])", cache=True, nogil=True)
def split_keys(
    addresses: np.ndarray, lengths: np.ndarray, counts: np.ndarray, starts: np.ndarray, sizes: np.ndarray
) -> int:
    """Split each text at blanks, forgetting empty pieces: how many pieces each has, where they lie; how many in all."""
    total = 0
    for row in range(addresses.shape[0]):
        address, length = addresses[row], lengths[row]
        before, piece = total, 0
        while piece < length:
            end = find_blank(address, piece, length)
            if end > piece:
                starts[total], sizes[total] = address + piece, end - piece
                total += 1
            piece = end + 1
        counts[row] = total - before
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
