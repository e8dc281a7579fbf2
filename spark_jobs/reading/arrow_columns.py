"""Columns of messages as Arrow batches: the arrays are taken as they are, nothing is copied but times."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storage.columns.message_columns import Columns
from storage.columns.names import KINDS, OPTIONAL, Kind
from storage.columns.texts import AnyTexts, RepeatedTexts, TextLists, TextMaps, Texts

MILLISECONDS: Final = pa.timestamp("ms", tz="UTC")
MICROSECONDS: Final = pa.timestamp("us", tz="UTC")
LARGEST_MICROSECONDS: Final = (2**63 - 1) // 1000
"""The largest time in ms, of either sign, that microseconds can tell; columns of microseconds have none beyond."""

_TYPES: Final[dict[Kind, Any]] = {
    Kind.INT: pa.int32(),
    Kind.LONG: pa.int64(),
    Kind.TIME: MILLISECONDS,
    Kind.TEXT: pa.string(),
    Kind.TEXTS: pa.list_(pa.field("element", pa.string(), nullable=False)),
    Kind.MAP: pa.map_(pa.string(), pa.field("value", pa.string(), nullable=False)),
    Kind.BYTES: pa.binary(),
}


WORD: Final = pa.dictionary(pa.int32(), pa.string())
_REPEATED: Final[dict[str, Any]] = {
    **dict.fromkeys(("topic", "store_host", "born_host", "tags"), WORD),
    "properties": pa.map_(WORD, pa.field("value", pa.string(), nullable=False)),
}
"""Columns of few texts that come again and again."""


def arrow_schema(names: Sequence[str], *, words: bool = False) -> pa.Schema:
    """The columns' types; times are milliseconds. `words`: what comes again and again is a dictionary and numbers."""
    types = {name: _TYPES[KINDS[name]] for name in names} | (_REPEATED if words else {})
    return pa.schema([pa.field(name, types[name], nullable=name in OPTIONAL) for name in names])


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
    if type_ == MICROSECONDS:
        return _microseconds(column)
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


def _microseconds(times: Any) -> pa.Array:
    """Times of milliseconds; none where they cannot be told in microseconds."""
    missing = (times > LARGEST_MICROSECONDS) | (times < -LARGEST_MICROSECONDS)
    if not missing.any():
        return pa.Array.from_buffers(MICROSECONDS, len(times), [None, pa.py_buffer(times * 1000)], 0)
    return pa.array(np.where(missing, 0, times) * 1000, type=MICROSECONDS, mask=missing)
