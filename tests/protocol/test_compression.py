"""Bodies decompressed, and those that must not be: cut off, foreign, or far larger than they look."""

import gzip
import zlib
from collections.abc import Callable
from typing import Any

import lz4.frame
import pytest
import zstandard
from hypothesis import example, given, settings

import protocol.compression
from bombs import EMPTY_LZ4, EMPTY_ZSTD, PACK, UNITS, bombs, many_blocks, many_stored_blocks
from examples import examples
from protocol.compression import (
    DECOMPRESSED_LIMIT,
    LIST_BYTES,
    LIST_FRAMES,
    MOST_BLOCKS,
    MOST_FRAMES,
    PIECE,
    STORED_LIMIT,
    Budget,
    Codec,
    decode,
    decompress,
)
from protocol.errors import CorruptRecord
from protocol.sys_flag import CompressionType


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


@each_compressor
@pytest.mark.parametrize("size", [0, 1, 70_000])
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


FRAMED = [(codec, unit) for codec, units in UNITS.items() for unit in units]


def plainly(codec: Codec, data: bytes) -> bytes:
    """What the libraries make of a stream of any number of frames, without bounds."""
    match codec:
        case Codec.ZLIB:
            return zlib.decompress(data)
        case Codec.DEFLATE:
            return zlib.decompress(data, -zlib.MAX_WBITS)
        case Codec.GZIP:
            return gzip.decompress(data)
        case Codec.LZ4:
            body = b""
            while data:
                part, used = lz4.frame.decompress(data, return_bytes_read=True)
                body, data = body + part, data[used:]
            return body
        case Codec.ZSTD:
            reader = zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True)
            return reader.read()


class Fed:
    """How many bytes the libraries were given, and how large the pieces were that they made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes = self.calls = self.largest = 0
        chunk, new_decoder = lz4.frame.decompress_chunk, zlib.decompressobj

        def decompress_chunk(context: Any, data: bytes, **more: Any) -> Any:
            found = chunk(context, data, **more)
            return self._note(data, found[0], found)

        class Decoder:
            def __init__(self, **more: Any) -> None:
                self._inner = new_decoder(**more)

            def __getattr__(self, name: str) -> Any:
                return getattr(self._inner, name)

        def decompress(decoder: Decoder, data: bytes, most: int) -> bytes:
            piece = decoder._inner.decompress(data, most)
            return self._note(data, piece, piece)

        Decoder.decompress = decompress  # type: ignore[attr-defined]
        monkeypatch.setattr(lz4.frame, "decompress_chunk", decompress_chunk)
        monkeypatch.setattr(protocol.compression.zlib, "decompressobj", Decoder)  # type: ignore[attr-defined]

    def _note(self, data: bytes, piece: bytes, found: Any) -> Any:
        self.bytes += len(data)
        self.calls += 1
        self.largest = max(self.largest, len(piece))
        return found


def test_frames_and_members_are_counted_whatever_is_in_them() -> None:
    for codec, unit in FRAMED:
        assert decode(unit * MOST_FRAMES, codec, Budget()) == plainly(codec, unit) * MOST_FRAMES
        with pytest.raises(CorruptRecord, match=f"more, expected at most {MOST_FRAMES} frames"):
            decode(unit * (MOST_FRAMES + 1), codec, Budget())
        with pytest.raises(CorruptRecord, match=f"more, expected at most {LIST_FRAMES} frames"):
            decode(unit * (LIST_FRAMES + 1), codec, Budget.of_list())


def test_blocks_of_zstd_are_counted_in_all_frames_together() -> None:
    assert decode(many_blocks(MOST_BLOCKS), Codec.ZSTD, Budget()) == b""
    for data in (many_blocks(MOST_BLOCKS + 1), many_blocks(MOST_BLOCKS // 2) * 3):
        with pytest.raises(CorruptRecord, match=f"at most {MOST_BLOCKS} blocks"):
            decode(data, Codec.ZSTD, Budget())


def test_empty_blocks_of_zlib_are_read_once() -> None:
    assert decode(many_stored_blocks(800_000), Codec.ZLIB, Budget()) == b""


def test_what_is_read_is_bounded_too() -> None:
    for codec in list(Codec):
        with pytest.raises(CorruptRecord, match=f"{STORED_LIMIT + 1}, expected at most {STORED_LIMIT} bytes"):
            decode(memoryview(bytes(STORED_LIMIT + 1)), codec, Budget())


def test_one_budget_is_for_all_that_is_packed_in_a_record() -> None:
    budget = Budget(LIST_BYTES)
    data = zlib.compress(bytes(LIST_BYTES // 2))
    assert len(decode(data, Codec.ZLIB, budget)) == len(decode(data, Codec.ZLIB, budget)) == LIST_BYTES // 2
    with pytest.raises(CorruptRecord, match=f"zlib body more, expected at most {LIST_BYTES} bytes"):
        decode(zlib.compress(b"x"), Codec.ZLIB, budget)
    with pytest.raises(CorruptRecord, match=f"LZ4 body more, expected at most {LIST_BYTES} bytes"):
        decode(lz4.frame.compress(b""), Codec.LZ4, budget)  # not even begun, where there may be thousands


@pytest.mark.parametrize("codec", list(Codec))
def test_time_is_the_last_guard_and_looked_at_between_pieces(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(0, 10_000, 10))
    monkeypatch.setattr(protocol.compression.time, "monotonic", lambda: next(now))  # type: ignore[attr-defined]
    assert decode(PACK[codec](b"short"), codec, Budget()) == b"short"
    with pytest.raises(CorruptRecord, match="longer, expected to be complete within 30 seconds"):
        decode(PACK[codec](bytes(20 * PIECE)), codec, Budget())


@settings(max_examples=examples(25), deadline=None)
@given(bombs())
@example((Codec.LZ4, EMPTY_LZ4 * 363_636))
@example((Codec.ZSTD, EMPTY_ZSTD * 444_444))
def test_a_bomb_is_decoded_in_one_pass_or_refused_by_a_count(bomb: tuple[Codec, bytes]) -> None:
    codec, data = bomb
    with pytest.MonkeyPatch.context() as monkeypatch:
        fed = Fed(monkeypatch)
        answers = []
        for _ in range(2):
            try:
                answers.append(decode(data, codec, Budget()))
            except CorruptRecord as error:
                answers.append(str(error).encode())
        assert answers[0] == answers[1]
    # Bytes behind a short frame, and those for which there was no room in a piece, are given once more.
    assert fed.bytes <= 2 * (len(data) + (MOST_FRAMES + 2) * 4096 + (DECOMPRESSED_LIMIT // PIECE + 2) * 65_536)
    assert fed.largest <= PIECE
    assert b"expected at most" in answers[0][:200] or answers[0] == plainly(codec, data)
