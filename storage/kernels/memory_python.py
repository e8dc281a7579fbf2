"""Loads and stores on raw addresses in plain Python, over ctypes: what kernels run on without the compiler."""

import ctypes

import numpy as np


def load_i8(address: int) -> int:
    """Signed byte at an address."""
    return ctypes.c_int8.from_address(int(address)).value


def load_i16(address: int) -> int:
    """Big-endian i16 at an address."""
    return int.from_bytes(ctypes.string_at(int(address), 2), "big", signed=True)


def load_i32(address: int) -> int:
    """Big-endian i32 at an address."""
    return int.from_bytes(ctypes.string_at(int(address), 4), "big", signed=True)


def load_i64(address: int) -> int:
    """Big-endian i64 at an address."""
    return int.from_bytes(ctypes.string_at(int(address), 8), "big", signed=True)


def load_native_i32(address: int) -> int:
    """i32 at an address in the machine's byte order."""
    return ctypes.c_int32.from_address(int(address)).value


def load_native_i64(address: int) -> int:
    """i64 at an address in the machine's byte order."""
    return ctypes.c_int64.from_address(int(address)).value


def store_u8(address: int, value: int) -> None:
    """Write one byte."""
    ctypes.c_uint8.from_address(int(address)).value = int(value) & 0xFF


def store_native_i32(address: int, value: int) -> None:
    """Write an i32 in the machine's byte order."""
    ctypes.c_int32.from_address(int(address)).value = int(value)


def store_native_i64(address: int, value: int) -> None:
    """Write an i64 in the machine's byte order."""
    ctypes.c_int64.from_address(int(address)).value = int(value)


def store_i16(address: int, value: int) -> None:
    """Write the low 16 bits of a number, big-endian."""
    _store_big_endian(address, value, 2)


def store_i32(address: int, value: int) -> None:
    """Write the low 32 bits of a number, big-endian."""
    _store_big_endian(address, value, 4)


def store_i64(address: int, value: int) -> None:
    """Write the low 64 bits of a number, big-endian."""
    _store_big_endian(address, value, 8)


def _store_big_endian(address: int, value: int, size: int) -> None:
    ctypes.memmove(int(address), (int(value) & ((1 << 8 * size) - 1)).to_bytes(size, "big"), size)


def count_trailing_zeros(value: int) -> int:
    """How many of the lowest bits of an i64 are 0; 64 for 0."""
    value = int(value)
    return (value & -value).bit_length() - 1 if value else 64


def copy_bytes(target: int, source: int, length: int) -> None:
    """Copy ``length`` bytes between two addresses that do not overlap."""
    ctypes.memmove(int(target), int(source), int(length))


def call_preadv2(function: int, descriptor: int, iovec: int, offset: int, flags: int) -> int:
    """One ``preadv2`` into the iovec; bytes read, or −1."""
    prototype = ctypes.CFUNCTYPE(
        ctypes.c_int64, ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64, ctypes.c_int32
    )
    return int(prototype(int(function))(int(descriptor), int(iovec), 1, int(offset), int(flags)))


def array_at(address: int, length: int) -> np.ndarray:
    """``length`` native i64 at an address as an array that owns nothing."""
    return np.ctypeslib.as_array((ctypes.c_int64 * int(length)).from_address(int(address)))


def prefetch(address: int) -> None:
    """Ask for the cache line at an address; here, nothing."""
