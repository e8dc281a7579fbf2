"""`=`, `<>`, `<`, `<=`, `>`, `>=` and BETWEEN: which sides they take. Source: filters §2.4 and §2.5."""

from typing import Final

from storage.filter.sql92._logic import all_of, any_of
from storage.filter.sql92.form import NOTHING, Compared
from storage.filter.sql92.node import NUMBERS, MisplacedOperand, Node, PartKind, Type, condition

ORDERS: Final = ("ABOVE", "AT_LEAST", "BELOW", "AT_MOST")
"""The orderings, by the names of their tokens."""


def equality(left: Node, right: Node, is_negated: bool) -> Node:
    """`left = right`, or `left <> right`."""
    for side in (left, right):
        if side.is_null:
            raise MisplacedOperand(side.span, "NULL is compared by IS NULL or IS NOT NULL")
    if left.kind is PartKind.BOOLEAN_CONSTANT and right.kind is PartKind.CONSTANT:
        raise MisplacedOperand(right.span, "TRUE and FALSE are compared with no other literal")
    return _compared("NOT_EQUAL" if is_negated else "EQUAL", left, right)


def ordering(left: Node, right: Node, order: str) -> Node:
    """`left > right` and so on, by the name of the operator's token."""
    for side in (left, right):
        _check_ordered(side)
    return _compared(order, left, right)


def between(subject: Node, low: Node, high: Node, is_negated: bool) -> Node:
    """`subject BETWEEN low AND high`: at least the one and at most the other; NOT: below the one or above the other."""
    for side in (subject, low, high):
        _check_ordered(side)
    span = (subject.span[0], high.span[1])
    if not is_negated and low.kind is high.kind is PartKind.CONSTANT and not _is_ascending(low, high):
        raise MisplacedOperand((low.span[0], high.span[1]), "the lower bound is above the upper one")
    if subject.type is Type.NULL:  # asked once: asked by both bounds, nested ones would take 2ⁿ steps
        return condition(NOTHING, span, subject)
    if is_negated:
        sides = [ordering(subject, low, "BELOW"), ordering(subject, high, "ABOVE")]
        return any_of(sides).spanning(*span)
    sides = [ordering(subject, low, "AT_LEAST"), ordering(subject, high, "AT_MOST")]
    return all_of(sides).spanning(*span)


def _compared(operator: str, left: Node, right: Node) -> Node:
    return condition(Compared(operator), (left.span[0], right.span[1]), left, right)


def _check_ordered(side: Node) -> None:
    if side.kind is PartKind.CONSTANT and side.type not in NUMBERS:
        raise MisplacedOperand(side.span, "only numbers have an order, not texts")
    if side.kind in (PartKind.BOOLEAN_CONSTANT, PartKind.CONDITION):
        raise MisplacedOperand(side.span, f"only numbers have an order, not {side.kind.value}")


def _is_ascending(low: Node, high: Node) -> bool:
    """Whether one literal number is not above another; where one is a double they are compared as doubles."""
    kind = float if Type.DOUBLE in (low.type, high.type) else int
    return kind(low.constant) <= kind(high.constant)
