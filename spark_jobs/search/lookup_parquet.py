"""What a batch lookup found as a Parquet file: a row for each text and message, and one for each text that has none."""

import contextlib
import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from spark_jobs.read.arrow_columns import arrow_schema
from storage.columns.names import FIRST_TIME, JSON_NAMES, KINDS, LAST_TIME

_MORE: Final = {"found_by": "foundBy", "message_id": "messageId", "offset_message_id": "offsetMessageId"}
"""Columns that an export does not have, and their names in JSON."""

_NAMES: Final = {"query": "query", "found": "found", **_MORE, **JSON_NAMES, "body_packings": "bodyPackings"}

SCHEMA: Final = pa.schema(
    [
        pa.field("query", pa.string(), nullable=False),
        pa.field("found", pa.bool_(), nullable=False),
        *(pa.field(name, pa.string()) for name in _MORE),
        *(field.with_nullable(True) for field in arrow_schema(tuple(KINDS))),
        ("body_packings", pa.list_(pa.string())),
    ]
)
"""The columns of an export, with those of the text that was asked for before them; all are null for a text that was not
found. The body is decompressed and unpacked, as far as ``body_error`` does not say why it is not."""

ROWS_AT_ONCE: Final = 10_000
BYTES_AT_ONCE: Final = 64 * 1024 * 1024
"""Of bodies: ten thousand of some megabytes would not fit into memory."""


class ParquetRows:
    """A file that is written row by row; whole once it is closed."""

    def __init__(self, path: Path) -> None:
        self._writer = pq.ParquetWriter(path, SCHEMA, compression="zstd")
        self._rows: list[Mapping[str, Any]] = []
        self._bytes = 0

    def write(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rows by their names in JSON; fields that are no columns are left out."""
        for row in rows:
            self._rows.append(row)
            self._bytes += len(row.get("body") or b"")
            if len(self._rows) >= ROWS_AT_ONCE or self._bytes >= BYTES_AT_ONCE:
                self._flush()

    def close(self) -> None:
        """Write what is left, and the file's end."""
        self._flush()
        self._writer.close()

    def drop(self) -> None:
        """Let the file go, as far as it was written."""
        with contextlib.suppress(OSError):
            self._writer.close()

    def _flush(self) -> None:
        if self._rows:
            columns = [_column([row.get(_NAMES[field.name]) for row in self._rows], field.type) for field in SCHEMA]
            self._writer.write_table(pa.Table.from_arrays(columns, schema=SCHEMA))
        self._rows, self._bytes = [], 0


def _column(values: list[Any], type_: pa.DataType) -> pa.Array:
    """Values as Arrow takes them: lone surrogates, which Java strings may have and few do, are no Unicode."""
    try:
        return _array(values, type_)
    except UnicodeEncodeError:
        return _array(list(map(_clean, values)), type_)


def _array(values: list[Any], type_: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(type_):
        values = [value if value is not None and FIRST_TIME <= value <= LAST_TIME else None for value in values]
    if not pa.types.is_map(type_):
        return pa.array(values, type_)
    # Arrow would look at each pair by itself, which takes longer than all else together.
    ends = list(itertools.accumulate((len(value or ()) for value in values), initial=0))
    starts = [None if value is None else start for value, start in zip(values, ends[:-1], strict=True)]
    names = pa.array([name for value in values for name in value or ()], type_.key_type)
    items = pa.array([item for value in values if value for item in value.values()], type_.item_type)
    return pa.MapArray.from_arrays(pa.array([*starts, ends[-1]], pa.int32()), names, items, type_)


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_clean(name): _clean(each) for name, each in value.items()}
    return list(map(_clean, value)) if isinstance(value, list) else value
