"""Conditions that are not comparisons: AND, OR, NOT, IS NULL, IN, and the search in texts.

Conditions are true, false or unknown (None). AND ends at the first part that is false and OR at the first that is
true; an unknown one does not end them, so that a later part may still decide, or fail. The search in texts is never
unknown: a missing property neither contains a text nor does not contain it. Source: filters §2.4–§2.6.
"""

from collections.abc import Callable, Sequence
from typing import Final

from storage.filter.sql92.form import ALL, EITHER, NEGATED, TRUTH, Missing, OneOf, Searched
from storage.filter.sql92.node import Kind, Misuse, Node, Properties, Read, Span, condition

SEARCHES: Final[dict[str, Callable[[str, str], bool]]] = {
    "CONTAINS": str.__contains__,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}
"""The searches by their keywords."""


def all_of(operands: Sequence[Node]) -> Node:
    """Operands joined by AND."""
    conditions = [truth(operand) for operand in operands]
    reads = tuple(operand.read for operand in conditions)
    return condition(_both(*reads) if len(reads) == 2 else _all(reads), _span(operands), *conditions, form=ALL)


def any_of(operands: Sequence[Node]) -> Node:
    """Operands joined by OR."""
    conditions = [truth(operand) for operand in operands]
    reads = tuple(operand.read for operand in conditions)
    return condition(_either(*reads) if len(reads) == 2 else _any(reads), _span(operands), *conditions, form=EITHER)


def negation(operand: Node, span: Span) -> Node:
    """NOT of an operand."""
    inner = truth(operand)
    read_inner = inner.read

    def read(properties: Properties) -> bool | None:
        decision: bool | None = read_inner(properties)
        return None if decision is None else not decision

    return condition(read, span, inner, form=NEGATED)


def truth(operand: Node) -> Node:
    """An operand as a condition. A property is never true: properties are texts, and no text is a truth value."""
    if operand.kind in (Kind.CONDITION, Kind.BOOLEAN_CONSTANT):
        return operand
    if operand.kind is not Kind.PROPERTY:
        raise Misuse(operand.span, f"{operand.kind.value} is no condition")
    name = operand.constant
    return condition(
        lambda properties: None if properties.get(name) is None else False, operand.span, operand, form=TRUTH
    )


def is_null(operand: Node, is_negated: bool, span: Span) -> Node:
    """IS NULL, or IS NOT NULL: whether the operand has no value."""
    inner = operand.read
    form = Missing(is_negated)
    return condition(lambda properties: (inner(properties) is None) is not is_negated, span, operand, form=form)


def membership(subject: Node, texts: Sequence[str], is_negated: bool, span: Span) -> Node:
    """IN, or NOT IN, a list of texts; unknown where the property is missing."""
    if subject.kind is not Kind.PROPERTY:
        raise Misuse(subject.span, f"only a property is looked up by IN, not {subject.kind.value}")
    name, wanted = subject.constant, frozenset(texts)

    def read(properties: Properties) -> bool | None:
        text = properties.get(name)
        return None if text is None else (text in wanted) is not is_negated

    return condition(read, span, subject, form=OneOf(name, tuple(wanted), is_negated))


def search(subject: Node, keyword: str, wanted: str, is_negated: bool, span: Span) -> Node:
    """CONTAINS, STARTSWITH or ENDSWITH, or NOT one of them; each is false for the empty text and for no text."""
    if not wanted:  # the subject is not even computed, and so cannot fail
        return condition(lambda properties: False, span, subject)
    inner, is_found = subject.read, SEARCHES[keyword]

    def read(properties: Properties) -> bool:
        text = inner(properties)
        return isinstance(text, str) and is_found(text, wanted) is not is_negated

    is_property = subject.kind is Kind.PROPERTY
    form = Searched(subject.constant, keyword, wanted, is_negated) if is_property else None
    return condition(read, span, subject, form=form)


def _span(operands: Sequence[Node]) -> Span:
    return operands[0].span[0], operands[-1].span[1]


def _both(first: Read, second: Read) -> Read:
    def read(properties: Properties) -> bool | None:
        decision = first(properties)
        if decision is False:
            return False
        other = second(properties)
        if other is False:
            return False
        return True if decision and other else None

    return read


def _either(first: Read, second: Read) -> Read:
    def read(properties: Properties) -> bool | None:
        decision = first(properties)
        if decision:
            return True
        other = second(properties)
        if other:
            return True
        return False if decision is False and other is False else None

    return read


def _all(reads: tuple[Read, ...]) -> Read:
    def read(properties: Properties) -> bool | None:
        decision: bool | None = True
        for part in reads:
            outcome = part(properties)
            if outcome is False:
                return False
            if outcome is None:
                decision = None
        return decision

    return read


def _any(reads: tuple[Read, ...]) -> Read:
    def read(properties: Properties) -> bool | None:
        decision: bool | None = False
        for part in reads:
            outcome = part(properties)
            if outcome:
                return True
            if outcome is None:
                decision = None
        return decision

    return read
