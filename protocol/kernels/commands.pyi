"""The header of a command, of either form, read in one pass; see commands.pyx."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar, final

from _typeshed import ReadableBuffer

_Command = TypeVar("_Command")
_Make = Callable[
    [int, int, int, int, str | int | None, str | None, Fields | dict[str, str] | bytes, int, bytes], _Command
]

def read_header(header: ReadableBuffer, is_binary: bool, body: bytes, make: _Make[_Command]) -> _Command:
    """Make a command of what a header says: code, flag, opaque, version, language, remark and fields.

    `make` is called with them in this order, then the serialize type and the body. JSON in the place of the fields that
    is no object stays as it came, as bytes. Numbers may be in quotes, with a fraction of zero and with an exponent; of
    members with one name the last counts, if all are of the right type. Raises `BadCommand` for no command, and for a
    binary header in which a length is negative or reaches beyond what holds it (the header, or the block of fields).
    """

@final
class HeaderPlan:
    """How a typed header is made of fields."""

    def __init__(self, header_type: type[Any], fields: Iterable[tuple[str, str, bool, object]]) -> None:
        """Its fields in order: wire name, kind, whether it must be there, and what it is where it is absent.

        Kinds are ``i32``, ``i64`` and ``boolean``, nothing for a text, and any other for what is converted elsewhere.
        """

@final
class Fields:
    """The fields of one request, as they lie in its header; equal to others, and to a dict, with the same texts."""

    def texts(self) -> dict[str, str]:
        """All fields as texts as Java sees them, those that are null left out; the same each time.

        Bytes that are no UTF-8 become U+FFFD, halves of characters `?`.
        """

    def text(self, name: str) -> str | None:
        """One field as a text; None where it is absent or null."""

    def header(self, plan: HeaderPlan) -> Any | None:
        """The typed header of a plan; None where a field is missing or is not written as Java's clients write it."""
