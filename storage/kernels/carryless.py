"""Fold bytes for a CRC-32 by carry-less multiplication, where numba compiles for a processor that has it.

Bytes are a polynomial over two elements, and so is a CRC: its remainder by POLYNOMIAL. What stands n bits before the
end counts as times xⁿ, so 128 bits may be moved n bits towards the end by multiplying their halves by what remains of
xⁿ⁺³² and of xⁿ⁻³²: the product has 128 bits again. Four such lanes go 512 bits at a time, then one goes on with what is
left, and in the end over fewer bytes than it has. The method is V. Gopal's (Fast CRC Computation for Generic
Polynomials Using PCLMULQDQ, Intel, 2009).
"""

from typing import Any

from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import intrinsic

POLYNOMIAL = 0x104C11DB7
BLOCK = 16
LANES = 4
SHORTEST = BLOCK * LANES
"""Fewest bytes that can be folded."""


def compiles_for(feature: str) -> bool:
    """Whether compiled kernels may use a feature of the processor.

    It is asked of numba, not of the processor: numba may be told to compile for another one. What it compiles for is
    part of the name under which it keeps a compiled kernel, so that none is ever run that was compiled for more.
    """
    if config.DISABLE_JIT:  # type: ignore[attr-defined]
        return False
    _, _, features = cpu_target.target_context.codegen().magic_tuple()
    return f"+{feature}" in features.split(",")


def fold_factor(bits: int) -> int:
    """What remains of x to the power of ``bits``, reflected as this CRC is, and shifted as products of such are."""
    remainder = 1
    for _ in range(bits):
        remainder <<= 1
        remainder ^= POLYNOMIAL if remainder >> 32 else 0
    return int(f"{remainder:032b}"[::-1], 2) << 1


def fold_factors(distance: int) -> tuple[int, int]:
    """What the two halves of 128 bits are multiplied by to move them over ``distance`` bytes."""
    return fold_factor(8 * distance + 32), fold_factor(8 * distance - 32)


_I128, _I64, _I8 = ir.IntType(128), ir.IntType(64), ir.IntType(8)
_LANE = ir.VectorType(_I64, 2)
_PRODUCT = ir.FunctionType(_LANE, (_LANE, _LANE, _I8))


class _Folding:
    """Writes the instructions."""

    def __init__(self, builder: Any, address: Any) -> None:
        self._builder, self._address = builder, address
        self._multiply = builder.module.declare_intrinsic("llvm.x86.pclmulqdq", fnty=_PRODUCT)

    def load(self, position: Any) -> Any:
        """The 16 bytes at a position."""
        address = self._builder.add(self._address, position)
        value = self._builder.load(self._builder.inttoptr(address, _LANE.as_pointer()))
        value.align = 1
        return value

    def fold(self, lane: Any, distance: int, onto: Any) -> Any:
        """Move a lane over so many bytes, onto the 16 bytes there."""
        factors = ir.Constant(_LANE, [ir.Constant(_I64, factor) for factor in fold_factors(distance)])
        low, high = (self._builder.call(self._multiply, (lane, factors, _I8(half))) for half in (0x00, 0x11))
        return self._builder.xor(self._builder.xor(low, high), onto)

    def fold_over(self, lane: Any, count: Any, last: Any) -> Any:
        """Move a lane over 1 to 15 bytes: its first bytes are folded, the others stand before those, in ``last``.

        The first byte of a lane is its lowest; ``last`` are the 16 bytes that end with the new ones.
        """
        builder = self._builder
        moved = builder.zext(builder.shl(count, _I64(3)), _I128)
        kept = builder.sub(_I128(8 * BLOCK), moved)
        lane, last = (builder.bitcast(value, _I128) for value in (lane, last))
        onto = builder.or_(builder.lshr(lane, moved), builder.shl(builder.lshr(last, kept), kept))
        return self.fold(builder.bitcast(builder.shl(lane, kept), _LANE), BLOCK, builder.bitcast(onto, _LANE))


def _variable(builder: Any, value: Any) -> Any:
    return cgutils.alloca_once_value(builder, value)  # type: ignore[no-untyped-call]


def _fold_typing(_context: Any, address: Any, length: Any, crc: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address, length, crc = arguments
        folding = _Folding(builder, address)
        lanes = [_variable(builder, folding.load(_I64(BLOCK * n))) for n in range(LANES)]
        start = builder.insert_element(ir.Constant(_LANE, [_I64(0)] * 2), crc, ir.IntType(32)(0))
        builder.store(builder.xor(builder.load(lanes[0]), start), lanes[0])
        wide = builder.sub(builder.lshr(length, _I64(6)), _I64(1))
        with cgutils.for_range(builder, wide) as loop:
            position = builder.mul(builder.add(loop.index, _I64(1)), _I64(SHORTEST))
            for n, lane in enumerate(lanes):
                block = folding.load(builder.add(position, _I64(BLOCK * n)))
                builder.store(folding.fold(builder.load(lane), SHORTEST, block), lane)
        joined = builder.load(lanes[-1])
        for n, lane in enumerate(lanes[:-1]):
            joined = folding.fold(builder.load(lane), BLOCK * (LANES - 1 - n), joined)
        builder.store(joined, lanes[0])
        done = builder.and_(length, _I64(-SHORTEST))
        left = builder.lshr(builder.and_(length, _I64(SHORTEST - 1)), _I64(4))
        with cgutils.for_range(builder, left) as loop:
            block = folding.load(builder.add(done, builder.mul(loop.index, _I64(BLOCK))))
            builder.store(folding.fold(builder.load(lanes[0]), BLOCK, block), lanes[0])
        rest = builder.and_(length, _I64(BLOCK - 1))
        with builder.if_then(builder.icmp_unsigned("!=", rest, _I64(0))):
            last = folding.load(builder.sub(length, _I64(BLOCK)))
            builder.store(folding.fold_over(builder.load(lanes[0]), rest, last), lanes[0])
        folded = builder.load(lanes[0])
        elements = [builder.extract_element(folded, ir.IntType(32)(n)) for n in range(2)]
        return context.make_tuple(builder, signature.return_type, elements)

    halves = types.UniTuple(types.int64, 2)  # type: ignore[no-untyped-call]
    return halves(types.int64, types.int64, types.int64), generate


fold_bytes: Any = intrinsic(_fold_typing)
"""Fold ``length`` ≥ SHORTEST bytes at an address into one block of 16, whose halves are returned.

Begun with 0, it has the CRC that all of them have begun with ``crc``.
"""
