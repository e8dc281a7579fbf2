"""The files of an export: Parquet, JSON lines, CSV, and a stream of msgpack maps.

Names are those of the columns everywhere. In JSON and CSV a body is text where it is text, else base64, and
`body_encoding` behind it says which; times are ms. In CSV keys are joined by blanks and properties are a JSON object;
what is not there is an empty field. In Parquet times are timestamps of ms, in msgpack bodies are bytes.
"""

import base64
import csv
import io
from collections.abc import Callable, Sequence
from typing import IO, Any, Final, Protocol

import msgspec

from storage.columns.message_columns import Columns, MessageRow, python_rows

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

    def close(self) -> None:
        """Write what is left; the file itself stays open."""
        ...


class ParquetPart:
    """Row groups of some tens of megabytes."""

    def __init__(self, file: IO[bytes], names: Sequence[str], compression: str) -> None:
        import pyarrow as pa  # imported here: other formats do not need it
        import pyarrow.parquet as pq

        from spark_jobs.read.arrow_columns import arrow_schema, record_batch, word_paths

        self._record_batch, self._table = record_batch, pa.Table
        self._schema = arrow_schema(names, words=True)
        self._writer = pq.ParquetWriter(
            file, self._schema, compression=compression, compression_level=LEVELS.get(compression),
            use_dictionary=word_paths(self._schema),
            column_encoding={name: "DELTA_BINARY_PACKED" for name in ENCODED_BY_DIFFERENCE if name in names},
            write_statistics=[name for name in names if name not in ("body", "properties")],
            store_schema=False,  # dictionaries are how the file is written, not what is in it
        )  # fmt: skip
        self._held: list[Any] = []
        self._bytes = 0

    def write(self, columns: Columns) -> None:
        """Write the messages of one block."""
        batch = self._record_batch(columns, self._schema)
        self._held.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= ROW_GROUP_BYTES:
            self._write_group()

    def _write_group(self) -> None:
        table = self._table.from_batches(self._held, self._schema).unify_dictionaries()
        self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
        self._held, self._bytes = [], 0

    def close(self) -> None:
        """The last group and the footer."""
        if self._held:
            self._write_group()
        self._writer.close()


class LinesPart:
    """An object a line."""

    def __init__(self, file: IO[bytes], names: Sequence[str], _compression: str) -> None:
        self._file, self._encoder = file, msgspec.json.Encoder()

    def write(self, columns: Columns) -> None:
        """Write the messages of one block."""
        self._file.write(self._encoder.encode_lines(with_text(row) for row in python_rows(columns)))

    def close(self) -> None:
        """Nothing is left."""


class CsvPart:
    """A header, then a line a message, more where a body has line ends."""

    def __init__(self, file: IO[bytes], names: Sequence[str], _compression: str) -> None:
        self._file = file
        self._names = [each for name in names for each in ((name, "body_encoding") if name == "body" else (name,))]
        self._write_rows([self._names])

    def write(self, columns: Columns) -> None:
        """Write the messages of one block."""
        rows = (with_text(row) for row in python_rows(columns))
        self._write_rows([[_field(row[name]) for name in self._names] for row in rows])

    def _write_rows(self, rows: list[list[Any]]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\r\n").writerows(rows)
        self._file.write(text.getvalue().encode())

    def close(self) -> None:
        """Nothing is left."""


class MsgpackPart:
    """Maps one behind the other."""

    def __init__(self, file: IO[bytes], names: Sequence[str], _compression: str) -> None:
        self._file, self._encoder = file, msgspec.msgpack.Encoder()

    def write(self, columns: Columns) -> None:
        """Write the messages of one block."""
        encode = self._encoder.encode
        self._file.write(b"".join(encode(row) for row in python_rows(columns)))

    def close(self) -> None:
        """Nothing is left."""


FORMATS: Final[dict[str, Callable[[IO[bytes], Sequence[str], str], PartWriter]]] = {
    "parquet": ParquetPart,
    "ndjson": LinesPart,
    "csv": CsvPart,
    "msgpack": MsgpackPart,
}
"""By the name that is also the ending of their files; made of the file, the names of columns, and Parquet's codec."""


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
