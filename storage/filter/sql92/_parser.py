"""The grammar: one method a rule, which hands back the part that it read; its docstring is the rule.

    selector = or ;            what follows it is not read beyond its first token

A method is a generator, and yields where another rule is to be read: `_read` runs them on a stack of its own, so that
parentheses are not bounded by Python's stack. Source: filters §2.3.
"""

from collections.abc import Callable, Generator
from typing import Final, cast

from protocol.errors import FilterSyntaxError
from storage.filter.sql92._comparison import ORDERS, between, equality, ordering
from storage.filter.sql92._logic import SEARCHES, all_of, any_of, is_null, membership, negation, search, truth
from storage.filter.sql92._tokenizer import IDENTIFIER, Token, Tokenizer
from storage.filter.sql92.node import NUMBERS, MisplacedOperand, Node, PartKind, Type, literal, nothing, property_node

DEEPEST: Final = 750
"""Parentheses in each other. RocketMQ's stack bears 500 and breaks down before 1,000."""
_LONGEST_INTEGER: Final = 19  # digits of an i64
_LARGEST_INT32: Final = (1 << 31) - 1
_LARGEST_INT64: Final = (1 << 63) - 1

Rule = Generator["Rule", Node, Node]


class Parser:
    """Reads one expression; `names` are the properties it names."""

    def __init__(self, source: str) -> None:
        self.tokens = Tokenizer(source)
        self.names: set[str] = set()
        self._depth = 0

    def selector(self) -> Node:
        """selector = or ;"""
        try:
            selector = truth(_read(self._or()))
        except MisplacedOperand as error:
            raise FilterSyntaxError(self.tokens.source, error.span, error.reason) from None
        return selector

    @property
    def end(self) -> int:
        """Where what was read ends, and the text begins that nobody looks at."""
        return self.tokens.end

    def _or(self) -> Rule:
        """or = and , { "OR" , and } ;"""
        operands = [(yield self._and())]
        while self.tokens.accept("OR"):
            operands.append((yield self._and()))
        return any_of(operands) if len(operands) > 1 else operands[0]

    def _and(self) -> Rule:
        """and = eq , { "AND" , eq } ;"""
        operands = [(yield self._eq())]
        while self.tokens.accept("AND"):
            operands.append((yield self._eq()))
        return all_of(operands) if len(operands) > 1 else operands[0]

    def _eq(self) -> Rule:
        """eq = cmp , { ( "=" | "<>" ) , cmp | "IS" , [ "NOT" ] , "NULL" } ;"""
        left = yield self._cmp()
        while operator := self.tokens.accept("EQUAL", "NOT_EQUAL", "IS"):
            if operator.name == "IS":
                is_negated = self.tokens.accept("NOT") is not None
                self.tokens.expect("NULL", "NULL" if is_negated else "NULL or NOT NULL")
                left = is_null(left, is_negated, (left.span[0], self.tokens.end))
            else:
                left = equality(left, (yield self._cmp()), operator.name == "NOT_EQUAL")
        return left

    def _cmp(self) -> Rule:
        """
        cmp = unary , { ( ">" | ">=" | "<" | "<=" ) , unary
                      | [ "NOT" ] , ( "CONTAINS" | "STARTSWITH" | "ENDSWITH" ) , string
                      | [ "NOT" ] , "BETWEEN" , unary , "AND" , unary
                      | [ "NOT" ] , "IN" , "(" , string , { "," , string } , ")" } ;
        """
        tokens = self.tokens
        left = yield self._unary()
        while True:
            if order := tokens.accept(*ORDERS):
                left = ordering(left, (yield self._unary()), order.name)
                continue
            is_negated = tokens.accept("NOT") is not None
            if keyword := tokens.accept(*SEARCHES):
                wanted = self._string()
                left = search(left, keyword.name, wanted, is_negated, (left.span[0], tokens.end))
            elif tokens.accept("BETWEEN"):
                low = yield self._unary()
                tokens.expect("AND", "AND and the upper bound")
                left = between(left, low, (yield self._unary()), is_negated)
            elif tokens.accept("IN"):
                texts = self._strings()
                left = membership(left, texts, is_negated, (left.span[0], tokens.end))
            elif is_negated:
                tokens.refuse("expected CONTAINS, STARTSWITH, ENDSWITH, BETWEEN or IN behind NOT")
            else:
                return left

    def _strings(self) -> list[str]:
        """The list of IN: "(" , string , { "," , string } , ")" ;"""
        self.tokens.expect("OPEN", "( and a list of texts")
        texts = [self._string()]
        while self.tokens.accept("COMMA"):
            texts.append(self._string())
        self.tokens.expect("CLOSE", ", or )")
        return texts

    def _string(self) -> str:
        return _text(self.tokens.expect("STRING", "a text in quotes"))

    def _unary(self) -> Rule:
        """unary = ( "+" | "-" | "NOT" ) , unary | primary ;"""
        signs: list[Token] = []
        while sign := self.tokens.accept("PLUS", "MINUS", "NOT"):
            signs.append(sign)
        node = yield self._primary()
        for sign in reversed(signs):
            span = (sign.start, node.span[1])
            if sign.name == "NOT":
                node = negation(node, span)
            else:
                node = _negative(node, span) if sign.name == "MINUS" else node.spanning(*span)
        return node

    def _primary(self) -> Rule:
        """primary = string | integer | float | "TRUE" | "FALSE" | "NULL" | identifier | "(" , or , ")" ;"""
        token = self.tokens.peek()
        if token.name == IDENTIFIER:
            self.names.add(token.text)
            node = property_node(token.text, token.span)
        elif make := _LITERALS.get(token.name):
            node = make(token)
        elif token.name == "OPEN":
            return (yield self._parenthesised())
        else:
            self.tokens.refuse("expected a property or a value")
        self.tokens.take()
        return node

    def _parenthesised(self) -> Rule:
        opening = self.tokens.take()
        self._depth += 1
        if self._depth > DEEPEST:
            raise MisplacedOperand(opening.span, f"more than {DEEPEST} parentheses in each other")
        inner = yield self._or()
        self.tokens.expect("CLOSE", "an operator or )")
        self._depth -= 1
        return inner.spanning(opening.start, self.tokens.end)


def _read(rule: Rule) -> Node:
    """Run a rule, and the rules it yields, to its end."""
    stack = [rule]
    result: Node | None = None
    while stack:
        try:
            # What a generator is first sent is None.
            stack.append(stack[-1].send(cast("Node", result)))
            result = None
        except StopIteration as done:
            stack.pop()
            result = done.value
    return cast("Node", result)


def _negative(operand: Node, span: tuple[int, int]) -> Node:
    """`-operand`: a number's negative, of its own type; of everything else null."""
    if operand.type in NUMBERS:
        return literal(PartKind.NEGATION, operand.type, -operand.constant, span)
    return nothing(operand, span)


def _text(token: Token) -> str:
    return token.text[1:-1].replace("''", "'")


def _string_literal(token: Token) -> Node:
    return literal(PartKind.CONSTANT, Type.TEXT, _text(token), token.span)


def _integer_literal(token: Token) -> Node:
    """An integer, of 32 bits if it fits there, whatever its suffix."""
    digits = token.text.rstrip("lL")
    if len(digits) > _LONGEST_INTEGER or int(digits) > _LARGEST_INT64:
        raise MisplacedOperand(token.span, f"an integer above {_LARGEST_INT64}")
    number = int(digits)
    return literal(PartKind.CONSTANT, Type.INT32 if number <= _LARGEST_INT32 else Type.INT64, number, token.span)


def _float_literal(token: Token) -> Node:
    """A double, which RocketMQ wants to be neither zero nor infinite."""
    number = float(token.text)
    if number == 0 or number == float("inf"):
        raise MisplacedOperand(token.span, "a number with a point or exponent that is zero or too large for a double")
    return literal(PartKind.CONSTANT, Type.DOUBLE, number, token.span)


def _boolean_literal(token: Token) -> Node:
    value = {"TRUE": True, "FALSE": False}.get(token.name)
    return literal(PartKind.BOOLEAN_CONSTANT, Type.NULL if value is None else Type.BOOLEAN, value, token.span)


_LITERALS: Final[dict[str, Callable[[Token], Node]]] = {
    "STRING": _string_literal,
    "INTEGER": _integer_literal,
    "FLOAT": _float_literal,
    "TRUE": _boolean_literal,
    "FALSE": _boolean_literal,
    "NULL": _boolean_literal,
}
