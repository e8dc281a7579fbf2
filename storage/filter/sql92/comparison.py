"""`=`, `<>`, `<`, `<=`, `>`, `>=` and BETWEEN: which sides they take, and what they answer for values and for nulls.

What is compared depends on both sides' types, which are known once the text is parsed; so the conversion is chosen
then, and a message costs what it takes to convert its property. Missing values are not treated evenly: `a = b` is true
with both missing, unknown with only `a` missing, false with only `b` missing. Source: filters §2.4 and §2.5.
"""

from collections.abc import Callable
from operator import eq, ge, gt, le, lt
from typing import Any, Final

from protocol.errors import FilterEvaluationError, quote
from storage.filter.sql92.conversion import double_order, to_double_order, to_int32, to_int64
from storage.filter.sql92.form import Compared, Equal, Form
from storage.filter.sql92.logic import all_of, any_of
from storage.filter.sql92.node import NUMBERS, Kind, Misuse, Node, Properties, Read, Type, condition

ORDERS: Final[dict[str, Callable[[int, int], bool]]] = {"ABOVE": gt, "AT_LEAST": ge, "BELOW": lt, "AT_MOST": le}
"""The orderings by the names of their tokens."""
_MIRRORED: Final = {"EQUAL": "EQUAL", "NOT_EQUAL": "NOT_EQUAL", "ABOVE": "BELOW", "BELOW": "ABOVE"} | {
    "AT_LEAST": "AT_MOST",
    "AT_MOST": "AT_LEAST",
}
_FROM_TEXT: Final[dict[Type, Callable[[str], int]]] = {
    Type.INT32: to_int32,
    Type.INT64: to_int64,
    Type.DOUBLE: to_double_order,
}
_CONSTANTS: Final = frozenset({Kind.CONSTANT, Kind.BOOLEAN_CONSTANT})


def equality(left: Node, right: Node, is_negated: bool) -> Node:
    """`left = right`, or `left <> right`."""
    for side in (left, right):
        if side.is_null:
            raise Misuse(side.span, "NULL is compared by IS NULL or IS NOT NULL")
    if left.kind is Kind.BOOLEAN_CONSTANT and right.kind is Kind.CONSTANT:
        raise Misuse(right.span, "TRUE and FALSE are compared with no other literal")
    span = (left.span[0], right.span[1])
    special = _property_with_number(left, right, "NOT_EQUAL" if is_negated else "EQUAL")
    special = special or _property_with_text(left, right, is_negated)
    read, form = special or (_equal(left, right, is_negated), None)
    return condition(read, span, left, right, form=form)


def ordering(left: Node, right: Node, order: str) -> Node:
    """`left > right` and so on, by the name of the operator's token."""
    for side in (left, right):
        _check_ordered(side)
    read, form = _property_with_number(left, right, order) or (_ordered(left, right, ORDERS[order]), None)
    return condition(read, (left.span[0], right.span[1]), left, right, form=form)


def between(subject: Node, low: Node, high: Node, is_negated: bool) -> Node:
    """`subject BETWEEN low AND high`: at least the one and at most the other; NOT: below the one or above the other."""
    for side in (subject, low, high):
        _check_ordered(side)
    span = (subject.span[0], high.span[1])
    if not is_negated and low.kind is high.kind is Kind.CONSTANT and not _is_ascending(low, high):
        raise Misuse((low.span[0], high.span[1]), "the lower bound is above the upper one")
    if subject.type is Type.NULL:  # asked once: asked by both bounds, nested ones would take 2ⁿ steps
        return condition(subject.read, span, subject)
    if is_negated:
        sides = [ordering(subject, low, "BELOW"), ordering(subject, high, "ABOVE")]
        return any_of(sides).spanning(*span)
    sides = [ordering(subject, low, "AT_LEAST"), ordering(subject, high, "AT_MOST")]
    return all_of(sides).spanning(*span)


def _check_ordered(side: Node) -> None:
    if side.kind is Kind.CONSTANT and side.type not in NUMBERS:
        raise Misuse(side.span, "only numbers have an order, not texts")
    if side.kind in (Kind.BOOLEAN_CONSTANT, Kind.CONDITION):
        raise Misuse(side.span, f"only numbers have an order, not {side.kind.value}")


def _property_with_number(left: Node, right: Node, operator: str) -> tuple[Read, Form] | None:
    """The closure and the form for a property beside a number, most of all there are; None for other sides."""
    if left.kind is Kind.PROPERTY and right.type in NUMBERS:
        absent = None
        name, number, operator = left.constant, right, operator
    elif left.type in NUMBERS and right.kind is Kind.PROPERTY:
        # With only the right side missing, values are known to differ.
        absent = {"EQUAL": False, "NOT_EQUAL": True}.get(operator)
        name, number, operator = right.constant, left, _MIRRORED[operator]
    else:
        return None
    convert = _FROM_TEXT[number.type]
    test = _test(_converter(number.type, number.type)(number.constant), operator)

    def read(properties: Properties) -> bool | None:
        text = properties.get(name)
        if text is None:
            return absent
        return test(convert(text))

    return read, Compared(name, operator, number.type, number.constant, absent)


def _test(number: int, operator: str) -> Callable[[int], bool]:
    """Whether a value stands in this relation to `number`, as the number's own method, which mirrors the relation."""
    tests: dict[str, Callable[[int], bool]] = {
        "EQUAL": number.__eq__,
        "NOT_EQUAL": number.__ne__,
        "ABOVE": number.__lt__,
        "AT_LEAST": number.__le__,
        "BELOW": number.__gt__,
        "AT_MOST": number.__ge__,
    }
    return tests[operator]


def _property_with_text(left: Node, right: Node, is_negated: bool) -> tuple[Read, Form] | None:
    """The closure and the form for a property beside a text literal; None for other sides."""
    if left.kind is not Kind.PROPERTY or right.kind is not Kind.CONSTANT or right.type is not Type.TEXT:
        return None
    name, wanted = left.constant, right.constant

    def is_equal(properties: Properties) -> bool | None:
        text = properties.get(name)
        return None if text is None else text == wanted

    def is_different(properties: Properties) -> bool | None:
        text = properties.get(name)
        return None if text is None else text != wanted

    return is_different if is_negated else is_equal, Equal(name, wanted, is_negated)


def _equal(left: Node, right: Node, is_negated: bool) -> Read:
    read_left, read_right, are_equal = left.read, right.read, _sameness(left.type, right.type)

    def read(properties: Properties) -> bool | None:
        first, second = read_left(properties), read_right(properties)
        if first is None:
            return not is_negated if second is None else None
        if second is None:
            return is_negated
        return are_equal(first, second) is not is_negated

    return read


def _ordered(left: Node, right: Node, order: Callable[[int, int], bool]) -> Read:
    read_left, read_right = left.read, right.read
    convert_left, convert_right = _converters(left.type, right.type)

    def read(properties: Properties) -> bool | None:
        first = read_left(properties)
        if first is None:
            return None
        second = read_right(properties)
        if second is None:
            return None
        return order(convert_left(first), convert_right(second))

    return read


def _sameness(left: Type, right: Type) -> Callable[[Any, Any], bool]:
    """Whether two values of these types are equal; it is not asked about None."""
    if left is right:
        return eq
    if right is Type.BOOLEAN and left is Type.TEXT:
        return lambda text, truth: (text.lower() == "true") is truth
    if left is Type.BOOLEAN and right is Type.TEXT:
        return _refuse_text
    if Type.BOOLEAN in (left, right):
        return lambda first, second: False
    convert_left, convert_right = _converters(left, right)
    return lambda first, second: convert_left(first) == convert_right(second)


def _refuse_text(truth: bool, text: str) -> bool:
    raise FilterEvaluationError(f"{quote(text)} is no truth value: only the left side of = is read as one")


def _converters(left: Type, right: Type) -> tuple[Callable[[Any], int], Callable[[Any], int]]:
    """What turns values of these types into integers that compare as the values do."""
    if left is right is Type.TEXT:
        common = Type.DOUBLE
    elif left is Type.TEXT:
        common = right
    elif right is Type.TEXT:
        common = left
    else:
        common = Type.DOUBLE if Type.DOUBLE in (left, right) else Type.INT64
    return _converter(left, common), _converter(right, common)


def _converter(own: Type, common: Type) -> Callable[[Any], int]:
    if own is Type.TEXT and common in _FROM_TEXT:
        return _FROM_TEXT[common]
    if common is Type.DOUBLE:
        return lambda number: double_order(float(number))
    return int


def _is_ascending(low: Node, high: Node) -> bool:
    convert_low, convert_high = _converters(low.type, high.type)
    return convert_low(low.constant) <= convert_high(high.constant)
