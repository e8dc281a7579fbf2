"""The messages of a recorded store, in a table of each format, as other programs read it: rows, types, times, nulls."""

import base64
import contextlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import oracles
from column_rows import expected_rows
from exported_files import Row
from golden_store import unpack
from interop.jars import cached, copy_jars
from other_versions import DUCKDB_EXTENSIONS, duckdb_extension, duckdb_of, pyspark_of
from spark_jobs.run.progress import Silence
from spark_jobs.tables.append import run_append
from spark_jobs.tables.table_request import TableRequest
from storage.columns.names import KINDS, ColumnKind

TIMES = tuple(name for name, kind in KINDS.items() if kind is ColumnKind.TIME)
PARTITIONS = ("topic", "date")
SPARK = {
    "iceberg": ("4.1.4", ("org.apache.iceberg", "iceberg-spark-runtime-4.1_2.13", "1.12.0")),
    "delta": ("4.2.1", ("io.delta", "delta-spark_4.2_2.13", "4.4.0")),
}
"""The newest runtimes that there are, and the PySpark that each of them is for: there is none for the pinned one."""

SUPPORT = Path(__file__).parents[2] / "support"
DUCKDB = "1.5.5"
"""The newest whose extensions are on PyPI: there are none for the pinned one."""

SECONDS = 600


@dataclass(frozen=True)
class Golden:
    store: Path
    rows: list[Row]
    directory: Path

    def append(self, table, format_, **more) -> None:
        options = {"format": format_, "partition_by": PARTITIONS, **more}
        report = run_append(TableRequest(store=str(self.store), table=str(table), **options), Silence())
        assert report.messages == len(self.rows)

    def table(self, format_: str) -> Path:
        table = self.directory / format_
        if not table.exists():
            self.append(table, format_, since_last=True)
        return table


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Golden:
    directory = tmp_path_factory.mktemp("golden")
    store = unpack("store", directory)
    rows = expected_rows(oracles.read_log(store / "commitlog"))
    assert len(rows) > 100
    assert {row["unique_key"] is None for row in rows} == {True, False}, "there are messages with and without keys"
    return Golden(store, sorted(rows, key=_place), directory / "tables")


def by_pyarrow(table: Path) -> pa.Table:
    schema = pa.schema([("topic", pa.string()), ("date", pa.date32())])
    partitioning = ds.partitioning(schema, flavor="hive")
    return ds.dataset(table / "data", format="parquet", partitioning=partitioning).to_table()


def by_polars(table: Path) -> pa.Table:
    import polars as pl

    schema = {"topic": pl.String, "date": pl.Date}
    return pl.scan_parquet(table / "data", hive_partitioning=True, hive_schema=schema).collect().to_arrow()


def by_duckdb(table: Path) -> pa.Table:
    types = "hive_partitioning = true, hive_types = {'topic': VARCHAR, 'date': DATE}"
    return _duckdb(f"SELECT * FROM read_parquet('{table}/data/**/*.parquet', {types})")


def by_pyiceberg(table: Path) -> pa.Table:
    return _iceberg(table).scan().to_arrow()


def by_deltalake(table: Path) -> pa.Table:
    from deltalake import DeltaTable

    return DeltaTable(table).to_pyarrow_table()


READERS = {
    ("parquet", "pyarrow"): by_pyarrow,
    ("parquet", "Polars"): by_polars,
    ("parquet", "DuckDB"): by_duckdb,
    ("iceberg", "pyiceberg"): by_pyiceberg,
    ("delta", "deltalake"): by_deltalake,
}


@pytest.mark.parametrize(
    ("format_", "reader"),
    [pytest.param(*each, marks=[pytest.mark.soak] if each[1] in ("Polars", "pyarrow") else []) for each in READERS],
)
def test_a_table_has_the_messages_of_the_log_for_every_reader(golden: Golden, format_: str, reader: str) -> None:
    unit = "ms" if format_ == "parquet" and reader != "DuckDB" else "us"
    check_table(READERS[format_, reader](golden.table(format_)), golden, format_, unit)


@pytest.mark.soak
@pytest.mark.parametrize("format_", ["iceberg", "delta"])
def test_duckdb_with_its_extension_reads_the_same(golden: Golden, tmp_path: Path, format_: str) -> None:
    table, out = golden.table(format_), tmp_path / "found.arrow"
    query = f"delta_scan('{table}')" if format_ == "delta" else f"iceberg_scan('{_iceberg(table).metadata_location}')"
    directory = duckdb_of(DUCKDB)
    extensions = [str(duckdb_extension(directory, each)) for each in DUCKDB_EXTENSIONS]
    program = [sys.executable, str(SUPPORT / "duckdb_lakes.py"), f"SELECT * FROM {query}", str(out), *extensions]
    subprocess.run(program, env=os.environ | {"PYTHONPATH": str(directory)}, check=True, timeout=SECONDS)
    check_table(pa.ipc.open_file(pa.memory_map(str(out))).read_all(), golden, format_, "us")


def check_table(found: pa.Table, golden: Golden, format_: str, unit: str) -> None:
    for name in TIMES:
        assert found.schema.field(name).type == pa.timestamp(unit, tz="UTC"), name
    assert found.schema.field("physical_offset").type == pa.int64()
    assert found.schema.field("queue_id").type == pa.int32()
    assert found.schema.field("body").type in (pa.binary(), pa.large_binary(), pa.binary_view())
    rows = [_plain(row) for row in found.to_pylist()]
    days = [row.pop("date") for row in rows] if format_ != "iceberg" else []
    assert sorted(rows, key=_place) == golden.rows
    assert [day.isoformat() for day in days] == [_day(row) for row in rows if days]


@pytest.mark.soak
@pytest.mark.parametrize("format_", SPARK)
def test_spark_with_its_runtime_reads_the_same(golden: Golden, tmp_path: Path, format_: str) -> None:
    from rest_catalog import rest_catalog

    version, (group, name, number) = SPARK[format_]
    options = ("-DincludeScope=runtime", f"-DincludeGroupIds={group}", f"-Dlake.group={group}")
    more = (*options, f"-Dlake.artifact={name}", f"-Dlake.version={number}")
    jars = cached(f"{name}-{number}", lambda folder: copy_jars(SUPPORT / "lakes-pom.xml", folder, *more))
    pyspark = pyspark_of(version)
    with contextlib.ExitStack() as stack:
        if format_ == "iceberg":
            catalog = stack.enter_context(rest_catalog(tmp_path / "rest")).uri
            golden.append(f"file://{tmp_path}/table", format_, catalog={"uri": catalog})
            table = ("rocketmq.messages", str(jars), catalog)
        else:
            table = (str(golden.table(format_)), str(jars))
        program = [sys.executable, str(SUPPORT / "spark_lakes.py"), format_, *table]
        environment = os.environ | {"PYTHONPATH": str(pyspark), "TZ": "UTC"}
        ended = subprocess.run(program, env=environment, capture_output=True, text=True, check=True, timeout=SECONDS)
    types, *rows = map(json.loads, ended.stdout.splitlines())
    assert [types[each] for each in (*TIMES, "keys", "properties", "body", "queue_id", "physical_offset")] == [
        "timestamp", "timestamp", "array<string>", "map<string,string>", "binary", "int", "bigint",
    ]  # fmt: skip
    found = [
        row
        | {name: _milliseconds(datetime.fromisoformat(row[name]).replace(tzinfo=UTC)) for name in TIMES}
        | {"body": None if row["body"] is None else base64.b64decode(row["body"])}
        for row in rows
    ]
    assert [row.pop("date") for row in found if "date" in row] == [_day(row) for row in found if format_ == "delta"]
    assert sorted(found, key=_place) == golden.rows


def _duckdb(query: str) -> pa.Table:
    import duckdb

    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return connection.sql(query).to_arrow_table()


def _iceberg(table):
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog("default", uri=f"sqlite:///{table}/catalog.db")
    try:
        return catalog.load_table("rocketmq.messages")
    finally:
        catalog.close()


def _plain(row: Row) -> Row:
    found = dict(row)
    for name in TIMES:
        if isinstance(found[name], datetime):
            found[name] = _milliseconds(found[name])
    pairs = found["properties"]
    if not isinstance(pairs, dict):
        found["properties"] = dict(each.values() if isinstance(each, dict) else each for each in pairs)
    return found


def _milliseconds(time: datetime) -> int:
    assert (time.utcoffset(), time.microsecond % 1000) == (UTC.utcoffset(None), 0), time
    return round(time.timestamp() * 1000)


def _day(row: Row) -> str:
    return datetime.fromtimestamp(row["store_timestamp"] / 1000, UTC).date().isoformat()


def _place(row: Row) -> int:
    return int(row["physical_offset"])
