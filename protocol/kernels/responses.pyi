"""Headers of commands, written in both forms; see responses.pyx."""

from collections.abc import Iterable, Mapping
from typing import Protocol, final

OPAQUE: str
"""What stands before the opaque in a JSON header."""

class _Response(Protocol):
    """As :class:`protocol.command.Response`."""

    code: int
    remark: str | None
    ext_fields: dict[str, str] | None
    body: bytes | memoryview

def encode_head(
    serialize_type: int,
    code: int,
    flag: int,
    opaque: int,
    remark: str | None,
    ext_fields: Mapping[str, str] | None,
    version: int,
    body_length: int,
) -> bytes:
    """Prefix and header of a command whose body has so many bytes, in JSON (0) or in binary (1).

    Halves of characters become `?`. Raises `BadCommand` for what the binary form cannot hold, and `FrameTooLarge`.
    """

@final
class ResponseTemplate:
    """A response in one of the two forms, encoded once for many requests."""

    def __new__(cls, serialize_type: int, response: _Response, names: Iterable[str] = ...) -> ResponseTemplate:
        """Encode a response; its `names` stand right before the numbers that are left open, in JSON: the opaque's.

        Raises `BadCommand` for what the binary form cannot hold, and `FrameTooLarge`.
        """
    @property
    def numbers(self) -> int:
        """How many numbers are left open."""
    @property
    def body(self) -> bytes | memoryview:
        """What is to be written behind each head."""
    @property
    def size(self) -> int:
        """Bytes of the longest frame, body included."""
    def head(self, opaque: int) -> bytes:
        """Prefix and header of the answer to a request; raises ValueError where other numbers are open, too."""
