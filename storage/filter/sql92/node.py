"""The parts of a parsed expression: what each is, where it stands, and the closure that computes its value.

RocketMQ's compile-time rules speak of five kinds of parts (filters §2.4), and what a comparison does depends on the
types of its sides (§2.5). Properties are texts and only literals are numbers, so that the type of every part is known
before any message is: it is text, a number of one of three types, a truth value, or null; a property may be missing
and a truth value unknown, both of which are None.

Closures that call closures are fast, and as deep as the expression. Java's stack bears some thousand levels and
Python's a few hundred, so a part that has become too high is cut off: it is computed before everything above it, and
its outcome, value or error, is kept for whoever asks. That changes no result, since nothing here has an effect.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import chain
from operator import methodcaller
from typing import Any, Final, Self

from protocol.errors import FilterEvaluationError
from storage.filter.sql92.form import Form

Properties = Mapping[str, str]
Read = Callable[[Any], Any]
"""Computes a part's value from the properties; for a truth value True, False or None."""
Span = tuple[int, int]

HIGHEST: Final = 64
"""Closures that call each other before the lower ones are cut off."""


class Kind(Enum):
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


class Misuse(Exception):
    """A part stands where its kind may not; the parser, which knows the source, makes a `FilterSyntaxError` of it."""

    def __init__(self, span: Span, reason: str) -> None:
        super().__init__(span, reason)
        self.span = span
        self.reason = reason


NUMBERS: Final = frozenset({Type.INT32, Type.INT64, Type.DOUBLE})


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One part of an expression and, in `operands`, the parts it is made of.

    `constant` is the value of a part that has the same for every message, and the name of a property. `cut` are the
    lower parts that have to be computed before `read` is called, the lowest first: see `evaluator`. `form` says what
    `read` does to its operands, where that can be said.
    """

    kind: Kind
    type: Type
    span: Span
    read: Read = field(repr=False)
    constant: Any = None
    operands: tuple["Node", ...] = field(default=(), repr=False)
    height: int = field(default=0, repr=False)
    cut: tuple[Read, ...] = field(default=(), repr=False)
    form: Form | None = field(default=None, repr=False)

    def spanning(self, start: int, end: int) -> Self:
        """The same part, drawn with the parentheses or signs around it."""
        return replace(self, span=(start, end))

    @property
    def is_null(self) -> bool:
        """Whether this is the literal NULL."""
        return self.kind is Kind.BOOLEAN_CONSTANT and self.constant is None


def literal(kind: Kind, kind_of_value: Type, value: Any, span: Span) -> Node:
    """A part whose value is the same for every message."""
    return Node(kind, kind_of_value, span, lambda properties: value, value)


def property_node(name: str, span: Span) -> Node:
    """A property's text, or None where the message has none of that name."""
    return Node(Kind.PROPERTY, Type.TEXT, span, methodcaller("get", name), name)


def condition(read: Read, span: Span, *operands: Node, form: Form | None = None) -> Node:
    """A part that is true, false or unknown."""
    return _composed(Kind.CONDITION, Type.BOOLEAN, read, span, operands, form)


def nothing(operand: Node, span: Span) -> Node:
    """The negation of what is no number: null, once the operand has been computed without an error."""
    inner = operand.read

    def read(properties: Properties) -> None:
        inner(properties)

    return _composed(Kind.NEGATION, Type.NULL, read, span, (operand,))


def evaluator(node: Node) -> Callable[[Properties], bool | None]:
    """The function that computes a condition; it raises `FilterEvaluationError` and nothing else."""
    if not node.cut:
        return node.read

    def evaluate(properties: Properties) -> bool | None:
        known: dict[Any, Any] = dict(properties)
        for read in node.cut:
            try:
                known[read] = read(known)
            except FilterEvaluationError as error:
                known[read] = error
        decision: bool | None = node.read(known)
        return decision

    return evaluate


def _composed(
    kind: Kind, kind_of_value: Type, read: Read, span: Span, operands: tuple[Node, ...], form: Form | None = None
) -> Node:
    height = 1 + max(operand.height for operand in operands)
    cut = tuple(chain.from_iterable(operand.cut for operand in operands))
    if height > HIGHEST:
        return Node(kind, kind_of_value, span, _recall(read), None, operands, 0, (*cut, read), form)
    return Node(kind, kind_of_value, span, read, None, operands, height, cut, form)


def _recall(cut: Read) -> Read:
    """What stands above a part that was cut off: its outcome instead of it."""

    def read(known: Mapping[Any, Any]) -> Any:
        outcome = known[cut]
        if isinstance(outcome, FilterEvaluationError):
            raise outcome
        return outcome

    return read
