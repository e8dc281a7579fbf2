"""Decompress message bodies, never beyond a limit: what a producer compressed may be a bomb.

The formats are a zlib stream (RFC 1950), LZ4 frames and zstd frames (store-format §2.3). As in the Java clients, bytes
behind a zlib stream are ignored, LZ4 and zstd frames may follow one another, and a stream that ends early is an error.
"""

import zlib
from collections.abc import Callable
from typing import Final

from protocol.errors import CorruptRecord
from protocol.message_layout import RECORD
from protocol.sys_flag import CompressionType

DECOMPRESSED_LIMIT: Final = 64 * 1024 * 1024
"""Bytes; brokers accept bodies of 4 MiB by default, compressed or not."""

_ZSTD_STEP: Final = 512
"""Bytes fed to zstd at once: four of them can become 128 KiB, and its decoder takes no limit."""


def decompress(data: bytes | memoryview, kind: CompressionType, *, limit: int = DECOMPRESSED_LIMIT) -> bytes:
    """The bytes that `data` decompresses to.

    Raises `CorruptRecord` for what is no such stream, or decompresses to more than `limit` bytes.
    """
    try:
        body = _DECOMPRESSORS[kind](data, limit)
    except (zlib.error, RuntimeError, EOFError, MemoryError) as error:
        raise _corrupt(f"{kind.name} body", "a complete stream", str(error) or type(error).__name__) from error
    if len(body) > limit:
        raise _corrupt("decompressed body", f"at most {limit} bytes", "more")
    return body


def _decompress_zlib(data: bytes | memoryview, limit: int) -> bytes:
    decoder = zlib.decompressobj()
    body = decoder.decompress(data, limit + 1)
    if not decoder.eof and len(body) <= limit:
        raise EOFError("the stream ends early")
    return body


def _decompress_lz4(data: bytes | memoryview, limit: int) -> bytes:
    import lz4.frame  # imported here: stores without LZ4 bodies start without it

    body, rest = bytearray(), bytes(data)
    while rest and len(body) <= limit:
        decoder = lz4.frame.LZ4FrameDecompressor()
        body += decoder.decompress(rest, limit + 1 - len(body))
        if not decoder.eof and len(body) <= limit:
            raise EOFError("the frame ends early")
        rest = decoder.unused_data or b""
    return bytes(body)


def _decompress_zstd(data: bytes | memoryview, limit: int) -> bytes:
    import zstandard  # as above

    body, rest = bytearray(), memoryview(data)
    while rest and len(body) <= limit:
        decoder = zstandard.ZstdDecompressor().decompressobj()
        while rest and not decoder.eof and len(body) <= limit:
            try:
                body += decoder.decompress(rest[:_ZSTD_STEP])
            except zstandard.ZstdError as error:
                raise RuntimeError(str(error)) from error
            rest = rest[min(len(rest), _ZSTD_STEP) - len(decoder.unused_data) :]
        if not decoder.eof and len(body) <= limit:
            raise EOFError("the frame ends early")
    return bytes(body)


_DECOMPRESSORS: Final[dict[CompressionType, Callable[[bytes | memoryview, int], bytes]]] = {
    CompressionType.ZLIB: _decompress_zlib,
    CompressionType.LZ4: _decompress_lz4,
    CompressionType.ZSTD: _decompress_zstd,
}


def _corrupt(what: str, expected: str, found: str) -> CorruptRecord:
    return CorruptRecord(RECORD, expected=expected, found=found, what=what)
