"""What tests of the data source share."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def session(spark: "SparkContext") -> "SparkSession":
    """A session on the one context, with the format `rocketlens`."""
    from pyspark.sql import SparkSession

    from spark_jobs.read.data_source import register

    session = SparkSession.builder.getOrCreate()
    assert session.sparkContext is spark
    session.conf.set("spark.sql.session.timeZone", "UTC")
    session.conf.set("spark.sql.shuffle.partitions", "2")
    register(session)
    return session
