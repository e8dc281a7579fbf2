"""What tests of jobs share: a session with the data source, and servers that are started once."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from object_store import ObjectStore, google_store, hadoop_store

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


@pytest.fixture(scope="session")
def google(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """An object store that speaks Google's protocol."""
    with google_store(tmp_path_factory.mktemp("google")) as objects:
        yield objects


@pytest.fixture(scope="session")
def hadoop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """Hadoop's file system."""
    with hadoop_store(tmp_path_factory.mktemp("hadoop")) as objects:
        yield objects
