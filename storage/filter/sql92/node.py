"""The parts of a parsed expression: what each is, where it is in the source, and what it does.

RocketMQ's compile-time rules speak of five kinds of parts (filters §2.4), and what a comparison does depends on the
types of its sides (§2.5). Properties are texts and only literals are numbers, so that the type of every part is known
before any message is: it is text, a number of one of three types, a truth value, or null; a property may be missing
and a truth value unknown.
"""

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final, Self

from storage.filter.sql92.form import NOTHING, Form

Span = tuple[int, int]


class PartKind(Enum):
    """What a part is to the compile-time rules; parentheses and `+` leave it as it is."""

    CONSTANT = "a literal"
    BOOLEAN_CONSTANT = "TRUE, FALSE or NULL"
    PROPERTY = "a property"
    NEGATION = "a negated value"
    CONDITION = "a condition"


class Type(Enum):
    """What a part's values are."""

    TEXT = "text"
    INT32 = "a 32-bit integer"
    INT64 = "a 64-bit integer"
    DOUBLE = "a double"
    BOOLEAN = "a truth value"
    NULL = "null"


class MisplacedOperand(Exception):
    """A part stands where its kind may not; the parser, which knows the source, makes a `FilterSyntaxError` of it."""

    def __init__(self, span: Span, reason: str) -> None:
        super().__init__(span, reason)
        self.span = span
        self.reason = reason


NUMBERS: Final = frozenset({Type.INT32, Type.INT64, Type.DOUBLE})


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One part of an expression and, in `operands`, the parts it is made of.

    `constant` is the value of a literal, and the name of a property. `form` says what a condition, or the negation of
    what is no number, does with its operands.
    """

    kind: PartKind
    type: Type
    span: Span
    constant: Any = None
    operands: tuple["Node", ...] = field(default=(), repr=False)
    form: Form | None = None

    def spanning(self, start: int, end: int) -> Self:
        """Return this part with the parentheses or signs around it in its span."""
        return replace(self, span=(start, end))

    @property
    def is_null(self) -> bool:
        """Whether this is the literal NULL."""
        return self.kind is PartKind.BOOLEAN_CONSTANT and self.constant is None


def literal(kind: PartKind, kind_of_value: Type, value: Any, span: Span) -> Node:
    """A part whose value is the same for every message."""
    return Node(kind, kind_of_value, span, value)


def property_node(name: str, span: Span) -> Node:
    """A property's text, or null where the message has none of that name."""
    return Node(PartKind.PROPERTY, Type.TEXT, span, name)


def condition(form: Form, span: Span, *operands: Node) -> Node:
    """A part that is true, false or unknown."""
    return Node(PartKind.CONDITION, Type.BOOLEAN, span, None, operands, form)


def nothing(operand: Node, span: Span) -> Node:
    """The negation of what is no number: null, once the operand has been computed without an error."""
    return Node(PartKind.NEGATION, Type.NULL, span, None, (operand,), NOTHING)
