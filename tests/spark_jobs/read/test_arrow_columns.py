"""Columns as Arrow batches: types, nulls, and times that a timestamp cannot tell."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa

from column_rows import expected_rows
from spark_jobs.read.arrow_columns import MICROSECONDS, arrow_schema, record_batch
from spark_jobs.read.log_ranges import find_ranges
from spark_jobs.read.read_range import RangeReader
from storage.columns.names import FIRST_TIME, KINDS, LAST_TIME
from storage.columns.texts import RepeatedTexts, Texts
from storage.columns.wanted import Wanted
from store_writer import START_TIMESTAMP, StoreWriter


def batches(root: Path, schema: pa.Schema) -> list[pa.RecordBatch]:
    (range_,) = find_ranges(str(root)).ranges
    return [record_batch(columns, schema) for columns in RangeReader(range_, Wanted(), schema.names).read()]


def test_what_comes_again_may_be_a_dictionary(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, segment_size=1 << 20)
    for number in range(600):
        tag = None if number == 3 else f"tag {number % 7}"
        writer.append("T" if number % 2 else "U", b"x", tags=tag, properties={"n": str(number)})
    for number in range(600):
        writer.append("T", b"x", tags=f"tag {number}", properties={f"n{number}": "y"})
    writer.close()
    names, expected = tuple(KINDS), expected_rows(writer.records)
    schema = arrow_schema(names, words=True)
    (range_,) = find_ranges(str(tmp_path)).ranges
    (columns,) = RangeReader(range_, Wanted(), names).read()
    assert (type(columns["topic"]), type(columns["tags"])) == (RepeatedTexts, Texts)
    batch = record_batch(columns, schema)
    batch.validate(full=True)
    assert pa.types.is_dictionary(batch.schema.field("tags").type)
    assert pa.types.is_dictionary(batch.schema.field("properties").type.key_type)
    rows = batch.to_pylist(maps_as_pydicts="strict")
    for name in ("topic", "tags", "born_host", "store_host", "properties"):
        assert [row[name] for row in rows] == [row[name] for row in expected]


def test_a_time_that_not_every_time_zone_has_a_date_for_is_null(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path)
    told = (START_TIMESTAMP, FIRST_TIME, LAST_TIME, -1)
    for timestamp in (*told, FIRST_TIME - 1, LAST_TIME + 1, 2**63 - 1, -(2**63)):
        writer.append("T", b"x", born_timestamp=timestamp)
    writer.close()
    millisecond = timedelta(milliseconds=1)
    expected = [datetime(1970, 1, 1, tzinfo=UTC) + time * millisecond for time in told] + [None] * 4
    for schema in (pa.schema([("born_timestamp", MICROSECONDS)]), arrow_schema(("born_timestamp",))):
        (batch,) = batches(tmp_path, schema)
        batch.validate(full=True)
        assert batch.column(0).to_pylist() == expected
    assert (expected[1], expected[2]) == (
        datetime(1, 1, 3, tzinfo=UTC),
        datetime(9999, 12, 31, tzinfo=UTC) - millisecond,
    )
