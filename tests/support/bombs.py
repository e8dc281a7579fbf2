"""Bodies that cost far more than their bytes: bombs of every codec, in every nesting."""

import gzip
import zlib

import lz4.frame
import zstandard
from hypothesis import strategies as st

from protocol.compression import Codec

PACK = {
    Codec.ZLIB: zlib.compress,
    Codec.DEFLATE: lambda data: zlib.compress(data, wbits=-zlib.MAX_WBITS),
    Codec.GZIP: lambda data: gzip.compress(data, mtime=0),
    Codec.LZ4: lz4.frame.compress,
    Codec.ZSTD: zstandard.compress,
}

SKIPPABLE = b"\x50\x2a\x4d\x18" + bytes(4)
EMPTY_LZ4 = bytes.fromhex("04224d1860408200000000")

EMPTY_ZSTD = bytes.fromhex("28b52ffd2000010000")

UNITS: dict[Codec, tuple[bytes, ...]] = {
    Codec.GZIP: (gzip.compress(b"", mtime=0), gzip.compress(b"x", mtime=0)),
    Codec.LZ4: (EMPTY_LZ4, SKIPPABLE, lz4.frame.compress(b"x"), lz4.frame.compress(b"x", block_size=7)),
    Codec.ZSTD: (EMPTY_ZSTD, SKIPPABLE, zstandard.compress(b"x")),
}


def many_blocks(count: int) -> bytes:
    """A zstd frame of empty blocks of three bytes each."""
    return bytes.fromhex("28b52ffd2000") + bytes(3) * (count - 1) + b"\x01\x00\x00"


def many_repeats(count: int) -> bytes:
    """A zstd frame of blocks of four bytes, each of which becomes 128 KiB."""
    block = (1 << 17) << 3 | 1 << 1
    blocks = [(block | (number == count - 1)).to_bytes(3, "little") + b"r" for number in range(count)]
    return bytes.fromhex("28b52ffd0050") + b"".join(blocks)


def many_stored_blocks(count: int) -> bytes:
    """A zlib stream of empty stored blocks of five bytes each."""
    return b"\x78\x01" + many_bare_blocks(count) + b"\x00\x00\x00\x01"


def many_bare_blocks(count: int) -> bytes:
    """The same without the frame of zlib."""
    return b"\x00\x00\x00\xff\xff" * count + b"\x01\x00\x00\xff\xff"


def long_runs(codec: Codec, size: int) -> bytes:
    return PACK[codec](bytes(size))


@st.composite
def bombs(draw: st.DrawFn, most_units: int = 400_000, most_run: int = 80 << 20) -> tuple[Codec, bytes]:
    """A codec and a body of it, which need not be one that is refused: of very many parts, or of a very long run."""
    codec = draw(st.sampled_from(list(Codec)))
    kinds = [lambda count: long_runs(codec, count * most_run // most_units)]
    if codec in UNITS:
        units = draw(st.lists(st.sampled_from(UNITS[codec]), min_size=1, max_size=3))
        kinds.append(lambda count: b"".join(units) * (count // len(units) + 1))
        kinds.append(lambda count: b"".join(units) * (count // 100) + long_runs(codec, count))
    if codec is Codec.ZSTD:
        kinds += [lambda count: many_blocks(count + 1), lambda count: many_repeats(count % 2000 + 1)]
    if codec is Codec.ZLIB:
        kinds.append(many_stored_blocks)
    if codec is Codec.DEFLATE:
        kinds.append(many_bare_blocks)
    data = draw(st.sampled_from(kinds))(draw(st.integers(0, most_units)))
    for outer in draw(st.lists(st.sampled_from(list(Codec)), max_size=3)):
        codec, data = outer, PACK[outer](data)
    return codec, data
