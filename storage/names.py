"""Names that people type: those that hold a text, and those that a name with a slip of the finger may stand for."""

import difflib
from collections.abc import Iterable, Sequence
from typing import Final

MOST_SIMILAR: Final = 3
"""Names that are proposed at most."""

LIKENESS: Final = 0.75
"""How alike two names must be, as `difflib` measures it: 1 is the same, 0 is nothing in common."""

MOST_COMPARED: Final = 20_000
"""Names of similar length that are compared at most; so many take a tenth of a second."""


def names_holding(names: Iterable[str], text: str) -> list[str]:
    """Filter names that contain a text, ignoring case, in the order given."""
    wanted = text.lower()
    return [name for name in names if wanted in name.lower()]


def similar_names(name: str, names: Iterable[str]) -> list[str]:
    """List the names most similar to an unknown one, at most `MOST_SIMILAR`, the most similar first.

    Upper and lower case count as the same.
    """
    wanted = name.lower()
    by_lower: dict[str, list[str]] = {}
    for each in names:
        if each != name and abs(len(each) - len(name)) <= len(name) // 2 and len(by_lower) < MOST_COMPARED:
            by_lower.setdefault(each.lower(), []).append(each)
    found = difflib.get_close_matches(wanted, by_lower, MOST_SIMILAR, LIKENESS)
    return [each for lower in found for each in by_lower[lower]][:MOST_SIMILAR]


def did_you_mean(proposed: Sequence[str]) -> str:
    """The question whether one of some names was meant; empty where none is proposed."""
    if not proposed:
        return ""
    *others, last = proposed
    return f"did you mean {', '.join(others)} or {last}?" if others else f"did you mean {last}?"
