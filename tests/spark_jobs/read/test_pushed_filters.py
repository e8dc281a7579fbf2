"""Which of Spark's filters are taken over, and as what; that they mean the same is shown with the data source."""

from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import datasource as spark

from spark_jobs.read.arrow_columns import FIRST_TIME, LAST_TIME
from spark_jobs.read.pushed_filters import EPOCH, push
from storage.columns.wanted import HIGHEST, LOWEST, Wanted


def at(milliseconds: float) -> datetime:
    return EPOCH + timedelta(milliseconds=milliseconds)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (spark.EqualTo(("topic",), "T"), Wanted(topics=frozenset({b"T"}))),
        (spark.EqualTo(("topic",), None), Wanted(topics=frozenset())),
        (spark.In(("tags",), ("a", None, "ü")), Wanted(tags=frozenset({b"a", "ü".encode()}))),
        (spark.EqualNullSafe(("tags",), "a"), Wanted(tags=frozenset({b"a"}))),
        (spark.In(("queue_id",), (1, 2)), Wanted(queue_ids=frozenset({1, 2}))),
        (spark.GreaterThan(("queue_offset",), 5), Wanted(queue_offsets=(6, HIGHEST))),
        (spark.LessThanOrEqual(("physical_offset",), 5), Wanted(physical_offsets=(LOWEST, 5))),
        (spark.GreaterThan(("queue_offset",), HIGHEST), Wanted(queue_offsets=(1, 0))),
        (spark.IsNotNull(("topic",)), Wanted()),
        (spark.EqualTo(("store_timestamp",), at(7)), Wanted(times=(7, 7))),
        (spark.EqualTo(("store_timestamp",), at(7.5)), Wanted(times=(1, 0))),
        (spark.GreaterThan(("store_timestamp",), at(6.5)), Wanted(times=(7, LAST_TIME))),
        (spark.GreaterThanOrEqual(("store_timestamp",), at(7)), Wanted(times=(7, LAST_TIME))),
        (spark.LessThan(("store_timestamp",), at(7.5)), Wanted(times=(FIRST_TIME, 7))),
        (spark.LessThan(("store_timestamp",), at(7)), Wanted(times=(FIRST_TIME, 6))),
        (
            spark.LessThanOrEqual(("store_timestamp",), datetime(1970, 1, 1, 1, tzinfo=UTC)),
            Wanted(times=(FIRST_TIME, 3_600_000)),
        ),
    ],
)
def test_a_filter_is_taken_over(given: spark.Filter, wanted: Wanted) -> None:
    assert push([given]) == (wanted, [])


@pytest.mark.parametrize(
    "given",
    [
        spark.EqualTo(("topic", "inner"), "T"),
        spark.EqualTo(("topic",), "T\ufffd"),
        spark.EqualTo(("topic",), 5),
        spark.EqualNullSafe(("tags",), None),
        spark.Not(spark.EqualTo(("topic",), "T")),
        spark.GreaterThan(("topic",), "T"),
        spark.StringStartsWith(("topic",), "T"),
        spark.GreaterThan(("queue_id",), 3),
        spark.In(("queue_offset",), (1, 2)),
        spark.IsNotNull(("tags",)),
        spark.IsNull(("tags",)),
        spark.EqualTo(("body",), b"x"),
        spark.EqualTo(("store_timestamp",), None),
    ],
)
def test_what_spark_has_to_decide_is_left(given: spark.Filter) -> None:
    assert push([given]) == (Wanted(), [given])


def test_several_filters_hold_together() -> None:
    left = spark.IsNull(("tags",))
    filters = [spark.EqualTo(("topic",), "T"), left, spark.EqualTo(("topic",), "U")]
    wanted, remaining = push(filters)
    assert wanted.is_empty
    assert remaining == [left]
