"""Exports read back: the rows of all parts of a directory, by its manifest, whatever the format."""

import base64
import csv
import hashlib
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import pyarrow.parquet as pq

from spark_jobs.places.place_names import MANIFEST
from storage.columns.names import JSON_NAMES

Row = dict[str, Any]
TIMES = ("store_timestamp", "born_timestamp")


def manifest_of(out: Path) -> Row:
    manifest: Row = json.loads((out / MANIFEST).read_bytes())
    return manifest


def read_back(out: Path) -> list[Row]:
    """The rows of all parts, by what the manifest says; each part is held against it."""
    manifest, rows = manifest_of(out), []
    for part in manifest["parts"]:
        data = (out / part["name"]).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (part["bytes"], part["sha256"])
        found = list(READERS[manifest["format"]](data))
        assert part["records"] == len(found)
        rows += found
    assert manifest["records"] == len(rows)
    names = {part["name"] for part in manifest["parts"]}
    assert set(os.listdir(out)) == {MANIFEST, *names}
    return rows


def read_parquet(data: bytes) -> Iterator[Row]:
    for row in pq.read_table(io.BytesIO(data)).to_pylist(maps_as_pydicts="strict"):
        yield row | {name: round(row[name].timestamp() * 1000) for name in TIMES if name in row}


def read_lines(data: bytes) -> Iterator[Row]:
    for line in data.splitlines():
        yield with_bytes(by_columns(json.loads(line)))


def by_columns(row: Row) -> Row:
    """A row of JSON lines or msgpack by the names of columns."""
    return {COLUMNS[name]: value for name, value in row.items()}


COLUMNS = {name: column for column, name in JSON_NAMES.items()} | {"bodyEncoding": "body_encoding"}


def read_csv(data: bytes) -> Iterator[Row]:
    csv.field_size_limit(1 << 24)
    for fields in csv.DictReader(io.StringIO(data.decode(), newline="")):
        fields = {name: _plain(text) for name, text in fields.items()}
        row: Row = dict(fields)
        for name, text in fields.items():
            if name in ("keys", "properties"):
                row[name] = json.loads(text) if name == "properties" else text.split()
            elif name not in TEXTS:
                row[name] = int(text) if text else None
            elif not text and name != "body":
                row[name] = None
        yield with_bytes(row)


def _plain(text: str) -> str:
    """A field without the apostrophe that keeps spreadsheets from running it."""
    return text[1:] if text[:1] == "'" and text[1:2] in tuple("=+-@\t\r") else text


TEXTS = ("topic", "store_host", "born_host", "unique_key", "tags", "body", "body_encoding", "body_error")


def with_bytes(row: Row) -> Row:
    """The body as bytes again."""
    if "body" not in row:
        return row
    encoding = row.pop("body_encoding")
    if encoding is None:
        return row | {"body": None}
    return row | {"body": base64.b64decode(row["body"]) if encoding == "base64" else row["body"].encode()}


READERS = {
    "parquet": read_parquet,
    "ndjson": read_lines,
    "jsonl": read_lines,
    "csv": read_csv,
    "msgpack": lambda data: map(by_columns, msgpack.Unpacker(io.BytesIO(data))),
}
