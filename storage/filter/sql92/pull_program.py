"""Expressions as programs for :mod:`storage.kernels.expression`, by which the kernel of a search decides messages."""

from collections.abc import Callable
from struct import Struct
from typing import Any, Final

from storage.filter.choice import BY_EXPRESSION, DEEPEST, MOST_NAMES, MOST_STEPS, Choice
from storage.filter.sql92.form import All, Compared, Either, Missing, Negated, OneOf, Searched, Truth
from storage.filter.sql92.node import NUMBERS, Kind, Node, Type
from storage.kernels import sql92 as kernel

# What a step does; the kernel has the same numbers.
CONSTANT, COMPARE, COMPARE_DOUBLE, EQUAL, ONE_OF, IS_MISSING, SEARCH, TRUTH, NOT, AND, OR, IS_UNKNOWN = range(12)
FALSE, TRUE, UNKNOWN = range(3)

BELOW, SAME, ABOVE = 1, 2, 4
RELATIONS: Final = {
    "EQUAL": SAME,
    "NOT_EQUAL": BELOW | ABOVE,
    "ABOVE": ABOVE,
    "AT_LEAST": SAME | ABOVE,
    "BELOW": BELOW,
    "AT_MOST": BELOW | SAME,
}
"""Where a property may stand to a number, by the operators' tokens."""

SEARCHES: Final = {"CONTAINS": 0, "STARTSWITH": 1, "ENDSWITH": 2}
BITS: Final = {Type.INT32: 32, Type.INT64: 64}
_DOUBLE: Final = Struct(">d")
_BITS: Final = Struct(">q")
_REPLACEMENT: Final = "\ufffd"


class _NoProgram(Exception):
    """The expression is none that the kernel can decide."""


def choice_of_expression(root: Node, compiled: kernel.Program, *, has_bits: bool = False) -> Choice:
    """The choice by an expression, without an address where it cannot be a program of this kind.

    ``has_bits`` tells that extension units may rule a message out.
    """
    program = _Program()
    try:
        program.add(root, 1)
    except _NoProgram:
        return Choice(BY_EXPRESSION, has_bits=has_bits, program=compiled, has_address=False)
    names = [number for name in program.names for number in program.text(name)]
    return Choice(
        BY_EXPRESSION,
        [*names, *(number for step in program.steps for number in step)],
        count=len(program.names),
        texts=bytes(program.texts),
        steps=len(program.steps),
        has_bits=has_bits,
        program=compiled,
    )


class _Program:
    """A program as it grows: its steps, the properties it names, and all texts."""

    def __init__(self) -> None:
        self.steps: list[list[int]] = []
        self.names: list[str] = []
        self.texts = bytearray()

    def add(self, node: Node, depth: int) -> None:
        """Append the steps that compute a condition; ``depth`` outcomes wait then, its own among them."""
        if depth > DEEPEST:
            raise _NoProgram
        if node.kind is Kind.BOOLEAN_CONSTANT:
            self._step(CONSTANT, UNKNOWN if node.constant is None else int(node.constant))
            return
        add = _ADD.get(type(node.form))
        if add is None:
            raise _NoProgram
        add(self, node, node.form, depth)

    def add_joined(self, node: Node, form: Any, depth: int) -> None:
        """AND and OR: the outcome so far lies below that of each operand, and may end the search."""
        operation, start = (AND, TRUE) if isinstance(form, All) else (OR, FALSE)
        self._step(CONSTANT, start)
        joins = []
        for operand in node.operands:
            self.add(operand, depth + 1)
            joins.append(self._step(operation))
        for join in joins:
            join[1] = len(self.steps)

    def add_negated(self, node: Node, form: Negated, depth: int) -> None:
        """NOT."""
        self.add(node.operands[0], depth)
        self._step(NOT)

    def add_missing(self, node: Node, form: Missing, depth: int) -> None:
        """IS NULL, of a property or of a condition."""
        (operand,) = node.operands
        if operand.kind is Kind.PROPERTY:
            self._step(IS_MISSING, self._name(operand.constant), form.is_negated)
        else:
            self.add(operand, depth)
            self._step(IS_UNKNOWN, form.is_negated)

    def add_truth(self, node: Node, form: Truth, depth: int) -> None:
        """A property where a condition is wanted."""
        self._step(TRUTH, self._name(node.operands[0].constant))

    def add_compared(self, node: Node, form: Compared, depth: int) -> None:
        """A property beside a number or a text."""
        left, right = node.operands
        if left.kind is Kind.PROPERTY and right.type in NUMBERS:
            self.add_number(left.constant, RELATIONS[form.operator], right, UNKNOWN)
        elif right.kind is Kind.PROPERTY and left.type in NUMBERS:
            relation = RELATIONS[form.operator]
            mirrored = relation & SAME | (ABOVE if relation & BELOW else 0) | (BELOW if relation & ABOVE else 0)
            absent = {"EQUAL": FALSE, "NOT_EQUAL": TRUE}.get(form.operator, UNKNOWN)
            self.add_number(right.constant, mirrored, left, absent)
        elif left.kind is Kind.PROPERTY and right.kind is Kind.CONSTANT:
            self.add_equal(left.constant, right.constant, form.operator == "NOT_EQUAL")
        else:
            raise _NoProgram

    def add_number(self, name: str, relation: int, number: Node, absent: int) -> None:
        """A property beside a number."""
        if number.type is Type.DOUBLE:
            bits: int = _BITS.unpack(_DOUBLE.pack(number.constant))[0]
            self._step(COMPARE_DOUBLE, self._name(name), relation, bits, 0, absent)
        else:
            self._step(COMPARE, self._name(name), relation, number.constant, BITS[number.type], absent)

    def add_equal(self, name: str, text: str, is_negated: bool) -> None:
        """A property beside a text."""
        self._step(EQUAL, self._name(name), *self.text(text), is_negated)

    def add_one_of(self, node: Node, form: OneOf, depth: int) -> None:
        """A list of texts, compared one after the other."""
        if depth == DEEPEST:
            raise _NoProgram
        self._step(CONSTANT, FALSE)
        joins = []
        for text in form.texts:
            self.add_equal(node.operands[0].constant, text, is_negated=False)
            joins.append(self._step(OR))
        for join in joins:
            join[1] = len(self.steps)
        if form.is_negated:
            self._step(NOT)

    def add_searched(self, node: Node, form: Searched, depth: int) -> None:
        """A text searched for in a property."""
        (subject,) = node.operands
        if not form.text or subject.kind is not Kind.PROPERTY:
            raise _NoProgram
        self._step(SEARCH, self._name(subject.constant), *self.text(form.text), form.is_negated, SEARCHES[form.keyword])

    def text(self, text: str) -> tuple[int, int]:
        """Keep a text; its position and its length. A text that bytes may stand for unequally is for nobody."""
        if _REPLACEMENT in text:
            raise _NoProgram
        try:
            data = text.encode()
        except UnicodeEncodeError as error:
            raise _NoProgram from error
        position = len(self.texts)
        self.texts += data
        return position, len(data)

    def _step(self, operation: int, *numbers: int) -> list[int]:
        if len(self.steps) == MOST_STEPS:
            raise _NoProgram
        step = [operation, *map(int, numbers), *[0] * (5 - len(numbers))]
        self.steps.append(step)
        return step

    def _name(self, name: str) -> int:
        if name not in self.names:
            if len(self.names) == MOST_NAMES:
                raise _NoProgram
            self.names.append(name)
        return self.names.index(name)


_ADD: Final[dict[type, Callable[[_Program, Node, Any, int], None]]] = {
    All: _Program.add_joined,
    Either: _Program.add_joined,
    Negated: _Program.add_negated,
    Missing: _Program.add_missing,
    Truth: _Program.add_truth,
    Compared: _Program.add_compared,
    OneOf: _Program.add_one_of,
    Searched: _Program.add_searched,
}
