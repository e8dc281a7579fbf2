"""A condition on JSON bodies: ``EXPR=VALUE``, met where one of the values that a JSONPath finds is the one given.

The path ends at the first ``=`` in front of which a whole JSONPath stands (RFC 9535, as python-jsonpath reads it), so
``$.items[?@.price==5].id=7`` is read as meant. A text equals VALUE as it stands; any other value equals what VALUE
says as JSON: ``$.id=5`` finds ``{"id": 5}``, ``{"id": 5.0}`` and ``{"id": "5"}``, ``$.ok=true`` ``{"ok": true}``.
A body may begin with a byte-order mark, and hold numbers of any size and what Python and Java write for no number.
"""

import itertools
import json
import math
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import msgspec

from protocol.errors import ConfigError

if TYPE_CHECKING:  # the library takes long to import: it is, here and below, where a condition is compiled
    from jsonpath import CompoundJSONPath, JSONPath

MOST_ENDS: Final = 16
"""Places that are tried where it is not plain where the path ends: each costs as much as compiling a path."""

_TOKEN: Final = re.compile(r"""[\[\]=]|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'""", re.DOTALL)
"""What says where a path ends: brackets, and texts in quotes."""

_MOST_DIGITS: Final = 4000
"""Digits of a number that Python makes an integer of; those of more are compared as decimals."""

_PLAIN: Final = re.compile(r"[0-9A-Za-z_.: -]{3,}")
"""Characters that a JSON string writes as they are, or as ``\\u`` and four digits, and in no third way."""


class JsonCondition:
    """One such condition; ``literal`` is what the raw bytes of a body that meets it contain, or ``\\u`` instead."""

    def __init__(self, text: str) -> None:
        """Compile it; raises ConfigError where no path and value can be read."""
        self._path, value = _split(text)
        self._text = value
        try:
            self._value: Any = _document(value.encode())
        except (ValueError, RecursionError):
            self._value = value
        names = [value] if isinstance(self._value, str) else _names(self._path)
        self.literal = max(map(_literal, names), key=len, default=b"") or None

    def matches(self, body: bytes | memoryview) -> bool:
        """Whether a body is JSON in which the path finds the value."""
        try:
            document = _document(body)
            return any(self._equals(match.obj) for match in self._path.finditer(document))
        except (ValueError, RecursionError, _path_error()):
            return False

    def _equals(self, found: Any) -> bool:
        if isinstance(found, str):
            return found == self._text
        return isinstance(found, bool) == isinstance(self._value, bool) and bool(found == self._value)


def _document(body: bytes | memoryview) -> Any:
    """The value that JSON says; raises ValueError for what is none, and RecursionError."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        # Ten times as slow, and lenient where msgspec is not.
        return json.loads(str(body, "utf-8-sig"), parse_int=_integer, parse_float=_fraction)


def _integer(digits: str) -> int | Decimal:
    return int(digits) if len(digits) <= _MOST_DIGITS else Decimal(digits)


def _fraction(text: str) -> float | Decimal:
    value = float(text)
    try:
        return value if math.isfinite(value) else Decimal(text)
    except ArithmeticError:  # an exponent of a hundred digits
        return value


def load_library() -> None:
    """Import what compiles paths, which takes a while."""
    import jsonpath  # noqa: F401


def _split(text: str) -> "tuple[JSONPath | CompoundJSONPath, str]":
    import jsonpath

    reason = "there is no = in it"
    for place in _ends(text):
        try:
            if text[:place].strip():
                return jsonpath.compile(text[:place]), text[place + 1 :]
            reason = "no path stands in front of the ="
        except (jsonpath.JSONPathError, re.error, OverflowError, RecursionError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    raise ConfigError(f"{text[:80]!r} is no JSONPath=VALUE: {reason}")


def _ends(text: str) -> list[int]:
    """The places at which the path may end, ascending: the first ``=`` outside brackets and quotes.

    A path may hold a regular expression between slashes, and in this brackets and quotes that are none: then some more.
    """
    ends: list[int] = []
    depth = 0
    for token in _TOKEN.finditer(text):
        if token[0] == "[":
            depth += 1
        elif token[0] == "]":
            depth -= 1
        elif token[0] == "=" and depth <= 0:
            ends.append(token.start())
            break
    if "/" in text or not ends:
        equals = (place for place, character in enumerate(text) if character == "=")
        ends = sorted({*ends, *itertools.islice(equals, MOST_ENDS)})
    return ends


def _path_error() -> type[Exception]:
    import jsonpath

    return jsonpath.JSONPathError


def _names(path: "JSONPath | CompoundJSONPath") -> list[str]:
    """Names of members without which the path finds nothing: another way to write a number there are many of."""
    import jsonpath
    from jsonpath.selectors import NameSelector

    if not isinstance(path, jsonpath.JSONPath):
        return []
    chosen = (segment.selectors for segment in path.segments)
    return [each[0].name for each in chosen if len(each) == 1 and isinstance(each[0], NameSelector)]


def _literal(value: str) -> bytes:
    """Return the longest part of a text that JSON holds as it is, unless escaped by number."""
    return max(_PLAIN.findall(value), key=len, default="").encode()
