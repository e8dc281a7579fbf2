"""Find a text that every match of a regular expression contains, so that raw bytes can be searched for it first.

A module of its own, since it alone depends on how `re` parses, which is not promised to stay.
"""

import re
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any, Final

SHORTEST: Final = 3
"""Bytes of a literal that is worth a look: a shorter one is in most bodies."""

_TRANSPARENT: Final = {codes.MAX_REPEAT, codes.MIN_REPEAT, getattr(codes, "POSSESSIVE_REPEAT", None)}


def required_literal(pattern: str) -> bytes | None:
    """The longest such text, in UTF-8; None if all are shorter than three bytes.

    Nothing is derived from a pattern that ignores case: a letter may then match one of another alphabet. Raises
    ``re.error`` for what is no regular expression.
    """
    compiled = re.compile(pattern)
    if compiled.flags & re.IGNORECASE:
        return None
    runs: list[str] = []
    _collect(_parser.parse(pattern), runs)
    candidates = [run.encode() for run in runs if "\ufffd" not in run and _is_text(run)]
    longest = max(candidates, key=len, default=b"")
    return longest if len(longest) >= SHORTEST else None


def _collect(parsed: Any, runs: list[str]) -> None:
    """Add the runs of literal characters that every match contains; a run is never joined over what varies."""
    run = ""
    for operation, argument in parsed:
        if operation is codes.LITERAL:
            run += chr(argument)
            continue
        if operation is codes.AT:  # matches at a place, and no character
            continue
        runs.append(run)
        run = ""
        if operation is codes.SUBPATTERN:
            _, added, _, inner = argument
            if not added & re.IGNORECASE:
                _collect(inner, runs)
        elif operation in _TRANSPARENT and argument[0] > 0:
            _collect(argument[2], runs)
    runs.append(run)


def _is_text(run: str) -> bool:
    try:
        run.encode()
    except UnicodeEncodeError:
        return False
    return True
