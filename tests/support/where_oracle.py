"""The SQL92 expressions that tests of the search use, read and evaluated here: nothing of the project takes part.

Only these forms are known: AND and OR, parentheses, a property compared with a text or an integer, IN, BETWEEN, IS NULL
and IS NOT NULL. A value is True, False, or None where a property is missing. Source: filters §2.3 to §2.5.
"""

import operator
import re
from collections.abc import Callable, Mapping

Value = bool | None
Condition = Callable[[Mapping[str, str]], Value]

_TOKEN = re.compile(r"\s*('(?:[^']|'')*'|[0-9]+|[A-Za-z_]\w*|<>|<=|>=|[=<>(),])")
_ORDERS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}


class NotComparable(Exception):
    """A property that says no integer is compared with one: the whole expression has no value."""


def is_true(expression: str, properties: Mapping[str, str]) -> bool:
    """Whether a message with these properties meets the expression."""
    reader = _Reader(expression)
    condition = reader.either()
    assert not reader.tokens, f"not read by the oracle: {reader.tokens}"
    try:
        return condition(properties) is True
    except NotComparable:
        return False


class _Reader:
    """Reads an expression from left to right; `tokens` is what is left of it."""

    def __init__(self, text: str) -> None:
        self.tokens: list[str] = []
        position = 0
        while text[position:].strip():
            token = _TOKEN.match(text, position)
            assert token, f"not read by the oracle: {text[position:]}"
            self.tokens.append(token[1])
            position = token.end()

    def either(self) -> Condition:
        conditions = [self.both()]
        while self._has("OR"):
            conditions.append(self.both())
        return lambda properties: _joined(conditions, properties, deciding=True)

    def both(self) -> Condition:
        conditions = [self._single()]
        while self._has("AND"):
            conditions.append(self._single())
        return lambda properties: _joined(conditions, properties, deciding=False)

    def _single(self) -> Condition:
        if self._has("("):
            condition = self.either()
            assert self._has(")")
            return condition
        name, sign = self.tokens.pop(0), self.tokens.pop(0).upper()
        assert name.isidentifier()
        if sign == "IS":
            is_negated = self._has("NOT")
            assert self._has("NULL")
            return lambda properties: (name not in properties) is not is_negated
        if sign == "NOT":
            assert self._has("IN")
            return self._one_of(name, is_negated=True)
        if sign == "IN":
            return self._one_of(name, is_negated=False)
        if sign == "BETWEEN":
            lowest = self._value()
            assert self._has("AND")
            highest = self._value()
            bounds = [_compared(name, ">=", lowest), _compared(name, "<=", highest)]
            return lambda properties: _joined(bounds, properties, deciding=False)
        return _compared(name, sign, self._value())

    def _one_of(self, name: str, *, is_negated: bool) -> Condition:
        assert self._has("(")
        texts = [self._value()]
        while self._has(","):
            texts.append(self._value())
        assert self._has(")")
        return lambda properties: None if name not in properties else (properties[name] in texts) is not is_negated

    def _value(self) -> str | int:
        token = self.tokens.pop(0)
        return token[1:-1].replace("''", "'") if token.startswith("'") else int(token)

    def _has(self, word: str) -> bool:
        """Take the next token if it is this word."""
        if self.tokens and self.tokens[0].upper() == word:
            del self.tokens[0]
            return True
        return False


def _joined(conditions: list[Condition], properties: Mapping[str, str], *, deciding: bool) -> Value:
    """AND, which False decides, or OR, which True decides; what stands behind that is not evaluated."""
    values: list[Value] = []
    for condition in conditions:
        values.append(condition(properties))
        if values[-1] is deciding:
            return deciding
    return None if None in values else not deciding


def _compared(name: str, sign: str, value: str | int) -> Condition:
    def compare(properties: Mapping[str, str]) -> Value:
        if name not in properties:
            return None
        own: str | int = properties[name]
        if isinstance(value, int):
            if not re.fullmatch(r"[+-]?[0-9]+", properties[name]):
                raise NotComparable
            own = int(own)
        if sign in ("=", "<>"):
            return (own == value) is (sign == "=")
        assert isinstance(own, int), "texts have no order"
        return bool(_ORDERS[sign](own, value))

    return compare
