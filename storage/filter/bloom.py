"""The Bloom filter of a broker: which bits of a message's bitmap stand for a registered filter.

A broker with `enableCalcFilterBitMap` evaluates every registered SQL filter when it stores a message, and sets the
bits of each that is true in a bitmap beside the message's queue unit. Bits of several filters may coincide, so bits
that are set say nothing; one that is not says that the filter was not true. Bit p is `1 << (p % 8)` of byte `p // 8`.
Source: filters §3.1–§3.3; MurmurHash3 is Austin Appleby's x64 128-bit variant with seed 0, public domain.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from struct import Struct
from typing import Final, Self

from protocol.errors import ConfigError
from storage.layout.store_config import ConsumerFilter
from storage.queue.consume_queue_ext import ConsumeQueueExtUnit

DEFAULT_ERROR_PERCENT: Final = 20
"""`maxErrorRateOfBloomFilter`."""
DEFAULT_EXPECTED_KEYS: Final = 32
"""`expectConsumerNumUseFilter`."""
KEY_SEPARATOR: Final = "#"

_BLOCK: Final = Struct("<QQ")
_MASK: Final = (1 << 64) - 1
_MASK_32: Final = (1 << 32) - 1
_SIGN_32: Final = 1 << 31
_C1: Final = 0x87C37B91114253D5
_C2: Final = 0x4CF5AD432745937F
_MOST_HASHES: Final = 64
_MOST_BITS: Final = 8 * ((1 << 15) - 1)  # of a bitmap whose size is written as an i16
_FOR_EVER: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """`hash_count` (k) bits for each key among `bit_count` (m), which is a multiple of 8."""

    hash_count: int
    bit_count: int

    @classmethod
    def sized_for(cls, error_percent: int = DEFAULT_ERROR_PERCENT, expected_keys: int = DEFAULT_EXPECTED_KEYS) -> Self:
        """The filter in which `error_percent` of other keys hit once `expected_keys` are in it; else `ConfigError`."""
        if not 1 <= error_percent < 100:
            raise ConfigError(f"a Bloom filter's error rate is 1 to 99 percent, not {error_percent}")
        if expected_keys < 1:
            raise ConfigError(f"a Bloom filter is made for 1 key or more, not {expected_keys}")
        # The same operations in the same order as the broker's: another order may round to another size.
        rate = error_percent / 100.0
        hash_count = math.ceil(math.log(rate) / math.log(0.5))
        bits = math.ceil(expected_keys * (math.log(1 / rate) / math.log(2)) * (math.log(math.e) / math.log(2)))
        return cls(hash_count, (bits + 7) // 8 * 8)

    def positions(self, key: str) -> tuple[int, ...]:
        """The bits of a key, which may repeat; see `filter_key`."""
        first, _ = murmur3_128(key.encode("utf-8", "replace"))
        low, high = first & _MASK_32, first >> 32
        combined = ((low + number * high) & _MASK_32 for number in range(1, self.hash_count + 1))
        return tuple((~each & _MASK_32 if each & _SIGN_32 else each) % self.bit_count for each in combined)

    def bitmap(self, keys: Iterable[str]) -> bytes:
        """The bitmap with the bits of these keys."""
        bits = 0
        for key in keys:
            bits |= mask_of(self.positions(key))
        return bits.to_bytes(self.bit_count // 8, "little")


def filter_key(consumer_group: str, topic: str) -> str:
    """The key under which the filter of a group on a topic has its bits."""
    return f"{consumer_group}{KEY_SEPARATOR}{topic}"


def mask_of(positions: Iterable[int]) -> int:
    """The integer with these bits, to be compared with `int.from_bytes(bitmap, "little")`."""
    mask = 0
    for position in positions:
        mask |= 1 << position
    return mask


@dataclass(frozen=True, slots=True)
class FilterBits:
    """The bits of one registered filter, and the messages whose bitmaps speak of it.

    A message's bitmap knows the filter if the message was stored after `born_timestamp` and, where the registry on
    disk may be older than the log, no later than `until_timestamp` (ms).
    """

    mask: int
    bit_count: int
    born_timestamp: int
    until_timestamp: int = _FOR_EVER

    def exclude(self, unit: ConsumeQueueExtUnit) -> bool:
        """Whether the filter was certainly not true for the message of this unit."""
        bitmap = unit.bitmap
        if bitmap is None or len(bitmap) * 8 != self.bit_count:
            return False
        if not self.born_timestamp < unit.store_timestamp <= self.until_timestamp:
            return False
        return int.from_bytes(bitmap, "little") & self.mask != self.mask


def registered_bits(registered: ConsumerFilter, until_timestamp: int = _FOR_EVER) -> FilterBits | None:
    """The bits of a filter in `config/consumerFilter.json`; None if it has none, or others than it must have.

    How many there are is the broker's configuration, which a store does not hold, so the entry's own numbers are
    taken; but they have to be the hash of its group and topic, else a damaged entry would hide messages.
    """
    data = registered.bloom_filter_data
    if data is None or not 1 <= len(data.bit_pos) <= _MOST_HASHES:
        return None
    if not 0 < data.bit_num <= _MOST_BITS or data.bit_num % 8:
        return None
    expected = BloomFilter(len(data.bit_pos), data.bit_num).positions(
        filter_key(registered.consumer_group, registered.topic)
    )
    if tuple(data.bit_pos) != expected:
        return None
    return FilterBits(mask_of(expected), data.bit_num, registered.born_time, until_timestamp)


def murmur3_128(data: bytes) -> tuple[int, int]:
    """MurmurHash3 x64 128 with seed 0, as its two 64-bit halves, unsigned; the digest is both in little endian."""
    first = second = 0
    whole = len(data) & ~15
    for low, high in _BLOCK.iter_unpack(data[:whole]):
        first ^= _mixed_low(low)
        first = ((_rotated(first, 27) + second) * 5 + 0x52DCE729) & _MASK
        second ^= _mixed_high(high)
        second = ((_rotated(second, 31) + first) * 5 + 0x38495AB5) & _MASK
    # The rest is filled with zeros, which mix to zero.
    low, high = _BLOCK.unpack(data[whole:].ljust(_BLOCK.size, b"\0"))
    first = first ^ _mixed_low(low) ^ len(data)
    second = second ^ _mixed_high(high) ^ len(data)
    first = (first + second) & _MASK
    second = (second + first) & _MASK
    first, second = _finished(first), _finished(second)
    first = (first + second) & _MASK
    return first, (second + first) & _MASK


def _mixed_low(half: int) -> int:
    return _rotated(half * _C1 & _MASK, 31) * _C2 & _MASK


def _mixed_high(half: int) -> int:
    return _rotated(half * _C2 & _MASK, 33) * _C1 & _MASK


def _rotated(value: int, places: int) -> int:
    return (value << places | value >> (64 - places)) & _MASK


def _finished(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _MASK
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ value >> 33
