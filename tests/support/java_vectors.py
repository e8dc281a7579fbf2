"""What the JDK and RocketMQ's own classes answered (`tests/data/JavaVectors.java`), a line a vector."""

import lzma
from functools import cache
from pathlib import Path

FILE = Path(__file__).parents[1] / "data" / "java-vectors.tsv.xz"


@cache
def _lines() -> list[list[str]]:
    with lzma.open(FILE, "rt", encoding="ascii") as file:
        return [line.rstrip("\n").split("\t") for line in file]


def vectors(*kinds: str) -> list[list[str]]:
    """The columns of every vector of these kinds, in the file's order; the kind itself only if there are several."""
    found = [line if len(kinds) > 1 else line[1:] for line in _lines() if line[0] in kinds]
    assert found, kinds
    return found


def text(column: str) -> str:
    """A column that holds a text."""
    return bytes.fromhex(column).decode("utf-16-be", "surrogatepass")


def pairs(column: str) -> dict[str, str]:
    """A column that holds properties."""
    split = (pair.split("=") for pair in column.split(",") if pair)
    return {text(name): text(value) for name, value in split}
