"""What a batch lookup found as a Parquet file: a row for each text and message, and one for each text that has none."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

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
        ("bodyError", pa.string()),
    ]
)
"""Names are those of the JSON lines; the body is decompressed, as far as ``bodyError`` does not say why it is not."""

ROWS_AT_ONCE: Final = 10_000


class ParquetRows:
    """A file that is written row by row; whole once it is closed."""

    def __init__(self, path: Path) -> None:
        self._writer = pq.ParquetWriter(path, SCHEMA, compression="zstd")
        self._rows: list[dict[str, Any]] = []

    def write(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rows; fields that are not in the schema are left out."""
        self._rows += [{name: _clean(row.get(name)) for name in SCHEMA.names} for row in rows]
        if len(self._rows) >= ROWS_AT_ONCE:
            self._flush()

    def close(self) -> None:
        """Write what is left, and the file's end."""
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_table(pa.Table.from_pylist(self._rows, SCHEMA))
        self._rows = []


def _clean(value: Any) -> Any:
    """A value as Arrow takes it: lone surrogates, which Java strings may have, are no Unicode."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return [(_clean(name), _clean(each)) for name, each in value.items()]
    return list(map(_clean, value)) if isinstance(value, list) else value
