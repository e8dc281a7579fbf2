"""Names of partitions as Hive and Spark have them, and days as a person writes them."""

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

import pytest

from protocol.errors import ConfigError
from spark_jobs.tables._partitions import Partition, check_directory, directory_of
from spark_jobs.tables.days import parse_day, start_of

if TYPE_CHECKING:
    from pyspark import SparkContext


def test_values_stand_in_the_order_of_the_columns() -> None:
    assert directory_of(Partition("Orders", 20000).values()) == "topic=Orders/date=2024-10-04"
    assert directory_of(Partition(None, -1).values()) == "date=1969-12-31"
    assert directory_of(Partition().values()) == ""
    assert directory_of({"topic": "a", "date": None}) == "topic=a/date=__HIVE_DEFAULT_PARTITION__"


def test_directories_are_named_as_spark_names_them(spark: "SparkContext") -> None:
    catalog = spark._jvm.org.apache.spark.sql.catalyst.catalog.ExternalCatalogUtils
    for topic in (
        "Orders",
        "%RETRY%group",
        "a=b",
        "a/b",
        "a:b",
        "Ärger",
        'q"x',
        "#1",
        "[x]",
        "{y}",
        "a\\b",
        "t\tt",
        "a^b",
    ):
        assert directory_of({"topic": topic}) == f"topic={catalog.escapePathName(topic)}"
    assert directory_of({"topic": "a\0b"}) == "topic=a%00b", "no file system takes this character"


def test_a_topic_that_is_called_like_no_value_is_a_value(spark: "SparkContext") -> None:
    topic = "__HIVE_DEFAULT_PARTITION__"
    directory = directory_of({"topic": topic})
    assert directory != directory_of({"topic": ""}) == f"topic={topic}"
    catalog = spark._jvm.org.apache.spark.sql.catalyst.catalog.ExternalCatalogUtils
    assert catalog.unescapePathName(directory.removeprefix("topic=")) == topic


def test_a_topic_that_is_too_long_for_a_directory_is_refused_by_its_name() -> None:
    check_directory(directory_of({"topic": "x" * 249, "date": "2026-11-23"}))
    for topic in ("x" * 250, "%" * 84, "\u65e5" * 84):
        with pytest.raises(ConfigError, match=r"topic=.*… would be a directory of 25\d bytes, and 255 are possible"):
            check_directory(directory_of({"topic": topic, "date": "2026-11-23"}))


def test_a_day_is_a_date_or_so_many_days_ago() -> None:
    now = datetime(2026, 11, 23, 0, 30, tzinfo=UTC)
    assert parse_day("2026-01-31", now) == date(2026, 1, 31)
    assert parse_day("7d", now) == date(2026, 11, 16)
    assert start_of(date(2026, 11, 16)) == int(datetime(2026, 11, 16, tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize("text", ["", "7", "-1d", "99999999999d", f"{'9' * 5000}d", "2026-13-01"])
def test_other_texts_are_no_day(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_day(text)
