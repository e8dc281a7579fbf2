"""Expressions turned into the steps by which :mod:`storage.kernels.sql92` evaluates them."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from storage.filter.sql92._comparison import ORDERS
from storage.filter.sql92.form import (
    NOTHING,
    All,
    AlwaysNull,
    AnyOf,
    BareProperty,
    Compared,
    IsNull,
    Negated,
    OneOf,
    Searched,
)
from storage.filter.sql92.node import NUMBERS, Node, PartKind, Type
from storage.kernels import sql92 as kernel

_STANDS: Final = {
    "EQUAL": kernel.SAME,
    "NOT_EQUAL": kernel.BELOW | kernel.ABOVE,
    "ABOVE": kernel.ABOVE,
    "AT_LEAST": kernel.SAME | kernel.ABOVE,
    "BELOW": kernel.BELOW,
    "AT_MOST": kernel.BELOW | kernel.SAME,
}
"""How the left side may stand to the right one, by the operators' tokens."""
_PLACES: Final = {"CONTAINS": kernel.ANYWHERE, "STARTSWITH": kernel.AT_START, "ENDSWITH": kernel.AT_END}
_KINDS: Final = {
    Type.TEXT: kernel.TEXT,
    Type.INT32: kernel.INT32,
    Type.INT64: kernel.INT64,
    Type.DOUBLE: kernel.DOUBLE,
}

Work: TypeAlias = Node | Callable[[], Any]
"""A part whose outcome is to be computed, or what appends a step."""


def program_of(root: Node, names: Iterable[str]) -> kernel.Program:
    """The program that computes a condition; it names no properties but these."""
    program = kernel.Program(names)
    waiting: list[Work] = [root]
    while waiting:  # they may be nested deeper than calls may be
        each = waiting.pop()
        if isinstance(each, Node):
            waiting += reversed(_work(program, each))
        else:
            each()
    program.finish()
    return program


def _work(program: kernel.Program, node: Node) -> Sequence[Work]:
    """What computes the outcome of a part: of what is no condition, whether it is null or anything but true."""
    if node.kind is PartKind.PROPERTY:
        return [partial(program.truth, node.constant)]
    if node.form is None:
        outcome = kernel.UNKNOWN if node.is_null else kernel.TRUE if node.constant is True else kernel.FALSE
        return [partial(program.constant, outcome)]
    return _WORK[type(node.form)](program, node, node.form)


def _join(program: kernel.Program, node: Node, form: All | AnyOf) -> Sequence[Work]:
    """AND and OR: the outcome so far lies below that of each operand, and may end them."""
    is_any = isinstance(form, AnyOf)
    joins: list[int] = []

    def join() -> None:
        joins.append(program.join(is_any))

    def land() -> None:
        for each in joins:
            program.land(each)

    work: list[Work] = [partial(program.constant, kernel.FALSE if is_any else kernel.TRUE)]
    for operand in node.operands:
        work += operand, join
    return [*work, land]


def _negate(program: kernel.Program, node: Node, form: Negated) -> Sequence[Work]:
    return [*node.operands, program.negate]


def _forget(program: kernel.Program, node: Node, form: AlwaysNull) -> Sequence[Work]:
    return [*node.operands, program.forget]


def _truth(program: kernel.Program, node: Node, form: BareProperty) -> Sequence[Work]:
    return node.operands


def _ask(program: kernel.Program, node: Node, form: IsNull) -> Sequence[Work]:
    return [*node.operands, partial(program.ask_unknown, form.is_negated)]


def _look_up(program: kernel.Program, node: Node, form: OneOf) -> Sequence[Work]:
    return [partial(program.look_up, node.operands[0].constant, form.texts, form.is_negated)]


def _search(program: kernel.Program, node: Node, form: Searched) -> Sequence[Work]:
    (subject,) = node.operands
    if not form.text:  # the subject is not even computed, and so cannot fail
        return [partial(program.constant, kernel.FALSE)]
    if subject.type is not Type.TEXT:
        return [subject, program.forget, partial(program.ask_unknown, True)]
    return [partial(program.search, _PLACES[form.keyword], *_operand(subject), form.text, form.is_negated)]


def _compare(program: kernel.Program, node: Node, form: Compared) -> Sequence[Work]:
    left, right = node.operands
    if form.operator in ORDERS and left.type is Type.NULL:  # then the right side is not computed
        return [left]
    if form.operator in ORDERS and right.type is Type.NULL:  # it is null, too, and the left one may spare it
        return _work(program, Node(node.kind, node.type, node.span, None, (_is_null_or(left, right),), NOTHING))
    steps = [side for side in (left, right) if _operand(side)[0] == kernel.OUTCOME]
    return [*steps, partial(program.compare, _STANDS[form.operator], *_operand(left), *_operand(right))]


def _is_null_or(left: Node, right: Node) -> Node:
    """Whether a value is null, or another part is true, which is computed only if it is not."""
    is_null = Node(PartKind.CONDITION, Type.BOOLEAN, left.span, None, (left,), IsNull(is_negated=False))
    return Node(PartKind.CONDITION, Type.BOOLEAN, right.span, None, (is_null, right), AnyOf())


def _operand(side: Node) -> tuple[int, Any]:
    """A side of a comparison as the kernel takes it: what kind it is, and its name or value."""
    if side.kind is PartKind.PROPERTY:
        return kernel.PROPERTY, side.constant
    if side.type is Type.TEXT or side.type in NUMBERS:
        return _KINDS[side.type], side.constant
    return kernel.OUTCOME, None


_WORK: Final[dict[type, Callable[[kernel.Program, Node, Any], Sequence[Work]]]] = {
    All: _join,
    AnyOf: _join,
    Negated: _negate,
    AlwaysNull: _forget,
    BareProperty: _truth,
    IsNull: _ask,
    OneOf: _look_up,
    Searched: _search,
    Compared: _compare,
}
