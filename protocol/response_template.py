"""One response for many requests: encoded once, with each request's opaque put in its place.

Thousands of consumers may wait for the same message; but for the opaque, and the length of its digits, they are told
the same.
"""

import re
from collections.abc import Iterable
from typing import Final

from protocol.codes import SerializeType
from protocol.command import Command, Response, encode_response
from protocol.frame import LENGTH_SIZE, PREFIX, SERIALIZE_TYPE_SHIFT

OPAQUE: Final = '"opaque":'
"""What stands before a response's opaque."""
LONGEST_OPAQUE: Final = 11
"""Digits, and a sign."""
_OPAQUE_POSITION: Final = 5
"""Where the opaque stands in a binary header (:mod:`protocol.binary_header`)."""

_pack_prefix: Final = PREFIX.pack


def cut_header(response: Response, names: Iterable[str]) -> list[bytes]:
    """The JSON header of a response in pieces: the numbers between them are those right behind each of some names.

    Within a text a quote is escaped: a name with quotes around it, or one before the number, stands nowhere else.
    """
    header = encode_response(Command(code=0), response)[PREFIX.size :]
    pieces, start = [], 0
    for name in names:
        number = re.compile(re.escape(name.encode()) + rb"(-?[0-9]+)").search(header, start)
        assert number is not None, name
        pieces.append(header[start : number.start(1)])
        start = number.end()
    return [*pieces, header[start:]]


class ResponseTemplate:
    """A response in one of the two forms; `size` is that of its longest frame in bytes, body included."""

    __slots__ = ("_before", "_behind", "_is_json", "_length", "_word", "body", "size")

    def __init__(self, serialize_type: int, response: Response) -> None:
        """Encode a response. Raises `BadCommand` for what the binary form cannot hold, and `FrameTooLarge`."""
        self._is_json = serialize_type == SerializeType.JSON
        self.body = response.body
        if self._is_json:
            self._before, self._behind = cut_header(response, (OPAQUE,))
        else:
            header = encode_response(Command(code=0, serialize_type=serialize_type), response)[PREFIX.size :]
            self._before, self._behind = header[:_OPAQUE_POSITION], header[_OPAQUE_POSITION + 4 :]
        fixed = len(self._before) + len(self._behind)
        self._length = LENGTH_SIZE + fixed + len(response.body)
        self._word = (serialize_type << SERIALIZE_TYPE_SHIFT) + fixed
        self.size = PREFIX.size + fixed + LONGEST_OPAQUE + len(response.body)

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
