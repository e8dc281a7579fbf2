"""Exports and tables of files read back, whatever the format: by their manifest, or as any reader of a directory."""

import base64
import csv
import hashlib
import io
import json
import os
from datetime import UTC, datetime
from typing import Any, cast
from urllib.parse import unquote

import msgpack
import pyarrow.parquet as pq

from loop_engine import LoopEngine
from spark_jobs.places.place_names import MANIFEST
from spark_jobs.run.progress import Silence
from spark_jobs.tables.append import run_append
from spark_jobs.tables.table_request import TableRequest
from storage.columns.names import JSON_NAMES
from store_writer import START_TIMESTAMP

Row = dict[str, Any]
TIMES = ("store_timestamp", "born_timestamp")


def manifest_of(out):
    manifest: Row = json.loads((out / MANIFEST).read_bytes())
    return manifest


def read_back(out):
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


def read_parquet(data):
    for row in pq.read_table(io.BytesIO(data)).to_pylist(maps_as_pydicts="strict"):
        yield row | {name: round(row[name].timestamp() * 1000) for name in TIMES if name in row}


def read_lines(data):
    for line in data.splitlines():
        yield with_bytes(by_columns(json.loads(line)))


def by_columns(row: Row) -> Row:
    return {COLUMNS[name]: value for name, value in row.items()}


COLUMNS = {name: column for column, name in JSON_NAMES.items()} | {"bodyEncoding": "body_encoding"}


def read_csv(data):
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


PARTITIONS = ("topic", "date")
DAY = 24 * 60 * 60 * 1000


def write_days(writer, count, start=0) -> None:
    for number in range(start, start + count):
        more = {} if number % 5 == 0 else {"unique_key": f"U{number}", "keys": f"k{number} both", "tags": "TagA"}
        body, stamp = b"" if number % 7 == 0 else b"body \xff%d" % number, START_TIMESTAMP + number // 12 * DAY + number
        writer.append(("Orders", "%RETRY%payments")[number % 2], body, store_timestamp=stamp, **more)
    writer.flush()


def append(store, place, source="", **more):
    """A run whose tasks this process does, on JSON lines in partitions unless something else is asked for."""
    options = {"format": "jsonl", "partition_by": PARTITIONS, "since_last": True, **more}
    request = TableRequest(store=source or str(store.root), table=place.url, out_storage=place.storage, **options)
    return run_append(request, Silence(), cast("Any", LoopEngine()))


def rows_of_table(place, format_="jsonl"):
    rows = []
    for name in place.objects("data"):
        assert name.endswith(f".{format_}"), name
        data = place.read(name)
        assert data is not None
        values = dict(map(unquote, part.split("=")) for part in name.split("/")[1:-1])
        rows += [row | values for row in READERS.get(format_, READERS["ndjson"])(data)]
    return sorted(rows, key=lambda row: int(row["physical_offset"]))


def with_date(row: Row) -> Row:
    return row | {"date": datetime.fromtimestamp(row["store_timestamp"] / 1000, UTC).date().isoformat()}
