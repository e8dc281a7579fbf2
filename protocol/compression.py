"""Decode what clients compressed and applications packed, in one pass and within bounds: it may be a bomb.

The formats are a zlib stream (RFC 1950), deflate without its frame (RFC 1951), gzip members (RFC 1952), LZ4 frames and
zstd frames (RFC 8878; store-format §2.3). As in the Java clients, bytes behind a zlib stream are ignored, members
and frames may follow one another, and a stream that ends early is an error.

A stream is read through a window, and comes out in pieces of at most `PIECE` bytes, between which other threads run.
What it may take is counted in a `Budget`: bytes in and out, frames, blocks. Counts are the same on a busy machine; time
is looked at between pieces, as the last guard alone.
"""

import time
import zlib
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Final, TypeAlias

from protocol.errors import CorruptRecord
from protocol.message_layout import RECORD
from protocol.sys_flag import CompressionType

STORED_LIMIT: Final = 64 * 1024 * 1024
"""Bytes of one stream that are read at most."""

DECOMPRESSED_LIMIT: Final = 64 * 1024 * 1024
"""Bytes that are made of one record at most; brokers accept bodies of 4 MiB by default, compressed or not."""

MOST_FRAMES: Final = 4096
"""Frames and members of one record, empty and skippable ones included: each costs far more than its bytes."""

MOST_BLOCKS: Final = 65_536
"""Blocks in the zstd frames of one record: an empty one has three bytes."""

LIST_BYTES: Final = 1 << 20
LIST_FRAMES: Final = 64
"""Bounds for a body of which a list shows the beginning: a list has many."""

LAST_SECONDS: Final = 30.0
"""The last guard, which no counted amount of work reaches on a machine that works."""

PIECE: Final = 1 << 20
"""Bytes that come out at once at most."""

_FIRST_WINDOW: Final = 4096
_WINDOW: Final = 65_536
"""Bytes that a decoder is given at once: few at a frame's beginning, since what lies behind a short one is copied."""

_ZSTD_MAGIC: Final = 0xFD2FB528
_SKIPPABLE_MAGIC: Final = 0x184D2A5
_CONTENT_SIZES: Final = (0, 2, 4, 8)
_DICTIONARY_SIZES: Final = (0, 1, 2, 4)
_CHECKSUM: Final = 4
_RLE: Final = 1

Step: TypeAlias = Callable[[memoryview], tuple[bytes, int, bool]]
"""Decodes the next bytes of a frame: what comes out, how many bytes were used, and whether the frame ends with them."""


class Codec(Enum):
    """A format that is decoded here; the value is its name for people."""

    ZLIB = "zlib"
    DEFLATE = "deflate"
    GZIP = "gzip"
    LZ4 = "LZ4"
    ZSTD = "zstd"


class Budget:
    """What may still be spent on one record: all that is packed in its body, and in the messages of a batch."""

    __slots__ = ("_blocks", "_bytes_left", "_frames", "_most_bytes", "_most_frames", "_until", "_what")

    def __init__(self, most_bytes: int = DECOMPRESSED_LIMIT, most_frames: int = MOST_FRAMES) -> None:
        self._most_bytes = self._bytes_left = most_bytes
        self._most_frames = most_frames
        self._frames = self._blocks = 0
        self._until, self._what = 0.0, ""

    @classmethod
    def of_list(cls) -> "Budget":
        """What may be spent on a record in a list, for the beginning of its body alone."""
        return cls(LIST_BYTES, LIST_FRAMES)

    @property
    def is_spent(self) -> bool:
        """Whether more was asked for than there was."""
        is_late = 0 < self._until < time.monotonic()
        return is_late or self._bytes_left < 0 or self._frames > self._most_frames or self._blocks > MOST_BLOCKS

    def start(self, what: str) -> None:
        """Begin with one stream, whose name errors have; raises `CorruptRecord` where nothing is left."""
        self._what = what
        self._until = time.monotonic() + LAST_SECONDS
        self.spend_bytes(0)

    def spend_bytes(self, count: int) -> None:
        """Count bytes that came out; raises `CorruptRecord` beyond the bounds, of time too."""
        self._bytes_left -= count
        if self._bytes_left < 0:
            raise _corrupt(self._what, f"at most {self._most_bytes} bytes", "more")
        if time.monotonic() > self._until:
            raise _corrupt(self._what, f"to be complete within {LAST_SECONDS:.0f} seconds", "longer")

    def spend_frame(self) -> None:
        """Count one frame or member; raises `CorruptRecord` beyond the bound."""
        self._frames += 1
        if self._frames > self._most_frames:
            raise _corrupt(self._what, f"at most {self._most_frames} frames", "more")

    def spend_block(self) -> None:
        """Count one block of a zstd frame; raises `CorruptRecord` beyond the bound."""
        self._blocks += 1
        if self._blocks > MOST_BLOCKS:
            raise _corrupt(self._what, f"at most {MOST_BLOCKS} blocks", "more")


def decompress(
    data: bytes | memoryview,
    kind: CompressionType,
    *,
    limit: int = DECOMPRESSED_LIMIT,
    budget: Budget | None = None,
) -> bytes:
    """The bytes that the body of a compressed message decompresses to, as :func:`decode`.

    `limit` is for who has no budget: so many bytes may come out.
    """
    return decode(data, Codec[kind.name], budget or Budget(limit))


def decode(data: bytes | memoryview, codec: Codec, budget: Budget) -> bytes:
    """The bytes that a stream holds; what they take is spent of a budget.

    Raises `CorruptRecord` for what is no such stream, and beyond the budget.
    """
    what = f"{codec.value} body"
    view = memoryview(data)
    if len(view) > STORED_LIMIT:
        raise _corrupt(what, f"at most {STORED_LIMIT} bytes", f"{len(view)}")
    pieces = []
    budget.start(what)
    try:
        for piece in _PIECES[codec](view, budget):
            budget.spend_bytes(len(piece))
            pieces.append(piece)
    except (zlib.error, RuntimeError, EOFError, MemoryError) as error:
        raise _corrupt(what, "a complete stream", str(error) or type(error).__name__) from error
    return b"".join(pieces)


def _in_frames(view: memoryview, budget: Budget, begin: Callable[[], Step], *, is_one: bool = False) -> Iterator[bytes]:
    """Pieces of frames that follow one another, or of one, behind which anything may follow."""
    position = 0
    while True:
        budget.spend_frame()
        step, window, is_end = begin(), _FIRST_WINDOW, False
        while not is_end:
            piece, used, is_end = step(view[position : position + window])
            if not (piece or used or is_end):
                raise EOFError("the stream ends early")
            yield piece
            position += used
            window = min(4 * window, _WINDOW)
        if is_one or position >= len(view):
            return


def _zlib_step(window_bits: int) -> Step:
    decoder = zlib.decompressobj(wbits=window_bits)

    def step(data: memoryview) -> tuple[bytes, int, bool]:
        piece = decoder.decompress(data, PIECE)
        return piece, len(data) - len(decoder.unconsumed_tail) - len(decoder.unused_data), decoder.eof

    return step


def _zlib_pieces(view: memoryview, budget: Budget) -> Iterator[bytes]:
    return _in_frames(view, budget, lambda: _zlib_step(zlib.MAX_WBITS), is_one=True)


def _deflate_pieces(view: memoryview, budget: Budget) -> Iterator[bytes]:
    return _in_frames(view, budget, lambda: _zlib_step(-zlib.MAX_WBITS))


def _gzip_pieces(view: memoryview, budget: Budget) -> Iterator[bytes]:
    return _in_frames(view, budget, lambda: _zlib_step(16 + zlib.MAX_WBITS))


def _lz4_pieces(view: memoryview, budget: Budget) -> Iterator[bytes]:
    from lz4 import frame  # imported here: stores without LZ4 bodies start without it

    context = frame.create_decompression_context()

    def step(data: memoryview) -> tuple[bytes, int, bool]:
        piece, used, is_end = frame.decompress_chunk(context, bytes(data), max_length=PIECE)
        return piece, used, is_end

    return _in_frames(view, budget, lambda: step)


def _zstd_pieces(view: memoryview, budget: Budget) -> Iterator[bytes]:
    import zstandard  # as above

    _check_zstd_frames(view, budget)
    reader = zstandard.ZstdDecompressor().stream_reader(view, read_size=_WINDOW, read_across_frames=True)
    try:
        size = _WINDOW  # room that is made for each piece: most bodies are short
        while piece := reader.read(size):
            yield piece
            size = PIECE
    except zstandard.ZstdError as error:
        raise RuntimeError(str(error)) from error


def _check_zstd_frames(view: memoryview, budget: Budget) -> None:
    """Count the frames of a zstd stream and their blocks, and find that the last one is complete.

    The library says neither where a frame ends nor that one is cut, and takes no limit but this way.
    """
    position = 0
    while True:
        budget.spend_frame()
        magic, position = _number(view, position, 4)
        if magic >> 4 == _SKIPPABLE_MAGIC:
            size, position = _number(view, position, 4)
            position += size
        elif magic == _ZSTD_MAGIC:
            position = _end_of_zstd_frame(view, position, budget)
        else:
            raise RuntimeError(f"a frame begins with 0x{magic:08x}")
        if position > len(view):
            raise EOFError("the stream ends early")
        if position == len(view):
            return


def _end_of_zstd_frame(view: memoryview, position: int, budget: Budget) -> int:
    """Where a frame ends whose descriptor stands at a position (RFC 8878, 3.1.1)."""
    descriptor, position = _number(view, position, 1)
    is_single_segment = bool(descriptor & 0x20)
    position += 0 if is_single_segment else 1
    position += _DICTIONARY_SIZES[descriptor & 3]
    position += _CONTENT_SIZES[descriptor >> 6] or is_single_segment
    is_last = False
    while not is_last:
        budget.spend_block()
        header, position = _number(view, position, 3)
        is_last = bool(header & 1)
        position += 1 if header >> 1 & 3 == _RLE else header >> 3
    return position + (_CHECKSUM if descriptor & 4 else 0)


def _number(view: memoryview, position: int, size: int) -> tuple[int, int]:
    """A number at a position, least byte first, and the position behind it."""
    end = position + size
    if end > len(view):
        raise EOFError("the stream ends early")
    return int.from_bytes(view[position:end], "little"), end


_PIECES: Final[dict[Codec, Callable[[memoryview, Budget], Iterator[bytes]]]] = {
    Codec.ZLIB: _zlib_pieces,
    Codec.DEFLATE: _deflate_pieces,
    Codec.GZIP: _gzip_pieces,
    Codec.LZ4: _lz4_pieces,
    Codec.ZSTD: _zstd_pieces,
}


def _corrupt(what: str, expected: str, found: str) -> CorruptRecord:
    return CorruptRecord(RECORD, expected=expected, found=found, what=what)
