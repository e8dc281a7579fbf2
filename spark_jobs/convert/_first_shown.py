"""The first of many sentences, for a person; a program gets all."""

from collections.abc import Iterator, Sequence
from typing import Final

from storage.amounts import counted

MOST_SHOWN: Final = 20


def first_shown(what: str, sentences: Sequence[str], left: int, one: str) -> Iterator[str]:
    """Lines that begin with `what`: of sentences the first, and how many are `left` that those do not name."""
    yield from (f"{what}: {each}" for each in sentences[:MOST_SHOWN])
    if left > 0:
        yield f"{what}: and {counted(left, one)} more; --json names them"
