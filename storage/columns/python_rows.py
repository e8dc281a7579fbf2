"""Columns as Python values, for formats that are written row by row."""

import itertools
from collections.abc import Iterator
from typing import Any

from storage.columns.message_columns import Column, Columns
from storage.columns.names import KINDS, ColumnKind
from storage.columns.texts import AnyTexts, RepeatedTexts, TextLists, TextMaps, Texts


def python_rows(columns: Columns) -> Iterator[dict[str, Any]]:
    """A map of each message, by column: numbers, texts, bytes for bodies, lists and maps; times are ms."""
    values = [python_values(name, column) for name, column in columns.items()]
    names = tuple(columns)
    for row in zip(*values, strict=True):
        yield dict(zip(names, row, strict=True))


def python_values(name: str, column: Column) -> list[Any]:
    """The values of one column."""
    if isinstance(column, Texts | RepeatedTexts):
        return _pieces(column) if isinstance(column, Texts) and KINDS[name] is ColumnKind.BYTES else _decoded(column)
    if isinstance(column, TextLists):
        texts = _decoded(column.texts)
        return [texts[start:stop] for start, stop in itertools.pairwise(column.offsets.tolist())]
    if isinstance(column, TextMaps):
        pairs = list(zip(_decoded(column.names), _decoded(column.values), strict=True))
        return [dict(pairs[start:stop]) for start, stop in itertools.pairwise(column.offsets.tolist())]
    values: list[Any] = column.tolist()
    return values


def _pieces(texts: Texts) -> list[bytes | None]:
    data = texts.data.tobytes()
    pieces: list[bytes | None] = [data[start:stop] for start, stop in itertools.pairwise(texts.offsets.tolist())]
    if texts.present is not None:
        for row in (~texts.present).nonzero()[0].tolist():
            pieces[row] = None
    return pieces


def _decoded(texts: AnyTexts) -> list[str | None]:
    if isinstance(texts, RepeatedTexts):
        words = [*_decoded(texts.words), None]  # to which −1 leads
        return [words[code] for code in texts.codes.tolist()]
    return [None if piece is None else piece.decode() for piece in _pieces(texts)]
