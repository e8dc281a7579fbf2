"""What a batch lookup found as a Parquet file: a row for each text and message, and one for each text that has none."""

import contextlib
import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from spark_jobs.read.arrow_columns import FIRST_TIME, LAST_TIME

SCHEMA: Final = pa.schema(
    [
        pa.field("query", pa.string(), nullable=False),
        pa.field("found", pa.bool_(), nullable=False),
        ("by", pa.string()),
        ("messageId", pa.string()),
        ("uniqueKey", pa.string()),
        ("offsetMessageId", pa.string()),
        ("topic", pa.string()),
        ("queueId", pa.int32()),
        ("queueOffset", pa.int64()),
        ("physicalOffset", pa.int64()),
        ("totalSize", pa.int32()),
        ("flag", pa.int32()),
        ("sysFlag", pa.int32()),
        ("bornTimestamp", pa.timestamp("ms", tz="UTC")),
        ("bornHost", pa.string()),
        ("storeTimestamp", pa.timestamp("ms", tz="UTC")),
        ("storeHost", pa.string()),
        ("reconsumeTimes", pa.int32()),
        ("preparedTransactionOffset", pa.int64()),
        ("tags", pa.string()),
        ("keys", pa.list_(pa.string())),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("body", pa.binary()),
        ("bodyPackings", pa.list_(pa.string())),
        ("bodyError", pa.string()),
    ]
)
"""Names are those of the JSON lines; the body is decompressed and unpacked, as far as ``bodyError`` does not say
why it is not.
Times are null where an export's are."""

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
        """Add rows; fields that are not in the schema are left out."""
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
            columns = [_column([row.get(field.name) for row in self._rows], field.type) for field in SCHEMA]
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
