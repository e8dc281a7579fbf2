"""Put asterisks in the place of what a reader of an export may not see.

What is masked is a column or a property (`properties.NAME`). Keys, tag and unique key are properties too, so each of
them is masked in both places, and masking all properties masks them too. Masking the body masks its CRC, by which it
could be guessed.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from storage.columns.message_columns import Columns
from storage.columns.names import masked_names
from storage.columns.texts import AnyTexts, RepeatedTexts, TextLists, TextMaps, TextPlaces, Texts

MASKED: Final = b"***"


@dataclass(frozen=True)
class Mask:
    """Columns and properties that are masked."""

    columns: frozenset[str]
    properties: frozenset[str]

    def apply(self, columns: Columns) -> Columns:
        """The columns with asterisks; what is not there stays so."""
        masked = dict(columns)
        for name in self.columns & columns.keys():
            column = masked[name]
            if isinstance(column, Texts | RepeatedTexts):
                masked[name] = _masked(column)
            elif isinstance(column, TextLists):
                masked[name] = TextLists(column.offsets, _masked(column.texts))
            elif isinstance(column, TextMaps):
                masked[name] = TextMaps(column.offsets, column.names, _masked(column.values))
            else:
                masked[name] = np.zeros_like(column)
        properties = masked.get("properties")
        if self.properties and isinstance(properties, TextMaps):
            masked["properties"] = _without(properties, self.properties)
        return Columns(columns.count, masked)


def read_mask(fields: Iterable[str]) -> Mask:
    """The mask of fields as a person names them (:func:`storage.columns.names.masked_names`); raises ConfigError."""
    return Mask(*masked_names(fields))


def _masked(texts: AnyTexts) -> Texts:
    """Asterisks for each text that is there."""
    if isinstance(texts, RepeatedTexts):
        texts = texts.spread()
    there = np.ones(len(texts), np.int64) if texts.present is None else texts.present.astype(np.int64)
    offsets = np.zeros(len(texts) + 1, np.int32)
    offsets[1:] = np.cumsum(there * len(MASKED))
    data = np.tile(np.frombuffer(MASKED, np.uint8), int(there.sum()))
    return Texts(offsets, data, texts.present)


def _without(maps: TextMaps, names: Iterable[str]) -> TextMaps:
    """Maps with asterisks for the values of some names."""
    masked = np.zeros(len(maps.names), np.bool_)
    for name in names:
        masked |= _equal(maps.names, name.encode("utf-8", "replace"))
    places = TextPlaces.of(maps.values)
    rows = np.flatnonzero(masked)
    if rows.size:
        places.put(rows.tolist(), [MASKED] * rows.size)
    return TextMaps(maps.offsets, maps.names, places.gather())


def _equal(texts: AnyTexts, wanted: bytes) -> npt.NDArray[np.bool_]:
    """Which texts are one."""
    if isinstance(texts, RepeatedTexts):
        return _equal(texts.words, wanted)[texts.codes]
    starts = texts.offsets[:-1].astype(np.int64)
    equal: npt.NDArray[np.bool_] = np.equal(np.diff(texts.offsets), len(wanted))
    rows = np.flatnonzero(equal)
    if rows.size and wanted:
        taken = texts.data[starts[rows][:, None] + np.arange(len(wanted))]
        equal[rows] = (taken == np.frombuffer(wanted, np.uint8)).all(axis=1)
    return equal
