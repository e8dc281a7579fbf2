"""One response for many requests: encoded once, with each request's opaque put in its place.

Thousands of consumers may wait for the same message; but for the opaque, and the length of its digits, they are told
the same.
"""

from typing import Final

from protocol.codes import SerializeType
from protocol.command import Command, Response, encode_response
from protocol.frame import LENGTH_SIZE, PREFIX, SERIALIZE_TYPE_SHIFT

_MARK: Final = 1_234_567_890
_JSON_MARK: Final = b'"opaque":%d' % _MARK
"""Within a text a quote is escaped, so this stands nowhere else in a header."""
_OPAQUE_POSITION: Final = 5
"""Where the opaque stands in a binary header (:mod:`protocol.binary_header`)."""

_pack_prefix: Final = PREFIX.pack


class ResponseTemplate:
    """A response in one of the two forms; `size` is that of its longest frame in bytes, body included."""

    __slots__ = ("_before", "_behind", "_is_json", "_length", "_word", "body", "size")

    def __init__(self, serialize_type: int, response: Response) -> None:
        """Encode a response. Raises `BadCommand` for what the binary form cannot hold, and `FrameTooLarge`."""
        encoded = encode_response(Command(code=0, opaque=_MARK, serialize_type=serialize_type), response)
        header = encoded[PREFIX.size :]
        self._is_json = serialize_type == SerializeType.JSON
        self.body = response.body
        if self._is_json:
            before, _, self._behind = header.partition(_JSON_MARK)
            self._before = before + b'"opaque":'
        else:
            self._before, self._behind = header[:_OPAQUE_POSITION], header[_OPAQUE_POSITION + 4 :]
        fixed = len(self._before) + len(self._behind)
        self._length = LENGTH_SIZE + fixed + len(response.body)
        self._word = (serialize_type << SERIALIZE_TYPE_SHIFT) + fixed
        self.size = len(encoded) + 1 + len(response.body)

    def head(self, opaque: int) -> bytes:
        """Prefix and header of the answer to a request; the body is to be written right behind."""
        digits = b"%d" % opaque if self._is_json else opaque.to_bytes(4, "big", signed=True)
        length = len(digits)
        return b"%b%b%b%b" % (
            _pack_prefix(self._length + length, self._word + length),
            self._before,
            digits,
            self._behind,
        )
