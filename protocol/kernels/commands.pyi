"""The JSON header of a command, read in one pass; see commands.pyx."""

from collections.abc import Callable
from typing import TypeVar

from _typeshed import ReadableBuffer

_Command = TypeVar("_Command")

def read_json_header(
    header: ReadableBuffer,
    body: bytes,
    make: Callable[[int, int, int, int, str | int | None, str | None, dict[str, str] | bytes, int, bytes], _Command],
) -> _Command:
    """Make a command of what a header says: code, flag, opaque, version, language, remark and fields.

    `make` is called with them in this order, then serialize type 0 and the body. Fields are texts as Java sees them,
    those that are null left out; JSON in their place that is no object stays as it came, as bytes. Numbers may be in
    quotes, with a fraction of zero and with an exponent; of members with one name the last counts, if all are of the
    right type. Bytes that are no UTF-8 become U+FFFD, halves of characters `?`. Raises `BadCommand` for no command.
    """
