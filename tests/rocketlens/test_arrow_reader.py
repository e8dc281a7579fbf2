"""Messages as Arrow batches: the columns and rows of the Parquet export, without Spark."""

import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import oracles
import rocketlens
from spark_jobs.export.export_formats import ParquetPart
from spark_jobs.read.log_ranges import find_ranges
from spark_jobs.read.read_range import RangeReader
from storage.columns.names import KINDS
from storage.columns.wanted import Wanted
from storage.extras import install_line
from store_writer import StoreWriter


def parquet_of(store: Path, path: Path) -> pa.Table:
    """All messages as a part of an export has them, read back."""
    with path.open("wb") as file:
        writer = ParquetPart(file, tuple(KINDS), "zstd")
        for each in find_ranges(str(store)).ranges:
            for columns in RangeReader(each, Wanted(), tuple(KINDS)).read():
                writer.write(columns)
        writer.close()
    return pq.read_table(path)


def test_schema_and_rows_are_those_of_the_parquet_export(g1_store: Path, tmp_path: Path) -> None:
    exported = parquet_of(g1_store, tmp_path / "part.parquet")
    table = rocketlens.arrow(g1_store).read_all()
    assert table.schema.names == exported.schema.names == list(KINDS)
    assert [field.type for field in table.schema] == [field.type for field in exported.schema]
    assert table.to_pylist() == exported.to_pylist()
    assert table.num_rows == len(oracles.read_log(g1_store / "commitlog")) > 300


def test_rows_are_those_that_the_oracle_reads(g1_store: Path) -> None:
    records = [record for record in oracles.read_log(g1_store / "commitlog") if record.topic == "TopicTest"]
    columns = ["physical_offset", "queue_id", "queue_offset", "body"]
    with rocketlens.open(g1_store) as store:
        table = rocketlens.arrow(store, "TopicTest", columns).read_all()
        bodies = {message.physical_offset: message.body for message in store.search(topic="TopicTest")}
    assert table.schema.names == columns
    rows = table.to_pylist()
    expected = [(record.physical_offset, record.queue_id, record.queue_offset) for record in records]
    assert [(row["physical_offset"], row["queue_id"], row["queue_offset"]) for row in rows] == expected
    assert {row["physical_offset"]: row["body"] for row in rows} == bodies


def test_conditions_narrow_what_is_read(g1_store: Path) -> None:
    records = oracles.read_log(g1_store / "commitlog")
    times = sorted(record.store_timestamp for record in records)
    begin, end = times[20], times[200]

    def count(**options: object) -> int:
        rows: int = rocketlens.arrow(g1_store, columns=["queue_id"], **options).read_all().num_rows  # type: ignore[arg-type]
        return rows

    assert count(begin=begin, end=end) == sum(begin <= time <= end for time in times)
    assert count(topic=["TopicTest", "TopicTx"]) == sum(record.topic in ("TopicTest", "TopicTx") for record in records)
    assert count(topic="TopicTest", queue_id=1) == sum(
        (record.topic, record.queue_id) == ("TopicTest", 1) for record in records
    )
    assert count(tag="TagA || Aa", topic="TopicTest") == 5
    assert 0 < count(where="a > 10 AND a <= 30 AND region = 'hz'") < len(records)


def test_damage_is_left_out_with_a_warning_or_is_an_error(g1_store: Path, tmp_path: Path) -> None:
    store = Path(shutil.copytree(g1_store, tmp_path / "store"))
    with (store / "commitlog" / f"{0:020}").open("r+b") as segment:
        segment.seek(6581 + 100)
        segment.write(b"damage")
    with pytest.warns(rocketlens.DamageWarning, match="physical offset 6581") as warned:
        table = rocketlens.arrow(store, columns=["physical_offset"]).read_all()
    assert len(warned) == 1
    whole = {record.physical_offset for record in oracles.read_log(g1_store / "commitlog")}
    assert whole - set(table["physical_offset"].to_pylist()) == {6581}
    with warnings.catch_warnings(), pytest.raises(rocketlens.CorruptRecord):
        rocketlens.arrow(store, columns=["physical_offset"], fails_fast=True).read_all()


def test_what_a_mask_hides_whole_is_counted_by_a_warning(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store")
    for body in (b"a" * 60, b"xaab"):
        writer.append("T", body)
    writer.close()
    with pytest.warns(UserWarning, match="^1 body or property value was hidden whole: ") as warned:
        table = rocketlens.arrow(writer.root, columns=["body"], mask=["/(a+)+b/"]).read_all()
    assert len(warned) == 1
    assert table["body"].to_pylist() == [b"***", b"x***"]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"columns": ["nothing"]}, rocketlens.ConfigError),
        ({"columns": ["topic", "topic"]}, rocketlens.ConfigError),
        ({"begin": 5, "end": 1}, rocketlens.ConfigError),
        ({"where": "a >"}, rocketlens.FilterSyntaxError),
        ({"topic": []}, rocketlens.ConfigError),
    ],
)
def test_arguments_that_cannot_be_are_errors_at_once(
    g1_store: Path, options: dict[str, object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        rocketlens.arrow(g1_store, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "package", "extra"), [("arrow('x')", "pyarrow", "parquet"), ("spark()", "pyspark", "spark")]
)
def test_what_is_not_installed_is_named(call: str, package: str, extra: str) -> None:
    code = f"import sys; sys.modules[{package!r}] = None; import rocketlens; rocketlens.{call}"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    said = ended.stderr.splitlines()[-1]
    assert said.endswith(f"needs {package}: {install_line(extra)}")


def test_spark_without_a_session_says_so() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", "import rocketlens; rocketlens.spark()"], capture_output=True, text=True, check=False
    )
    assert "no Spark session runs" in ended.stderr.splitlines()[-1]
