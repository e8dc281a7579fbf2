"""Columns of messages as Arrow batches: the arrays are taken as they are, nothing is copied but times for Spark."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storage.columns.message_columns import Columns
from storage.columns.names import FIRST_TIME, KINDS, LAST_TIME, OPTIONAL, ColumnKind
from storage.columns.texts import AnyTexts, RepeatedTexts, TextLists, TextMaps, Texts

MILLISECONDS: Final = pa.timestamp("ms", tz="UTC")
MICROSECONDS: Final = pa.timestamp("us", tz="UTC")

_TYPES: Final[dict[ColumnKind, Any]] = {
    ColumnKind.INT: pa.int32(),
    ColumnKind.LONG: pa.int64(),
    ColumnKind.TIME: MILLISECONDS,
    ColumnKind.TEXT: pa.string(),
    ColumnKind.TEXTS: pa.list_(pa.field("element", pa.string(), nullable=False)),
    ColumnKind.MAP: pa.map_(pa.string(), pa.field("value", pa.string(), nullable=False)),
    ColumnKind.BYTES: pa.binary(),
}


NULLABLE: Final = OPTIONAL | {name for name, kind in KINDS.items() if kind is ColumnKind.TIME}
"""Columns that may be null; times are null if a timestamp cannot hold them."""

WORD: Final = pa.dictionary(pa.int32(), pa.string())
_REPEATED: Final[dict[str, pa.DataType]] = {
    **dict.fromkeys(("topic", "store_host", "born_host", "tags"), WORD),
    "properties": pa.map_(WORD, pa.field("value", pa.string(), nullable=False)),
}
"""Columns of few texts that come again and again; for the others a dictionary would be made and thrown away."""


def arrow_schema(names: Sequence[str], *, words: bool = False, times: pa.DataType = MILLISECONDS) -> pa.Schema:
    """The columns' types; times are milliseconds. `words`: what comes again and again is a dictionary and numbers."""
    types = {name: _TYPES[KINDS[name]] for name in names} | (_REPEATED if words else {})
    types |= {name: times for name in names if KINDS[name] is ColumnKind.TIME}
    return pa.schema([pa.field(name, types[name], nullable=name in NULLABLE) for name in names])


def word_paths(schema: pa.Schema) -> list[str]:
    """Where Parquet has the dictionaries of a schema."""
    paths = {field.name: field.type for field in schema}
    paths |= {f"{name}.key_value.key": type_.key_type for name, type_ in paths.items() if pa.types.is_map(type_)}
    return [path for path, type_ in paths.items() if pa.types.is_dictionary(type_)]


def record_batch(columns: Columns, schema: pa.Schema) -> pa.RecordBatch:
    """Columns as one batch of a schema, whose fields are some of theirs; times may be microseconds there."""
    arrays = [_array(columns[field.name], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(column: Any, type_: pa.DataType) -> pa.Array:
    if isinstance(column, Texts | RepeatedTexts):
        return _texts(column, type_)
    if isinstance(column, TextLists):
        child, count = _texts(column.texts, type_.value_type), len(column.offsets) - 1
        return pa.Array.from_buffers(type_, count, [None, pa.py_buffer(column.offsets)], 0, 0, [child])
    if isinstance(column, TextMaps):
        return _maps(column, type_)
    if pa.types.is_timestamp(type_):
        return _times(np.ascontiguousarray(column), type_)
    return pa.Array.from_buffers(type_, len(column), [None, pa.py_buffer(np.ascontiguousarray(column))], 0)


def _texts(texts: AnyTexts, type_: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(type_):
        if isinstance(texts, Texts):
            return _texts(texts, type_.value_type).dictionary_encode()
        valid, missing = _validity(texts.codes >= 0)
        buffers = [valid, pa.py_buffer(texts.codes)]
        words = _texts(texts.words, type_.value_type)
        return pa.DictionaryArray.from_buffers(type_, len(texts), buffers, words, missing)
    if isinstance(texts, RepeatedTexts):
        texts = texts.spread()
    valid, missing = (None, 0) if texts.present is None else _validity(texts.present)
    buffers = [valid, pa.py_buffer(texts.offsets), pa.py_buffer(texts.data)]
    return pa.Array.from_buffers(type_, len(texts), buffers, missing)


def _validity(present: npt.NDArray[np.bool_]) -> tuple[pa.Buffer | None, int]:
    """Arrow's bitmap of what is there, none where all is, and how many are not."""
    missing = len(present) - int(np.count_nonzero(present))
    return (pa.py_buffer(np.packbits(present, bitorder="little")) if missing else None), missing


def _maps(maps: TextMaps, type_: pa.DataType) -> pa.Array:
    pairs = pa.StructArray.from_arrays(
        [_texts(maps.names, type_.key_type), _texts(maps.values, type_.item_type)],
        fields=[type_.key_field, type_.item_field],
    )
    return pa.Array.from_buffers(type_, len(maps.offsets) - 1, [None, pa.py_buffer(maps.offsets)], 0, 0, [pairs])


def _times(times: npt.NDArray[np.int64], type_: pa.DataType) -> pa.Array:
    """Times of ms in the type's unit; null where nobody could read them."""
    in_unit = times * 1000 if type_ == MICROSECONDS else times
    valid, missing = _validity((times >= FIRST_TIME) & (times <= LAST_TIME))
    return pa.Array.from_buffers(type_, len(times), [valid, pa.py_buffer(in_unit)], missing)
