"""The sysFlag of a stored message: what its bits mean (store-format §2.3).

The field stays a plain signed i32 wherever it is carried, unknown bits included; these names are for testing it.
"""

from enum import IntEnum, IntFlag
from typing import Final


class SysFlag(IntFlag):
    """Bits and masks of sysFlag. The transaction bits are one enumeration of two bits, not two flags."""

    COMPRESSED = 0x1
    MULTI_TAGS = 0x2
    TRANSACTION_PREPARED = 0x4
    TRANSACTION_COMMIT = 0x8
    TRANSACTION_ROLLBACK = 0xC
    BORN_HOST_V6 = 0x10
    STORE_HOST_V6 = 0x20
    NEED_UNWRAP = 0x40
    INNER_BATCH = 0x80
    COMPRESSION_LZ4 = 0x100
    COMPRESSION_ZSTD = 0x200
    COMPRESSION_ZLIB = 0x300


TRANSACTION_MASK: Final = 0xC
COMPRESSION_TYPE_MASK: Final = 0x700
_COMPRESSION_TYPE_SHIFT: Final = 8
_UNWRAP: Final = int(SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP)
OF_BATCH: Final = int(SysFlag.COMPRESSED) | _UNWRAP | COMPRESSION_TYPE_MASK
"""Bits that speak of the whole body, and which a message taken out of a batch does not have."""


class CompressionType(IntEnum):
    """How a compressed body is compressed; bits 8–10 of sysFlag, where 0 is zlib too (older writers)."""

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3


def compression_type(sys_flag: int) -> CompressionType | None:
    """The compression that `sys_flag` names, whether or not its COMPRESSED bit is set; 4 … 7 are none: `None`."""
    value = (sys_flag & COMPRESSION_TYPE_MASK) >> _COMPRESSION_TYPE_SHIFT
    if value == 0:
        return CompressionType.ZLIB
    return CompressionType(value) if value <= CompressionType.ZLIB else None


def has_inner_messages(sys_flag: int) -> bool:
    """Whether the body is a batch that the reader has to split (store-format §2.9): a client asks for both bits."""
    return sys_flag & _UNWRAP == _UNWRAP


def is_packed_batch(sys_flag: int) -> bool:
    """Whether the body is such a batch, compressed as a whole: its messages cannot be read in place."""
    return has_inner_messages(sys_flag) and bool(sys_flag & SysFlag.COMPRESSED)
