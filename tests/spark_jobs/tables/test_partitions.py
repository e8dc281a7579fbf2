"""Names of partitions as Hive and Spark have them, and days as a person writes them."""

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

import pytest

from protocol.errors import ConfigError
from spark_jobs.tables.days import parse_day, start_of
from spark_jobs.tables.partitions import Partition, directory_of

if TYPE_CHECKING:
    from pyspark import SparkContext

TOPICS = (
    "Orders",
    "%RETRY%group",
    "a=b",
    "a/b",
    "a:b",
    "a b",
    "Ärger",
    'q"x',
    "#1",
    "[x]",
    "{y}",
    "a\\b",
    "t\tt",
    "a^b",
)


@pytest.mark.parametrize("topic", TOPICS)
def test_a_directory_is_named_as_spark_names_it(spark: "SparkContext", topic: str) -> None:
    catalog = spark._jvm.org.apache.spark.sql.catalyst.catalog.ExternalCatalogUtils
    assert directory_of({"topic": topic}) == f"topic={catalog.escapePathName(topic)}"


def test_values_stand_in_the_order_of_the_columns() -> None:
    assert directory_of(Partition("Orders", 20000).values()) == "topic=Orders/date=2024-10-04"
    assert directory_of(Partition(None, -1).values()) == "date=1969-12-31"
    assert directory_of(Partition().values()) == ""
    assert directory_of({"topic": "a", "date": None}) == "topic=a/date=__HIVE_DEFAULT_PARTITION__"


def test_a_day_is_a_date_or_so_many_days_ago() -> None:
    now = datetime(2026, 11, 23, 0, 30, tzinfo=UTC)
    assert parse_day("2026-01-31", now) == date(2026, 1, 31)
    assert parse_day("7d", now) == date(2026, 11, 16)
    assert start_of(date(2026, 11, 16)) == int(datetime(2026, 11, 16, tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize("text", ["", "yesterday", "7", "-1d", "99999999999d", "2026-13-01"])
def test_other_texts_are_no_day(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_day(text)
