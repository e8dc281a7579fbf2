"""CRC-32 (IEEE, the one of zlib) over an address, eight bytes a step, for kernels that check records in place."""

import numpy as np
from numba import njit

from storage.kernels.memory import load_native_i32, load_u8

POLYNOMIAL = 0xEDB88320
SLICES = 16


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
def crc32(address: int, length: int) -> int:
    """CRC-32 of ``length`` bytes at ``address``, unsigned; a record keeps its low 31 bits."""
    crc = np.int64(0xFFFFFFFF)
    position = 0
    while position + SLICES <= length:
        at = address + position
        first = (load_native_i32(at) & 0xFFFFFFFF) ^ crc
        second = load_native_i32(at + 4) & 0xFFFFFFFF
        third = load_native_i32(at + 8) & 0xFFFFFFFF
        fourth = load_native_i32(at + 12) & 0xFFFFFFFF
        crc = (
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
        position += SLICES
    while position < length:
        crc = (crc >> 8) ^ np.int64(TABLES[0, (crc ^ load_u8(address + position)) & 0xFF])
        position += 1
    return int(crc ^ 0xFFFFFFFF)
