"""Loads and stores on raw addresses as LLVM instructions: what compiled kernels run on."""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, njit, types  # type: ignore[attr-defined]
from numba.core import cgutils
from numba.extending import intrinsic


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


def _store(bits: int, swap: bool) -> Callable[..., Any]:
    """An intrinsic that stores the low ``bits`` bits of an int64 at an address."""

    def typing(_context: Any, address: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            pointer = builder.inttoptr(arguments[0], ir.IntType(bits).as_pointer())
            value = builder.trunc(arguments[1], ir.IntType(bits)) if bits < 64 else arguments[1]
            builder.store(builder.bswap(value) if swap else value, pointer).align = 1
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), generate

    return typing


def _trailing_zeros_typing(_context: Any, value: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.int64), generate


def _copy_typing(_context: Any, target: Any, source: Any, length: Any) -> Any:
    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        byte_pointer = ir.IntType(8).as_pointer()
        cgutils.raw_memcpy(  # type: ignore[no-untyped-call]
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


def _prefetch_typing(_context: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        i32, byte_pointer = ir.IntType(32), ir.IntType(8).as_pointer()
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", (byte_pointer,), PREFETCH_TYPE)
        read, keep, data = (ir.Constant(i32, number) for number in (0, 3, 1))
        builder.call(prefetch, [builder.inttoptr(arguments[0], byte_pointer), read, keep, data])
        return context.get_dummy_value()

    return types.void(types.int64), generate


def _pointer_typing(_context: Any, address: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.int64), generate


PREFETCH_TYPE = ir.FunctionType(ir.VoidType(), [ir.IntType(8).as_pointer(), *(ir.IntType(32),) * 3])

load_i8 = intrinsic(_load(8, swap=False))
load_i16 = intrinsic(_load(16, swap=True))
load_i32 = intrinsic(_load(32, swap=True))
load_i64 = intrinsic(_load(64, swap=True))
load_native_i32 = intrinsic(_load(32, swap=False))
load_native_i64 = intrinsic(_load(64, swap=False))
store_u8 = intrinsic(_store_u8_typing)
store_native_i32 = intrinsic(_store(32, swap=False))
store_native_i64 = intrinsic(_store(64, swap=False))
store_i16 = intrinsic(_store(16, swap=True))
store_i32 = intrinsic(_store(32, swap=True))
store_i64 = intrinsic(_store(64, swap=True))
count_trailing_zeros = intrinsic(_trailing_zeros_typing)
copy_bytes = intrinsic(_copy_typing)
call_preadv2 = intrinsic(_preadv2_typing)
prefetch = intrinsic(_prefetch_typing)
_pointer_at: Any = intrinsic(_pointer_typing)


@njit(cache=True, nogil=True)
def array_at(address: int, length: int) -> np.ndarray:
    """``length`` native i64 at an address as an array that owns nothing: handing it on counts no references."""
    return carray(_pointer_at(address), (length,), np.int64)
