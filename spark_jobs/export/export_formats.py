"""The files of an export: Parquet, JSON lines, CSV, and a stream of msgpack maps.

Parquet and CSV are named by the columns, JSON lines and msgpack as messages are in JSON everywhere
(docs/message.schema.json). In JSON and CSV a body is text where it is text, else base64, and what stands behind it,
`bodyEncoding` or `body_encoding`, says which; times are ms. In CSV keys are joined by blanks and properties are a JSON
object; what is not there is an empty field. In Parquet times are timestamps of ms, in msgpack bodies are bytes.

In CSV a text that a spreadsheet would take for a formula has an apostrophe before it, as on the page (save.js), unless
the style is `EXACT`; with `EXCEL` the file begins with a byte-order mark, and times are ISO 8601 in UTC.
"""

import base64
import codecs
import csv
import io
from collections.abc import Callable, Sequence
from typing import IO, Any, Final, Protocol

import msgspec

from protocol.body_content import text_in
from storage.columns.message_columns import Columns, MessageRow, python_rows
from storage.columns.names import JSON_NAMES, KINDS, ColumnKind
from storage.times import format_timestamp

EXACT: Final = "exact"
EXCEL: Final = "excel"
"""Styles of CSV; any other word is the style for programs and persons alike."""

_FORMULAS: Final = ("=", "+", "-", "@", "\t", "\r")

TEXT: Final = "utf-8"
BASE64: Final = "base64"
ROW_GROUP_BYTES: Final = 64 * 1024 * 1024
LEVELS: Final = {"zstd": 1}
"""The compression level of Parquet codecs that have one."""
ENCODED_BY_DIFFERENCE: Final = ("queue_offset", "physical_offset", "size", "store_timestamp", "born_timestamp")
"""Numbers near to those before them: their differences leave the codec little to do."""


class PartWriter(Protocol):
    """Writes the messages of one part, block by block."""

    def write(self, columns: Columns) -> None:
        """Write the messages of one block."""
        ...

    def flush(self) -> None:
        """Write what is held."""
        ...

    def close(self) -> None:
        """Write what is left; the file itself stays open."""
        ...

    def discard(self) -> None:
        """Write nothing more: nobody wants the file."""
        ...

    @property
    def held_bytes(self) -> int:
        """Bytes in memory that are not written yet."""
        ...


class ParquetPart:
    """Row groups of some tens of megabytes."""

    def __init__(self, file: IO[bytes], names: Sequence[str], compression: str, schema: Any = None) -> None:
        """`schema` is that of the batches, where they are not made of columns."""
        import pyarrow as pa  # imported here: other formats do not need it
        import pyarrow.parquet as pq

        from spark_jobs.read.arrow_columns import arrow_schema, record_batch, word_paths

        self._record_batch, self._table = record_batch, pa.Table
        with_words = arrow_schema(names, words=True)
        self._schema = with_words if schema is None else schema
        self._writer = pq.ParquetWriter(
            file, self._schema, compression=compression, compression_level=LEVELS.get(compression),
            use_dictionary=word_paths(with_words),
            column_encoding={name: "DELTA_BINARY_PACKED" for name in ENCODED_BY_DIFFERENCE if name in names},
            write_statistics=[name for name in names if name not in ("body", "properties")],
            store_schema=False,  # dictionaries are how the file is written, not what is in it
        )  # fmt: skip
        self._held: list[Any] = []
        self.held_bytes = 0
        """Bytes of the row group that is being gathered."""

    def write(self, columns: Columns) -> None:
        """Write the messages of one block."""
        self.write_batch(self._record_batch(columns, self._schema))

    def write_batch(self, batch: Any) -> None:
        """Write a batch of the schema."""
        self._held.append(batch)
        self.held_bytes += batch.nbytes
        if self.held_bytes >= ROW_GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        """End the row group."""
        if not self._held:
            return
        table = self._table.from_batches(self._held, self._schema).unify_dictionaries()
        self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
        self._held, self.held_bytes = [], 0

    def close(self) -> None:
        """The last group and the footer."""
        self.flush()
        self._writer.close()

    def discard(self) -> None:
        """Keep pyarrow from writing the footer when it collects its writer, into a file that is closed by then."""
        self._writer.is_open = False


class _Direct:
    """Holds nothing back."""

    held_bytes = 0

    def flush(self) -> None:
        """Nothing is held."""

    def close(self) -> None:
        """Nothing is left."""

    def discard(self) -> None:
        """Nothing would be written."""


class LinesPart(_Direct):
    """An object a line."""

    def __init__(self, file: IO[bytes], names: Sequence[str], _compression: str) -> None:
        self._file, self._encoder = file, msgspec.json.Encoder()

    def write(self, columns: Columns) -> None:
        """Write the messages of one block."""
        self._file.write(self._encoder.encode_lines(in_json(row) for row in python_rows(columns)))


class CsvPart(_Direct):
    """A header, then a line a message, more where a body has line ends."""

    def __init__(self, file: IO[bytes], names: Sequence[str], style: str) -> None:
        self._file = file
        self._names = csv_names(names)
        self._times = {name for name in names if KINDS[name] is ColumnKind.TIME} if style == EXCEL else set()
        self._is_exact = style == EXACT
        if style == EXCEL:
            file.write(codecs.BOM_UTF8)
        self._write_rows([self._names])

    def write(self, columns: Columns) -> None:
        """Write the messages of one block."""
        rows = (with_text(row) for row in python_rows(columns))
        self._write_rows([[self._field(row, name) for name in self._names] for row in rows])

    def _field(self, row: MessageRow, name: str) -> Any:
        value = row[name]
        if name in self._times:
            return None if value is None else format_timestamp(value)
        text = _field(value)
        is_text = isinstance(text, str) and not (name == "body" and row["body_encoding"] == BASE64)
        return without_formula(text) if is_text and not self._is_exact else text

    def _write_rows(self, rows: list[list[Any]]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\r\n").writerows(rows)
        self._file.write(text.getvalue().encode())


class MsgpackPart(_Direct):
    """Maps one behind the other."""

    def __init__(self, file: IO[bytes], names: Sequence[str], _compression: str) -> None:
        self._file, self._encoder = file, msgspec.msgpack.Encoder()

    def write(self, columns: Columns) -> None:
        """Write the messages of one block."""
        encode = self._encoder.encode
        names = [JSON_NAMES[name] for name in columns]
        rows = python_rows(columns)
        self._file.write(b"".join(encode(dict(zip(names, row.values(), strict=True))) for row in rows))


FORMATS: Final[dict[str, Callable[[IO[bytes], Sequence[str], str], PartWriter]]] = {
    "parquet": ParquetPart,
    "ndjson": LinesPart,
    "jsonl": LinesPart,
    "csv": CsvPart,
    "msgpack": MsgpackPart,
}
"""By the name that is also the ending of their files; made of file, column names, and Parquet's codec or CSV's style.
"""


def without_formula(text: str) -> str:
    """A text as no spreadsheet takes it for a formula: what a message holds is never run."""
    return f"'{text}" if text.startswith(_FORMULAS) else text


def csv_names(names: Sequence[str]) -> list[str]:
    """The header of CSV for some columns: behind the body it says how that is encoded."""
    return [each for name in names for each in ((name, "body_encoding") if name == "body" else (name,))]


def in_json(row: MessageRow) -> MessageRow:
    """The row by the names of JSON, with the body as text or base64, and behind it which."""
    fields: MessageRow = {}
    for name, value in row.items():
        if name == "body":
            fields["body"], fields["bodyEncoding"] = _content_of(value)
        else:
            fields[JSON_NAMES[name]] = value
    return fields


def _content_of(body: bytes | None) -> tuple[str | None, str | None]:
    if body is None:
        return None, None
    text = text_in(body)
    return (base64.b64encode(body).decode(), "base64") if text is None else (text, "text")


def with_text(row: MessageRow) -> MessageRow:
    """The row with the body as text or base64, and behind it which."""
    if "body" not in row:
        return row
    fields: MessageRow = {}
    for name, value in row.items():
        fields[name] = value
        if name == "body":
            fields["body"], fields["body_encoding"] = _text_of(value)
    return fields


def _text_of(body: bytes | None) -> tuple[str | None, str | None]:
    if body is None:
        return None, None
    try:
        return body.decode(), TEXT
    except UnicodeDecodeError:
        return base64.b64encode(body).decode(), BASE64


def _field(value: Any) -> Any:
    if isinstance(value, list):
        return " ".join(value)
    return msgspec.json.encode(value).decode() if isinstance(value, dict) else value
