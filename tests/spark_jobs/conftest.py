"""One Spark session for all tests of the bulk jobs, and a quiet way to run a job in it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark import SparkContext


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkContext]":
    """An embedded session of two cores on the loopback address; jobs that are run meanwhile use it."""
    from spark_jobs.session import spark_context

    events = tmp_path_factory.mktemp("spark-events")
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{events}",
        "spark.eventLog.compress": "false",
    }
    with spark_context("tests", "local[2]", events, settings) as context:
        yield context
