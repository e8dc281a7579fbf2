"""What RocketMQ's own filter classes answered (`tests/data/FilterVectors.java`), a JSON array a line."""

import json
import lzma
from functools import cache
from pathlib import Path

FILE = Path(__file__).parents[1] / "data" / "filter-vectors.jsonl.xz"


@cache
def _lines():
    with lzma.open(FILE, "rt", encoding="ascii") as file:
        return [json.loads(line) for line in file]


def vectors(kind):
    """The columns of every vector of this kind, in the file's order, the kind itself left out."""
    found = [line[1:] for line in _lines() if line[0] == kind]
    assert found, kind
    return found
