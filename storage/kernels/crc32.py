"""CRC-32 (IEEE, the one of zlib) over an address, for kernels that check records in place.

By tables it takes 16 bytes a step; where the processor multiplies without carries, all are folded into 16 before
(:mod:`storage.kernels.carryless`), at four times the speed and more.
"""

import numpy as np
from numba import njit

from storage.kernels.carryless import SHORTEST, compiles_for, fold_bytes
from storage.kernels.memory import load_native_i64, load_u8

POLYNOMIAL = 0xEDB88320
SLICES = 16
INITIAL = 0xFFFFFFFF


def _make_tables() -> np.ndarray:
    """Tables of slicing-by-16: row k advances a byte that has k more bytes behind it. Shape (16, 256), uint32."""
    tables = np.zeros((SLICES, 256), dtype=np.uint32)
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (POLYNOMIAL if value & 1 else 0)
        tables[0, byte] = value
    for k in range(1, SLICES):
        previous = tables[k - 1]
        tables[k] = (previous >> 8) ^ tables[0][previous & 0xFF]
    return tables


TABLES = _make_tables()


@njit(cache=True, nogil=True)
def advance(crc: int, low: int, high: int) -> int:
    """A CRC, not yet inverted, after 16 bytes more, given as two native i64."""
    first, second = (low & 0xFFFFFFFF) ^ crc, (low >> 32) & 0xFFFFFFFF
    third, fourth = high & 0xFFFFFFFF, (high >> 32) & 0xFFFFFFFF
    return int(
        np.int64(TABLES[15, first & 0xFF])
        ^ np.int64(TABLES[14, (first >> 8) & 0xFF])
        ^ np.int64(TABLES[13, (first >> 16) & 0xFF])
        ^ np.int64(TABLES[12, (first >> 24) & 0xFF])
        ^ np.int64(TABLES[11, second & 0xFF])
        ^ np.int64(TABLES[10, (second >> 8) & 0xFF])
        ^ np.int64(TABLES[9, (second >> 16) & 0xFF])
        ^ np.int64(TABLES[8, (second >> 24) & 0xFF])
        ^ np.int64(TABLES[7, third & 0xFF])
        ^ np.int64(TABLES[6, (third >> 8) & 0xFF])
        ^ np.int64(TABLES[5, (third >> 16) & 0xFF])
        ^ np.int64(TABLES[4, (third >> 24) & 0xFF])
        ^ np.int64(TABLES[3, fourth & 0xFF])
        ^ np.int64(TABLES[2, (fourth >> 8) & 0xFF])
        ^ np.int64(TABLES[1, (fourth >> 16) & 0xFF])
        ^ np.int64(TABLES[0, (fourth >> 24) & 0xFF])
    )


@njit(cache=True, nogil=True)
def crc32_by_tables(address: int, length: int, crc: int) -> int:
    """Go on from a CRC, 0xFFFFFFFF at first; it is to be inverted in the end."""
    position = 0
    while position + SLICES <= length:
        crc = advance(crc, load_native_i64(address + position), load_native_i64(address + position + 8))
        position += SLICES
    while position < length:
        crc = (crc >> 8) ^ int(np.int64(TABLES[0, (crc ^ load_u8(address + position)) & 0xFF]))
        position += 1
    return crc


@njit(cache=True, nogil=True)
def crc32_by_folding(address: int, length: int) -> int:
    """As :func:`crc32`, for processors that multiply without carries."""
    if length < SHORTEST:
        return crc32_by_tables(address, length, INITIAL) ^ INITIAL
    low, high = fold_bytes(address, length, INITIAL)
    return advance(0, low, high) ^ INITIAL


@njit(cache=True, nogil=True)
def crc32_anywhere(address: int, length: int) -> int:
    """As :func:`crc32`, for any processor."""
    return crc32_by_tables(address, length, INITIAL) ^ INITIAL


crc32 = crc32_by_folding if compiles_for("pclmul") else crc32_anywhere
"""CRC-32 of a number of bytes at an address, unsigned; a record keeps its low 31 bits."""
