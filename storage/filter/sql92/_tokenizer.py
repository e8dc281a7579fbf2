"""The words of a SQL92 expression: a table of named regular expressions, and a reader that looks one token ahead.

At each place the longest form wins; the table's order sees to that, since `re` takes the first alternative that
matches: a float stands before the integer it starts with, `<=` before `<`, a comment before `-`. Keywords are words
whose upper case says so. Nothing is read before it is asked for, because what follows a complete expression is never
looked at beyond its first token, however malformed. Source: filters §2.2 and §2.3.
"""

import re
from dataclasses import dataclass
from typing import Final, NoReturn

from protocol.errors import FilterSyntaxError, quote

_EXPONENT: Final = r"[eE][+-]?[0-9]+"

TOKENS: Final = {
    "SPACE": r"[ \t\n\r\f]+",
    "LINE_COMMENT": r"--[^\n\r]*(?:\r\n|[\n\r])",  # without its line end it is two minus signs
    "BLOCK_COMMENT": r"/\*(?s:.*?)\*/",
    "FLOAT": rf"[0-9]+\.[0-9]*(?:{_EXPONENT})?|\.[0-9]+(?:{_EXPONENT})?|[0-9]+{_EXPONENT}",
    "INTEGER": r"0|[1-9][0-9]*[lL]?",
    "STRING": r"'[^']*+(?:''[^']*+)*'",
    "WORD": r"[A-Za-z_$][A-Za-z0-9_$]*",
    "NOT_EQUAL": r"<>",
    "AT_LEAST": r">=",
    "AT_MOST": r"<=",
    "EQUAL": r"=",
    "ABOVE": r">",
    "BELOW": r"<",
    "OPEN": r"\(",
    "CLOSE": r"\)",
    "COMMA": r",",
    "PLUS": r"\+",
    "MINUS": r"-",
}
IGNORED: Final = frozenset({"SPACE", "LINE_COMMENT", "BLOCK_COMMENT"})
KEYWORDS: Final = frozenset(
    {"NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH"}
)
IDENTIFIER: Final = "IDENTIFIER"
END: Final = "END"
_FORMS: Final = {name: f"(?P<{name}>{form})" for name, form in TOKENS.items()}
_TOKEN: Final = re.compile("|".join(_FORMS.values()))
_LAST_LINE_TOKEN: Final = re.compile("|".join(form for name, form in _FORMS.items() if name != "LINE_COMMENT"))
"""On the last line, where no comment can end: else each minus sign of many in a row would look for its end."""

_UNFINISHED: Final = {"'": "a string without its closing quote", "/*": "a comment without its end"}


@dataclass(frozen=True, slots=True)
class Token:
    """A token: a name of `TOKENS`, a keyword, IDENTIFIER or END; its text as written, and where that starts."""

    name: str
    text: str
    start: int

    @property
    def span(self) -> tuple[int, int]:
        """The token's place in the source, the end exclusive."""
        return self.start, self.start + len(self.text)


class Tokenizer:
    """Reads `source` token by token; `end` is where the last token taken ends."""

    __slots__ = ("_last_line", "_next", "_position", "end", "source")

    def __init__(self, source: str) -> None:
        self.source = source
        self.end = 0
        self._position = 0
        self._last_line = max(source.rfind("\n"), source.rfind("\r")) + 1
        self._next: Token | None = None

    def peek(self) -> Token:
        """The next token, left where it is. Raises `FilterSyntaxError` if none of the forms fits there."""
        if self._next is None:
            self._next = self._read()
        return self._next

    def take(self) -> Token:
        """The next token, and go on behind it."""
        token = self.peek()
        self._next = None
        self.end = self._position
        return token

    def accept(self, *names: str) -> Token | None:
        """The next token if it has one of these names, and go on behind it; else None, and stay."""
        return self.take() if self.peek().name in names else None

    def expect(self, name: str, expected: str) -> Token:
        """The next token, which must be of this name; `expected` says so to a person."""
        return self.accept(name) or self.refuse(f"expected {expected}")

    def refuse(self, reason: str) -> NoReturn:
        """Raise `FilterSyntaxError` at the next token."""
        token = self.peek()
        found = "the end" if token.name == END else quote(token.text)
        raise FilterSyntaxError(self.source, token.span, f"{reason}, found {found}")

    def _read(self) -> Token:
        while True:
            start = self._position
            match = (_TOKEN if start < self._last_line else _LAST_LINE_TOKEN).match(self.source, start)
            if match is None:
                return self._odd(start)
            self._position = match.end()
            name = match.lastgroup or ""
            if name not in IGNORED:
                break
        text = match.group()
        if name == "WORD":
            word = text.upper()
            name = word if word in KEYWORDS else IDENTIFIER
        return Token(name, text, start)

    def _odd(self, start: int) -> Token:
        """The end, or an error where no token starts."""
        if start == len(self.source):
            return Token(END, "", start)
        for opening, reason in _UNFINISHED.items():
            if self.source.startswith(opening, start):
                raise FilterSyntaxError(self.source, (start, len(self.source)), reason)
        character = self.source[start]
        raise FilterSyntaxError(self.source, (start, start + 1), f"{character!r} is no part of an expression")
