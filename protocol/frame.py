"""Frames: the length-prefixed envelopes of the remoting protocol, over any split of the byte stream.

PREFIX
offset  size  type  field        meaning
0       4     i32   length       bytes that follow this field: 4 + header length + body length
4       4     u32   header_word  serialize type in the high byte, header length in the other three

then the header, then the body. Source: remoting-protocol §1.1.
"""

import re
from collections.abc import Callable
from struct import Struct
from typing import Final, TypeAlias

from protocol.errors import BadFrame, FrameTooLarge, RequestByHttp

Frame: TypeAlias = tuple[int, bytes, bytes]
"""Serialize type, header bytes, body bytes."""

PREFIX: Final = Struct(">iI")
LENGTH_SIZE: Final = 4
"""Bytes of the length field, which does not count itself."""
HEADER_LENGTH_MASK: Final = 0xFFFFFF

_HTTP: Final = re.compile(rb"(?P<answer>HTTP/)|(?!PROXY )[A-Z]{3,7} ")
"""How a request or an answer of HTTP/1.1 begins; as a length, any of these is beyond every limit.

A PROXY header, which begins likewise, is none.
"""

_HTTP_ANSWER: Final = "an answer by HTTP: brokers listen on another port, mostly 10911, and name servers on 9876"

FRAME_LIMIT: Final = 16 * 1024 * 1024
"""Bytes of a whole frame, length field included, that a Java peer accepts by default."""

_unpack = PREFIX.unpack_from


class SkippedBody(bytes):
    """The body of a frame that was not kept: it has no content, and `len` returns the length it had."""

    _length: int

    def __new__(cls, length: int) -> "SkippedBody":
        """A body of `length` bytes."""
        body = super().__new__(cls)
        body._length = length
        return body

    def __len__(self) -> int:
        return self._length


class FrameDecoder:
    """Cuts a byte stream into frames; `limit` is the largest whole frame in bytes, its length field included.

    A header of more than `header_limit` bytes is refused before it is received. A stream that is found bad stays bad:
    its error is raised again by every later `feed`.

    `skips` decides about a frame that is not complete yet and whose body has more than `body_limit` bytes: it gets the
    header as soon as that has come, and returns True if the body is not wanted. Such a frame is handed out at once,
    with a `SkippedBody`, and the bytes of its body are thrown away as they come.
    """

    def __init__(
        self,
        limit: int = FRAME_LIMIT,
        header_limit: int = HEADER_LENGTH_MASK,
        body_limit: int = FRAME_LIMIT,
        skips: Callable[[int, bytes], bool] | None = None,
    ) -> None:
        self._limit = limit
        self._header_limit = header_limit
        self._body_limit = body_limit if skips is not None else limit
        self._skips = skips
        self._left_to_skip = 0
        self._longest = limit - LENGTH_SIZE
        self._buffer = bytearray()
        self._wanted = 0
        self._error: BadFrame | None = None

    @property
    def needs_more(self) -> bool:
        """Whether a frame has begun and is not complete: the end of the stream would cut it off."""
        return bool(self._buffer) or self._left_to_skip > 0

    @property
    def buffered(self) -> int:
        """Bytes kept of a frame that is not complete."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that `data` completes, in order; their parts are slices of it, the rest is kept.

        Raises `BadFrame` (lengths that contradict each other) or `FrameTooLarge`; whole frames that came before the
        bad one are in the error's `frames`.
        """
        if self._left_to_skip:
            skipped = min(self._left_to_skip, len(data))
            self._left_to_skip -= skipped
            data = data[skipped:]
        if self._buffer or self._error is not None:
            joined = self._joined(data)
            if joined is None:
                return []
            data = joined
        frames: list[Frame] = []
        # Positions of the parts of one frame; numbers instead of names because this runs for every frame.
        header, end, longest, header_limit = 8, len(data), self._longest, self._header_limit
        while header <= end:
            length, word = _unpack(data, header - 8)
            header_length = word & 0xFFFFFF
            body = header + header_length
            stop = header - 4 + length
            if body > stop or length > longest or header_length > header_limit:
                raise self._refusal(length, word, frames)
            if stop > end:
                self._wanted = 4 + length
                if stop - body > self._body_limit and self._is_skipped(data, header, body):
                    frames.append((word >> 24, data[header:body], SkippedBody(stop - body)))
                    self._left_to_skip = stop - end
                    return frames
                break
            frames.append((word >> 24, data[header:body], data[body:stop]))
            header = stop + 8
        else:
            self._wanted = 8
        if header - 8 < end:
            self._buffer += data[header - 8 :]
        return frames

    def _is_skipped(self, data: bytes, header: int, body: int) -> bool:
        """Whether a frame's body is not wanted; its header lies between two positions, and may not be complete yet."""
        if body > len(data):
            self._wanted = body - header + PREFIX.size
            return False
        return self._skips is not None and self._skips(data[header - 4], data[header:body])

    def _joined(self, data: bytes) -> bytes | None:
        """Join the bytes that are kept and `data` into one piece once they complete a frame or a prefix; None before.

        Bytes are appended to one growing buffer and leave it once, so that a frame in many pieces costs its length.
        """
        if self._error is not None:
            self._error.frames = []
            raise self._error
        self._buffer += data
        if len(self._buffer) < self._wanted:
            return None
        joined = bytes(self._buffer)
        self._buffer = bytearray()
        return joined

    def _refusal(self, length: int, word: int, frames: list[Frame]) -> BadFrame:
        """The error for a prefix, which the decoder keeps."""
        header_length = word & HEADER_LENGTH_MASK
        left = length - LENGTH_SIZE
        beginning = PREFIX.pack(length, word)
        if found := _HTTP.match(beginning):
            self._error = BadFrame(_HTTP_ANSWER) if found["answer"] else RequestByHttp()
        elif length > self._longest:
            self._error = FrameTooLarge(length + LENGTH_SIZE, self._limit)
        elif length < LENGTH_SIZE:
            self._error = BadFrame(f"frame length {length}, expected at least {LENGTH_SIZE}")
        elif header_length > left:
            self._error = BadFrame(f"header length {header_length}, but only {left} bytes are left for it")
        else:
            self._error = BadFrame(f"a header of {header_length} bytes, more than the limit of {self._header_limit}")
        self._error.frames = frames
        return self._error
