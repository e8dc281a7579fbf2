"""Loads, copies and a page probe on raw addresses, the alphabet of every other kernel.

The files of a store are mapped once and described to a kernel by one int64 table of addresses and sizes, because an array
argument a file would cost 0.4 µs each. So kernels read memory by address: all loads here are unaligned and, unless they say
otherwise, big-endian, as everything in a RocketMQ store is. Nothing here checks bounds; every caller has done it.

With ``NUMBA_DISABLE_JIT=1`` the same functions run as plain Python over :mod:`ctypes`, so that the kernels can be followed by a
debugger and measured by coverage.
"""

import ctypes
import os
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import config, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

PROBE_BYTES = 65536
"""Pages are told hot or cold in units of this many bytes."""

PROBE_SHIFT = 16

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
_iovec = (ctypes.c_uint64 * 2)(ctypes.addressof(_scratch), PROBE_BYTES)
_probe = (ctypes.c_int64 * 2)(PREADV2_ADDRESS, ctypes.addressof(_iovec))
PROBE_ADDRESS = ctypes.addressof(_probe)
"""Where kernels find ``preadv2`` and an iovec over a scratch buffer whose content nobody reads, so that all may share it.

Handed to them at run time: compiled code is cached on disk, and addresses differ from process to process.
"""


def _load(bits: int, swap: bool) -> Callable[..., Any]:
    """An intrinsic that loads ``bits`` bits at an address and widens them to int64, signed."""

    def typing(_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            pointer = builder.inttoptr(arguments[0], ir.IntType(bits).as_pointer())
            value = builder.load(pointer)
            value.align = 1
            if swap:
                value = builder.bswap(value)
            return builder.sext(value, ir.IntType(64)) if bits < 64 else value

        return types.int64(types.int64), generate

    return typing


def _store_u8_typing(_context: Any, address: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())
        builder.store(builder.trunc(arguments[1], ir.IntType(8)), pointer)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


def _store_native_typing(bits: int) -> Callable[..., Any]:
    def typing(_context: Any, address: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            pointer = builder.inttoptr(arguments[0], ir.IntType(bits).as_pointer())
            value = builder.trunc(arguments[1], ir.IntType(bits)) if bits < 64 else arguments[1]
            builder.store(value, pointer).align = 1
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), generate

    return typing


def _copy_typing(_context: Any, target: Any, source: Any, length: Any) -> Any:
    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        byte_pointer = ir.IntType(8).as_pointer()
        cgutils.raw_memcpy(
            builder,
            builder.inttoptr(arguments[0], byte_pointer),
            builder.inttoptr(arguments[1], byte_pointer),
            arguments[2],
            1,
        )
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


def _preadv2_typing(_context: Any, function: Any, descriptor: Any, iovec: Any, offset: Any, flags: Any) -> Any:
    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        i32, i64 = ir.IntType(32), ir.IntType(64)
        byte_pointer = ir.IntType(8).as_pointer()
        function_type = ir.FunctionType(i64, [i32, byte_pointer, i32, i64, i32])
        callee = builder.inttoptr(arguments[0], function_type.as_pointer())
        return builder.call(
            callee,
            [
                builder.trunc(arguments[1], i32),
                builder.inttoptr(arguments[2], byte_pointer),
                ir.Constant(i32, 1),
                arguments[3],
                builder.trunc(arguments[4], i32),
            ],
        )

    five = (types.int64,) * 5
    return types.int64(*five), generate


if config.DISABLE_JIT:

    def load_i8(address: int) -> int:
        """Signed byte at an address."""
        return ctypes.c_int8.from_address(address).value

    def load_i16(address: int) -> int:
        """Big-endian i16 at an address."""
        return int.from_bytes(ctypes.string_at(address, 2), "big", signed=True)

    def load_i32(address: int) -> int:
        """Big-endian i32 at an address."""
        return int.from_bytes(ctypes.string_at(address, 4), "big", signed=True)

    def load_i64(address: int) -> int:
        """Big-endian i64 at an address."""
        return int.from_bytes(ctypes.string_at(address, 8), "big", signed=True)

    def load_native_i32(address: int) -> int:
        """i32 at an address in the machine's byte order."""
        return ctypes.c_int32.from_address(address).value

    def load_native_i64(address: int) -> int:
        """i64 at an address in the machine's byte order."""
        return ctypes.c_int64.from_address(address).value

    def store_u8(address: int, value: int) -> None:
        """Write one byte."""
        ctypes.c_uint8.from_address(address).value = value & 0xFF

    def store_native_i32(address: int, value: int) -> None:
        """Write an i32 in the machine's byte order."""
        ctypes.c_int32.from_address(address).value = value

    def store_native_i64(address: int, value: int) -> None:
        """Write an i64 in the machine's byte order."""
        ctypes.c_int64.from_address(address).value = value

    def copy_bytes(target: int, source: int, length: int) -> None:
        """Copy ``length`` bytes between two addresses that do not overlap."""
        ctypes.memmove(target, source, length)

    def call_preadv2(function: int, descriptor: int, iovec: int, offset: int, flags: int) -> int:
        """One ``preadv2`` into the iovec; bytes read, or −1."""
        prototype = ctypes.CFUNCTYPE(
            ctypes.c_int64, ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64, ctypes.c_int32
        )
        return int(prototype(function)(descriptor, iovec, 1, offset, flags))

else:
    load_i8 = intrinsic(_load(8, swap=False))
    load_i16 = intrinsic(_load(16, swap=True))
    load_i32 = intrinsic(_load(32, swap=True))
    load_i64 = intrinsic(_load(64, swap=True))
    load_native_i32 = intrinsic(_load(32, swap=False))
    load_native_i64 = intrinsic(_load(64, swap=False))
    store_u8 = intrinsic(_store_u8_typing)
    store_native_i32 = intrinsic(_store_native_typing(32))
    store_native_i64 = intrinsic(_store_native_typing(64))
    copy_bytes = intrinsic(_copy_typing)
    call_preadv2 = intrinsic(_preadv2_typing)


@njit("int64(int64)", cache=True, nogil=True)
def load_u8(address: int) -> int:
    """Unsigned byte at an address."""
    return load_i8(address) & 0xFF


@njit("boolean(int64, int64, int64)", cache=True, nogil=True)
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


@njit("boolean(int64, int64, int64, int64, int64, int64, int64)", cache=True, nogil=True)
def is_hot(probe: int, heat: int, descriptor: int, size: int, position: int, length: int, tick: int) -> bool:
    """Whether the bytes ``[position, position + length)`` of a mapped file are in memory, as far as is known.

    ``probe`` is :data:`PROBE_ADDRESS`; ``heat`` is the address of the file's native i32 array, the tick of the last good probe for each 64 KiB; ``descriptor`` −1
    means that the file system cannot be asked (tmpfs), which counts as hot. A probe reads 64 KiB with RWF_NOWAIT.
    """
    if tick == 0 or descriptor < 0:
        return True
    chunk = position >> PROBE_SHIFT
    last = (position + length - 1) >> PROBE_SHIFT
    while chunk <= last:
        if load_native_i32(heat + 4 * chunk) + 1 < tick:
            start = chunk << PROBE_SHIFT
            wanted = min(PROBE_BYTES, size - start)
            function, iovec = load_native_i64(probe), load_native_i64(probe + 8)
            if call_preadv2(function, descriptor, iovec, start, RWF_NOWAIT) < wanted:
                return False
            store_native_i32(heat + 4 * chunk, tick)
        chunk += 1
    return True
