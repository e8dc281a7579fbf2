"""Fillers: records that take the place of damage, so that every broker's walk over the log steps over it.

A filler is a message of a transaction that was rolled back: a broker gives it no place in a queue and no entry in an
index, whatever walks over it, and no consumer gets it (store-format §2.3, §3.1). Its body is zeros. Where damage
reaches the end of a segment, a BLANK closes it in front of the damage, behind a filler where nothing else is in the
segment: with one that begins with a BLANK no broker's recovery begins (§6.3).

Found by trial with the stores of brokers 5.5.0 and 4.9.8 (tests/interop/test_rescued_stores.py): the record check of
each takes fillers as any message, when it recovers and when it dispatches.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from protocol.message_layout import (
    BLANK_MAGIC,
    MINIMUM_SIZE,
    PROPERTIES_LENGTH,
    RECORD_START,
    V1_MAGIC,
    V1_TOPIC_LENGTH,
    V4_V4_FIXED,
)
from protocol.sys_flag import SysFlag
from storage.kernels.records import crc32

FILLER_TOPIC: Final = b"ROCKETLENS_FILLER"
"""The topic of fillers; a small one has its first letters."""

SMALLEST: Final = MINIMUM_SIZE + 1
"""Bytes of the smallest filler: a topic has a letter."""

LARGEST: Final = 1 << 20
"""Bytes of the largest one: what a broker has in memory at once when it looks at it."""

_CRC_MASK: Final = 0x7FFFFFFF
_LOOPBACK: Final = bytes((127, 0, 0, 1))


class FillerPart(NamedTuple):
    """Bytes that belong at a physical offset; what lies between pieces is zeros."""

    physical_offset: int
    data: bytes


def fill(start: int, stop: int, base: int, boundary: int, store_timestamp: int) -> Iterator[FillerPart]:
    """The bytes for the range [start, stop), all in the segment from `base` to `boundary`.

    `store_timestamp` (ms) is that of a record beside the damage. Raises ValueError for a place that nothing fits in.
    """
    if stop < boundary:
        yield from _fillers(start, stop, store_timestamp)
        return
    if start == base and boundary - start >= SMALLEST + RECORD_START.size:
        size = min(MINIMUM_SIZE + len(FILLER_TOPIC), boundary - start - RECORD_START.size)
        yield from _filler(start, size, store_timestamp)
        start += size
    if boundary - start < RECORD_START.size:
        raise ValueError(f"{boundary - start} bytes before the end of a segment hold no BLANK")
    yield FillerPart(start, RECORD_START.pack(boundary - start, BLANK_MAGIC))


def can_be_filled(start: int, stop: int, boundary: int) -> bool:
    """Whether something fits in the place of [start, stop) in a segment that ends at `boundary`."""
    return stop - start >= (SMALLEST if stop < boundary else RECORD_START.size)


def _fillers(start: int, stop: int, store_timestamp: int) -> Iterator[FillerPart]:
    if stop - start < SMALLEST:
        raise ValueError(f"{stop - start} bytes hold no message")
    while start < stop:
        size = min(LARGEST, stop - start)
        if 0 < stop - start - size < SMALLEST:
            size -= SMALLEST
        yield from _filler(start, size, store_timestamp)
        start += size


def _filler(physical_offset: int, size: int, store_timestamp: int) -> Iterator[FillerPart]:
    """One filler: what stands before its body, and what stands behind it."""
    topic = FILLER_TOPIC[: size - MINIMUM_SIZE]
    body = size - MINIMUM_SIZE - len(topic)
    yield FillerPart(
        physical_offset,
        V4_V4_FIXED.pack(
            size,
            V1_MAGIC,
            _checksum_of_zeros(body) if body else 0,
            0,
            0,
            0,
            physical_offset,
            SysFlag.TRANSACTION_ROLLBACK,
            store_timestamp,
            _LOOPBACK,
            0,
            store_timestamp,
            _LOOPBACK,
            0,
            0,
            0,
            body,
        ),
    )
    tail = V1_TOPIC_LENGTH.pack(len(topic)) + topic + PROPERTIES_LENGTH.pack(0)
    yield FillerPart(physical_offset + size - len(tail), tail)


@lru_cache(maxsize=64)
def _checksum_of_zeros(count: int) -> int:
    return crc32(bytes(count)) & _CRC_MASK
