"""Conditions that are not comparisons: AND, OR, NOT, IS NULL, IN, and the search in texts.

Conditions are true, false or unknown. AND ends at the first part that is false and OR at the first that is true; an
unknown one does not end them, so that a later part may still decide, or fail. The search in texts is never unknown: a
missing property neither contains a text nor does not contain it. Source: filters §2.4–§2.6.
"""

from collections.abc import Sequence
from typing import Final

from storage.filter.sql92.form import ALL, EITHER, NEGATED, TRUTH, IsNull, OneOf, Searched
from storage.filter.sql92.node import MisplacedOperand, Node, PartKind, Span, condition

SEARCHES: Final = ("CONTAINS", "STARTSWITH", "ENDSWITH")
"""The keywords of searches."""


def all_of(operands: Sequence[Node]) -> Node:
    """Operands joined by AND."""
    return condition(ALL, _span(operands), *map(truth, operands))


def any_of(operands: Sequence[Node]) -> Node:
    """Operands joined by OR."""
    return condition(EITHER, _span(operands), *map(truth, operands))


def negation(operand: Node, span: Span) -> Node:
    """NOT of an operand."""
    return condition(NEGATED, span, truth(operand))


def truth(operand: Node) -> Node:
    """An operand as a condition. A property is never true: properties are texts, and no text is a truth value."""
    if operand.kind in (PartKind.CONDITION, PartKind.BOOLEAN_CONSTANT):
        return operand
    if operand.kind is not PartKind.PROPERTY:
        raise MisplacedOperand(operand.span, f"{operand.kind.value} is no condition")
    return condition(TRUTH, operand.span, operand)


def is_null(operand: Node, is_negated: bool, span: Span) -> Node:
    """IS NULL, or IS NOT NULL: whether the operand has no value."""
    return condition(IsNull(is_negated), span, operand)


def membership(subject: Node, texts: Sequence[str], is_negated: bool, span: Span) -> Node:
    """IN, or NOT IN, a list of texts; unknown where the property is missing."""
    if subject.kind is not PartKind.PROPERTY:
        raise MisplacedOperand(subject.span, f"only a property is looked up by IN, not {subject.kind.value}")
    return condition(OneOf(tuple(dict.fromkeys(texts)), is_negated), span, subject)


def search(subject: Node, keyword: str, wanted: str, is_negated: bool, span: Span) -> Node:
    """CONTAINS, STARTSWITH or ENDSWITH, or NOT one of them; each is false for the empty text and for no text."""
    return condition(Searched(keyword, wanted, is_negated), span, subject)


def _span(operands: Sequence[Node]) -> Span:
    return operands[0].span[0], operands[-1].span[1]
