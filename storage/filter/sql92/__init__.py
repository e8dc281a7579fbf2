"""SQL92 filter expressions over the properties of a message, as RocketMQ's parser and evaluator understand them.

    expression = parse("a > 5 AND region = 'hz'")
    expression.evaluate({"a": "7", "region": "hz"})     # True; False, or None for unknown, does not deliver

An expression is compiled once, to a program that a kernel evaluates; see `program`. Source: filters §2.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from protocol.errors import FilterSyntaxError
from storage.filter.sql92._parser import Parser
from storage.filter.sql92.node import Node
from storage.filter.sql92.program import program_of
from storage.kernels.sql92 import TRUE, Program

LONGEST: Final = 1 << 18
"""Characters of an expression. No list that anybody writes is longer, and no peer may keep us parsing for seconds."""

__all__ = ["LONGEST", "Expression", "parse"]


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression; equal to another of the same text, and shared by threads.

    `program` is what kernels evaluate. `root` is the tree of conditions, to explain decisions by; behind `end` the text
    is not read.
    """

    text: str
    names: frozenset[str] = field(compare=False)
    program: Program = field(compare=False, repr=False)
    root: Node = field(compare=False, repr=False)
    end: int = field(compare=False, repr=False)

    def evaluate(self, properties: Mapping[str, str]) -> bool | None:
        """Check a message by its properties: True, False or None for unknown, which is not delivered.

        Raises `FilterEvaluationError` where a comparison cannot be made, which means the same. It asks `properties` for
        nothing but `names`.
        """
        return self.program.evaluate(properties)

    @property
    def note(self) -> str:
        """A sentence about the text that is not read; empty where all is."""
        unread = self.text[self.end :].strip()
        return f"text behind the expression is ignored, as by brokers: {unread}" if unread else ""

    def delivers(self, properties: bytes | memoryview) -> bool:
        """Whether a message with this block of properties is delivered."""
        return self.program.decide(properties) == TRUE


def parse(text: str) -> Expression:
    """Parse and compile an expression, which takes some microseconds a character and hundreds of bytes of memory.

    Raises `FilterSyntaxError` with the place.
    """
    if len(text) > LONGEST:
        raise FilterSyntaxError(text, (LONGEST, len(text)), f"more than {LONGEST} characters")
    parser = Parser(text)
    root = parser.selector()
    return Expression(text, frozenset(parser.names), program_of(root, parser.names), root, parser.end)
