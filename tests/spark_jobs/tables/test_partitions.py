"""Names of partitions as Hive and Spark have them, and days as a person writes them."""

import pytest

from protocol.errors import ConfigError
from spark_jobs.tables._partitions import check_directory, directory_of
from spark_jobs.tables.days import parse_day


def test_directories_are_named_as_spark_names_them(spark) -> None:
    catalog = spark._jvm.org.apache.spark.sql.catalyst.catalog.ExternalCatalogUtils
    plain = ("Orders", "%RETRY%group", "Ärger", "t\tt")
    for topic in (*plain, "a=b", "a/b", "a:b", 'q"x', "#1", "[x]", "{y}", "a\\b", "a^b"):
        assert directory_of({"topic": topic}) == f"topic={catalog.escapePathName(topic)}"
    assert directory_of({"topic": "a\0b"}) == "topic=a%00b", "no file system takes this character"


def test_a_topic_that_is_too_long_for_a_directory_is_refused_by_its_name() -> None:
    check_directory(directory_of({"topic": "x" * 249, "date": "2026-11-23"}))
    for topic in ("x" * 250, "%" * 84, "\u65e5" * 84):
        with pytest.raises(ConfigError, match=r"topic=.*… would be a directory of 25\d bytes, and 255 are possible"):
            check_directory(directory_of({"topic": topic, "date": "2026-11-23"}))


@pytest.mark.parametrize("text", ["", "7", "-1d", "99999999999d", f"{'9' * 5000}d", "2026-13-01"])
def test_other_texts_are_no_day(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_day(text)
