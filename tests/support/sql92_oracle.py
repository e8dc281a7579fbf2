"""SQL92 expressions evaluated part by part over texts, and texts read as numbers: what the kernel is compared with.

Python's `int` and `float` take other forms than Java (blanks, `_`, `inf`), so the form is checked before they are
asked. Doubles come back as integers in the order of `Double.compare`, in which −0.0 is below 0.0 and NaN above
everything and equal to itself. Source: filters §2.4–§2.6.
"""

import operator
import re
from struct import Struct
from unicodedata import decimal

from protocol.errors import FilterEvaluationError, quote
from storage.filter.sql92.form import All, AlwaysNull, AnyOf, BareProperty, Compared, IsNull, Negated, OneOf, Searched
from storage.filter.sql92.node import PartKind, Type

INT32 = (-(1 << 31), (1 << 31) - 1)
INT64 = (-(1 << 63), (1 << 63) - 1)

_INTEGER = re.compile(r"[+-]?\d+")  # any Unicode digits
# Possessive throughout: a property of 32,000 digits and a letter must not be tried in all its parts.
_DECIMAL = re.compile(r"([+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?)[fFdD]?")
_HEXADECIMAL = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]++\.?|[0-9a-fA-F]*+\.[0-9a-fA-F]++)[pP][+-]?[0-9]++)[fFdD]?")
_WORDS = re.compile(r"[+-]?(?:NaN|Infinity)")
_SURELY_INT32 = 10  # shorter texts of digits are below 2^31
_LONGEST_INTEGER = 4000  # characters; Python refuses to convert somewhat more
_MOST_DIGITS = 19  # of an i64
_DOUBLE = Struct(">d")
_BITS = Struct(">q")
_MAGNITUDE = (1 << 63) - 1
# Java's String.trim cuts every character up to the blank, not what Unicode calls white space.
_TRIMMED = "".join(map(chr, range(0x21)))


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
    if text.replace(".", "", 1).isdecimal() and text.isascii():  # most texts are like this, and easily recognized
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


ORDERS = {"ABOVE": operator.gt, "AT_LEAST": operator.ge, "BELOW": operator.lt, "AT_MOST": operator.le}
SEARCHES = {"CONTAINS": str.__contains__, "STARTSWITH": str.startswith, "ENDSWITH": str.endswith}


def evaluate(node, properties):
    """The value of a part: None for null. Raises FilterEvaluationError where a comparison cannot be made."""
    if node.kind is PartKind.PROPERTY:
        return properties.get(node.constant)
    match node.form:
        case None:
            return node.constant
        case All() | AnyOf():
            return _joined(node, properties, isinstance(node.form, AnyOf))
        case Compared(name):
            return _ordered(node, ORDERS[name], properties) if name in ORDERS else _equal(node, name, properties)
        case Searched(keyword, text, is_negated):
            subject = evaluate(node.operands[0], properties) if text else None
            return isinstance(subject, str) and SEARCHES[keyword](subject, text) is not is_negated
    value = evaluate(node.operands[0], properties)
    match node.form:
        case IsNull(is_negated):
            return (value is None) is not is_negated
        case OneOf(texts, is_negated):
            return None if value is None else (value in texts) is not is_negated
        case BareProperty():
            return None if value is None else False
        case Negated():
            return None if value is None else not value
        case AlwaysNull():
            return None
    raise AssertionError(node.form)


def _joined(node, properties, deciding):
    outcome: bool | None = not deciding
    for operand in node.operands:
        value = evaluate(operand, properties)
        if value is deciding:
            return deciding
        outcome = None if value is None else outcome
    return outcome


def _equal(node, name, properties):
    left, right = node.operands
    first, second = evaluate(left, properties), evaluate(right, properties)
    if first is None:
        return name == "EQUAL" if second is None else None
    return (second is not None and _are_equal(left.type, first, right.type, second)) is (name == "EQUAL")


def _are_equal(left, first, right, second):
    if left is right:
        return bool(first == second)
    if right is Type.BOOLEAN and left is Type.TEXT:
        return (first.lower() == "true") is second
    if left is Type.BOOLEAN and right is Type.TEXT:
        raise FilterEvaluationError(f"{quote(second)} is no truth value: only the left side of = is read as one")
    if Type.BOOLEAN in (left, right):
        return False
    common = _common(left, right)
    return _as_number(left, first, common) == _as_number(right, second, common)


def _ordered(node, order, properties):
    left, right = node.operands
    first = evaluate(left, properties)
    second = None if first is None else evaluate(right, properties)
    if second is None:
        return None
    common = _common(left.type, right.type)
    return bool(order(_as_number(left.type, first, common), _as_number(right.type, second, common)))


def _common(left: Type, right: Type) -> Type:
    """The type in which two values meet as numbers."""
    types = {left, right} - {Type.TEXT}
    return types.pop() if len(types) == 1 else Type.INT64 if types == {Type.INT32, Type.INT64} else Type.DOUBLE


def _as_number(own, value, common):
    if own is Type.TEXT:
        return {Type.INT32: to_int32, Type.INT64: to_int64, Type.DOUBLE: to_double_order}[common](value)
    return double_order(float(value)) if common is Type.DOUBLE else value
