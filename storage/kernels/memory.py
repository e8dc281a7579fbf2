"""Loads, copies and a page probe on raw addresses, the alphabet of every other kernel.

The files of a store are mapped once and described to a kernel by one int64 table of addresses and sizes, because an
array argument a file would cost 0.4 µs each. So kernels read memory by address: all loads here are unaligned and,
unless they say otherwise, big-endian, as everything in a RocketMQ store is. Nothing here checks bounds; every caller
has done it.

With ``NUMBA_DISABLE_JIT=1`` the same functions run as plain Python over :mod:`ctypes`, so that the kernels can be
followed by a debugger and measured by coverage.
"""

import ctypes
import os
from typing import TYPE_CHECKING

from numba import config, njit

if TYPE_CHECKING or config.DISABLE_JIT:
    from storage.kernels.memory_python import (
        array_at,
        call_preadv2,
        copy_bytes,
        count_trailing_zeros,
        load_i8,
        load_i16,
        load_i32,
        load_i64,
        load_native_i32,
        load_native_i64,
        prefetch,
        store_i16,
        store_i32,
        store_i64,
        store_native_i32,
        store_native_i64,
        store_u8,
    )
else:
    from storage.kernels.memory_compiled import (
        array_at,
        call_preadv2,
        copy_bytes,
        count_trailing_zeros,
        load_i8,
        load_i16,
        load_i32,
        load_i64,
        load_native_i32,
        load_native_i64,
        prefetch,
        store_i16,
        store_i32,
        store_i64,
        store_native_i32,
        store_native_i64,
        store_u8,
    )

__all__ = [
    "PROBE_ADDRESS",
    "PROBE_BYTES",
    "PROBE_SHIFT",
    "RWF_NOWAIT",
    "address_of",
    "array_at",
    "call_preadv2",
    "copy_bytes",
    "count_trailing_zeros",
    "equal_bytes",
    "is_hot",
    "load_i8",
    "load_i16",
    "load_i32",
    "load_i64",
    "load_native_i32",
    "load_native_i64",
    "load_u8",
    "prefetch",
    "store_i16",
    "store_i32",
    "store_i64",
    "store_native_i32",
    "store_native_i64",
    "store_u8",
]

PROBE_BYTES = 65536
"""Pages are told hot or cold in units of this many bytes."""

PROBE_SHIFT = 16
SMALL_WANT = 4096
"""Bytes up to which a want is asked for at its ends; a longer one by reading its whole unit."""

_libc = ctypes.CDLL(None, use_errno=True)


def function_address(name: str) -> int:
    """Address of a C library function, or 0 where the library has none of that name."""
    try:
        return ctypes.cast(getattr(_libc, name), ctypes.c_void_p).value or 0
    except AttributeError:
        return 0


PREADV2_ADDRESS = function_address("preadv2")
RWF_NOWAIT = getattr(os, "RWF_NOWAIT", 8)

_scratch = ctypes.create_string_buffer(PROBE_BYTES)
_whole_unit = (ctypes.c_uint64 * 2)(ctypes.addressof(_scratch), PROBE_BYTES)
_one_byte = (ctypes.c_uint64 * 2)(ctypes.addressof(_scratch), 1)
_probe = (ctypes.c_int64 * 3)(PREADV2_ADDRESS, ctypes.addressof(_whole_unit), ctypes.addressof(_one_byte))
PROBE_ADDRESS = ctypes.addressof(_probe)
"""Where kernels find ``preadv2`` and iovecs, of 64 KiB and of a byte, over a scratch buffer that nobody reads.

Handed to them at run time: compiled code is cached on disk, and addresses differ from process to process.
"""


BYTES_HEADER = bytes.__basicsize__ - 1
"""Bytes of a ``bytes`` object before its first byte: the object ends with one byte more than it has."""


def address_of(data: bytes) -> int:
    """Where the bytes of an object lie, as long as it is referred to; an array around it would tell, for 0.5 µs."""
    return id(data) + BYTES_HEADER


if ctypes.string_at(address_of(b"RocketLens"), 10) != b"RocketLens":  # pragma: no cover - numba runs on CPython alone
    raise ImportError("this Python keeps the bytes of an object elsewhere than CPython does")


@njit(cache=True, nogil=True)
def load_u8(address: int) -> int:
    """Unsigned byte at an address."""
    return load_i8(address) & 0xFF


@njit(cache=True, nogil=True)
def equal_bytes(left: int, right: int, length: int) -> bool:
    """Whether two ranges of ``length`` bytes are equal."""
    position = 0
    while position + 8 <= length:
        if load_native_i64(left + position) != load_native_i64(right + position):
            return False
        position += 8
    while position < length:
        if load_i8(left + position) != load_i8(right + position):
            return False
        position += 1
    return True


@njit(cache=True, nogil=True)
def is_unit_hot(probe: int, descriptor: int, start: int, end: int, position: int, stop: int) -> bool:
    """Ask whether the unit [start, end) of a file is in memory, of which [position, stop) is wanted.

    Copying 64 KiB to learn that they can be copied costs 6 µs, so a small want is asked for by single bytes: its own
    ends and the unit's. Page caches fill in runs of pages; what such a run leaves out costs one fault, not an answer.
    """
    function = load_native_i64(probe)
    if stop - position > SMALL_WANT:
        return call_preadv2(function, descriptor, load_native_i64(probe + 8), start, RWF_NOWAIT) >= end - start
    one_byte = load_native_i64(probe + 16)
    for asked in (position, stop - 1, start, end - 1):
        if call_preadv2(function, descriptor, one_byte, asked, RWF_NOWAIT) < 1:
            return False
    return True


@njit("boolean(int64, int64, int64, int64, int64, int64, int64)", cache=True, nogil=True)
def is_hot(probe: int, heat: int, descriptor: int, size: int, position: int, length: int, tick: int) -> bool:
    """Whether the bytes ``[position, position + length)`` of a mapped file are in memory, as far as is known.

    ``probe`` is :data:`PROBE_ADDRESS`; ``heat`` is the address of the file's native i32 array, the tick of the last
    good probe for each 64 KiB; ``descriptor`` −1 means that the file system cannot be asked (tmpfs), which counts as
    hot. Asked is by reads with RWF_NOWAIT, which come back short rather than wait.
    """
    if tick == 0 or descriptor < 0:
        return True
    unit = position >> PROBE_SHIFT
    last = (position + length - 1) >> PROBE_SHIFT
    while unit <= last:
        if load_native_i32(heat + 4 * unit) + 1 < tick:
            start = unit << PROBE_SHIFT
            end = min(start + PROBE_BYTES, size)
            if not is_unit_hot(probe, descriptor, start, end, max(position, start), min(position + length, end)):
                return False
            store_native_i32(heat + 4 * unit, tick)
        unit += 1
    return True
