"""Bodies decompressed, and those that must not be: cut off, foreign, or far larger than they look."""

import tracemalloc
import zlib
from collections.abc import Callable
from contextlib import suppress

import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from protocol.compression import decompress
from protocol.errors import CorruptRecord
from protocol.sys_flag import CompressionType
from strategies import damaged

MEGABYTE = 1024 * 1024


def zstd_without_size(data: bytes) -> bytes:
    """As RocketMQ's stream writer does it: the size is not in the frame."""
    compressor = zstandard.ZstdCompressor().compressobj()
    return compressor.compress(data) + compressor.flush()


COMPRESSORS: list[tuple[CompressionType, Callable[[bytes], bytes]]] = [
    (CompressionType.ZLIB, zlib.compress),
    (CompressionType.LZ4, lz4.frame.compress),
    (CompressionType.ZSTD, zstandard.compress),
    (CompressionType.ZSTD, zstd_without_size),
]
each_compressor = pytest.mark.parametrize(("kind", "compress"), COMPRESSORS)
framed = pytest.mark.parametrize(("kind", "compress"), COMPRESSORS[1:])


@each_compressor
@pytest.mark.parametrize("size", [0, 1, 100, 70_000, 3_000_000])
def test_what_was_compressed_comes_back(kind: CompressionType, compress: Callable[[bytes], bytes], size: int) -> None:
    body = b"0123456789 body " * (size // 16) + b"x" * (size % 16)
    assert decompress(compress(body), kind) == body
    assert decompress(memoryview(compress(body)), kind, limit=max(size, 1)) == body


@each_compressor
def test_every_cut_is_noticed(kind: CompressionType, compress: Callable[[bytes], bytes]) -> None:
    data = compress(b"some body, some more body, and the end")
    for size in range(1 if kind is not CompressionType.ZLIB else 0, len(data)):
        with pytest.raises(CorruptRecord, match="complete stream"):
            decompress(data[:size], kind)


@each_compressor
def test_a_body_beyond_the_limit_is_refused(kind: CompressionType, compress: Callable[[bytes], bytes]) -> None:
    data = compress(bytes(5000))
    assert len(decompress(data, kind, limit=5000)) == 5000
    with pytest.raises(CorruptRecord, match="at most 4999 bytes"):
        decompress(data, kind, limit=4999)


@each_compressor
def test_a_bomb_never_takes_much_more_memory_than_the_limit(
    kind: CompressionType, compress: Callable[[bytes], bytes]
) -> None:
    bomb = compress(bytes(256 * MEGABYTE))
    tracemalloc.start()
    try:
        with pytest.raises(CorruptRecord, match="at most"):
            decompress(bomb, kind, limit=MEGABYTE)
        assert tracemalloc.get_traced_memory()[1] < 48 * MEGABYTE
    finally:
        tracemalloc.stop()


@framed
def test_frames_may_follow_one_another(kind: CompressionType, compress: Callable[[bytes], bytes]) -> None:
    assert decompress(compress(b"one ") + compress(b"two"), kind) == b"one two"
    with pytest.raises(CorruptRecord, match="at most 6 bytes"):
        decompress(compress(b"one ") + compress(b"two"), kind, limit=6)


@framed
def test_garbage_behind_a_frame_is_an_error(kind: CompressionType, compress: Callable[[bytes], bytes]) -> None:
    with pytest.raises(CorruptRecord, match="complete stream"):
        decompress(compress(b"one") + b"garbage!!!", kind)


def test_garbage_behind_a_zlib_stream_is_ignored_as_in_java() -> None:
    assert decompress(zlib.compress(b"one") + b"garbage", CompressionType.ZLIB) == b"one"


def test_neither_gzip_nor_raw_deflate_is_taken_for_zlib() -> None:
    for window_bits in (31, -15):
        compressor = zlib.compressobj(wbits=window_bits)
        with pytest.raises(CorruptRecord, match="ZLIB body"):
            decompress(compressor.compress(b"body") + compressor.flush(), CompressionType.ZLIB)


@each_compressor
@given(data=st.data())
def test_damaged_streams_give_a_body_or_the_error(
    kind: CompressionType, compress: Callable[[bytes], bytes], data: st.DataObject
) -> None:
    stream = data.draw(damaged(compress(b"0123456789" * 20)))
    with suppress(CorruptRecord):
        assert len(decompress(stream, kind, limit=MEGABYTE)) <= MEGABYTE
