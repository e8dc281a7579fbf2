"""Why a filter delivers a message or not, in words for the person who wrote the filter.

Filters compare by rules that surprise (filters §0): a literal's type decides how a property is read, a missing one
makes most conditions unknown, and the tag is compared as a whole. So each condition is shown with what it came to and
with the properties it looked at.
"""

from collections.abc import Iterator, Mapping

from protocol.errors import FilterEvaluationError
from storage.amounts import counted
from storage.filter.sql92 import Expression
from storage.filter.sql92.node import Node, PartKind
from storage.filter.sql92.program import program_of
from storage.filter.tag import TagExpression

LONGEST_VALUE = 80
"""Characters of a property that are quoted."""

MOST_CONDITIONS = 50
"""Conditions of one expression that are listed."""

OUTCOMES = {True: "true", False: "false", None: "unknown"}


def is_tagged_so(expression: TagExpression, tag: str | None) -> bool:
    """Whether a consumer of a tag subscription keeps a message: the tag itself is compared, not its hash."""
    return expression.matches_everything or (tag is not None and tag in expression.tags)


def explain_tag(expression: TagExpression, tag: str | None) -> str:
    """Why a message with this tag is delivered or not."""
    if expression.matches_everything:
        return "the subscription is to all messages"
    if not expression.tags:
        return "the subscription names no tag, so nothing is delivered"
    wanted = ", ".join(sorted(map(_quoted, expression.tags)))
    if not tag:
        return f"the message has no tag, wanted: {wanted}"
    return f"the tag {_quoted(tag)} is {'one' if tag in expression.tags else 'none'} of {wanted}"


def explain_expression(expression: Expression, properties: Mapping[str, str]) -> str:
    """What an expression came to for a message, and each of its conditions alone."""
    texts = [_explain(node, expression.text, properties) for node in _conditions(expression.root)]
    if len(texts) > MOST_CONDITIONS:
        texts = [*texts[:MOST_CONDITIONS], f"and {counted(len(texts) - MOST_CONDITIONS, 'more condition')}"]
    if len(texts) == 1:
        return texts[0]
    outcome = _outcome(expression.root, properties)
    return f"the expression is {outcome}: {'; '.join(texts)}"


def _conditions(root: Node) -> Iterator[Node]:
    """The conditions that are not made of others, from left to right."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.operands and all(operand.kind is PartKind.CONDITION for operand in node.operands):
            waiting += reversed(node.operands)
        else:
            yield node


def _explain(node: Node, source: str, properties: Mapping[str, str]) -> str:
    names = dict.fromkeys(_names(node))
    values = ", ".join(
        f"{name} is {_quoted(properties[name])}" if name in properties else f"{name} is missing" for name in names
    )
    text = f"{_cut(source[slice(*node.span)])} is {_outcome(node, properties)}"
    return f"{text} ({values})" if values else text


def _names(node: Node) -> Iterator[str]:
    """The properties that a condition looks at, as they are in it."""
    waiting = [node]
    while waiting:
        part = waiting.pop()
        if part.kind is PartKind.PROPERTY:
            yield part.constant
        waiting += reversed(part.operands)


def _outcome(node: Node, properties: Mapping[str, str]) -> str:
    try:
        return OUTCOMES[program_of(node, set(_names(node))).evaluate(properties)]
    except FilterEvaluationError as error:
        return f"not to be evaluated: {error}"


def _quoted(text: str) -> str:
    return repr(_cut(text))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"
