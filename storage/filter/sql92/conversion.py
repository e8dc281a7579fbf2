"""Texts read as numbers, as Java reads them: what a comparison does to a property whose other side is a number.

Python's `int` and `float` take other forms (blanks, `_`, `inf`), so the form is checked before they are asked. Doubles
come back as integers in the order of `Double.compare`, in which −0.0 is below 0.0 and NaN above everything and equal
to itself: comparing those is comparing doubles as Java does. Source: filters §2.5.
"""

import re
from struct import Struct
from typing import Final
from unicodedata import decimal

from protocol.errors import FilterEvaluationError, quote

INT32: Final = (-(1 << 31), (1 << 31) - 1)
INT64: Final = (-(1 << 63), (1 << 63) - 1)

_INTEGER: Final = re.compile(r"[+-]?\d+")  # any Unicode digits
# Possessive throughout: a property of 32,000 digits and a letter must not be tried in all its parts.
_DECIMAL: Final = re.compile(r"([+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?)[fFdD]?")
_HEXADECIMAL: Final = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]++\.?|[0-9a-fA-F]*+\.[0-9a-fA-F]++)[pP][+-]?[0-9]++)[fFdD]?"
)
_WORDS: Final = re.compile(r"[+-]?(?:NaN|Infinity)")
_SURELY_INT32: Final = 10  # shorter texts of digits are below 2^31
_LONGEST_INTEGER: Final = 4000  # characters; Python refuses to convert somewhat more
_MOST_DIGITS: Final = 19  # of an i64
_DOUBLE: Final = Struct(">d")
_BITS: Final = Struct(">q")
_MAGNITUDE: Final = (1 << 63) - 1
# Java's String.trim cuts every character up to the blank, not what Unicode calls white space.
_TRIMMED: Final = "".join(map(chr, range(0x21)))


def to_int32(text: str) -> int:
    """The number that `Integer.parseInt` reads. Raises `FilterEvaluationError`."""
    if len(text) < _SURELY_INT32 and text.isdecimal() and text.isascii():
        return int(text)
    return _to_integer(text, INT32, "32-bit integer")


def to_int64(text: str) -> int:
    """The number that `Long.parseLong` reads. Raises `FilterEvaluationError`."""
    return _to_integer(text, INT64, "64-bit integer")


def to_double_order(text: str) -> int:
    """The place among all doubles of what `Double.parseDouble` reads. Raises `FilterEvaluationError`."""
    return double_order(to_double(text))


def to_double(text: str) -> float:
    """The number that `Double.parseDouble` reads. Raises `FilterEvaluationError`.

    What is too large is infinite, what is too small is zero; neither is an error.
    """
    if text.replace(".", "", 1).isdecimal() and text.isascii():  # most of all there are, told at a glance
        return float(text)
    text = text.strip(_TRIMMED)
    if match := _DECIMAL.fullmatch(text):
        return float(match[1])
    if match := _HEXADECIMAL.fullmatch(text):
        try:
            return float.fromhex(match[1])
        except OverflowError:
            return float("-inf" if text.startswith("-") else "inf")
    if _WORDS.fullmatch(text):
        return float("nan" if text.endswith("NaN") else text)
    raise FilterEvaluationError(f"{quote(text)} is no number")


def double_order(number: float) -> int:
    """An integer that compares with others of its kind as `Double.compare` compares the doubles."""
    bits: int = _BITS.unpack(_DOUBLE.pack(number))[0]
    return bits if bits >= 0 else bits ^ _MAGNITUDE


def _to_integer(text: str, limits: tuple[int, int], kind: str) -> int:
    # Java reads a text by UTF-16 units: digits beyond U+FFFF are two of them, and neither is a digit.
    if not _INTEGER.fullmatch(text) or max(text) > "\uffff":
        raise FilterEvaluationError(f"{quote(text)} is no {kind}")
    number = int(text) if len(text) <= _LONGEST_INTEGER else _long_integer(text)
    if not limits[0] <= number <= limits[1]:
        raise FilterEvaluationError(f"{quote(text)} is beyond a {kind}")
    return number


def _long_integer(text: str) -> int:
    """The number of a text of very many digits, most of them leading zeros; if not, some number beyond all limits."""
    digits = "".join(str(decimal(digit)) for digit in text.lstrip("+-")).lstrip("0")
    number = int(digits[: _MOST_DIGITS + 1] or "0")
    return -number if text.startswith("-") else number
