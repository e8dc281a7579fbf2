"""The data source for Spark: what `rocketlens.spark` registers."""

from typing import TYPE_CHECKING

from protocol.errors import ConfigError
from storage.extras import install_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def spark(session: "SparkSession | None" = None) -> "SparkSession":
    """Register the format ``rocketlens`` with a Spark session, by default the one that runs; returns the session.

    ``rocketlens.spark(session).read.format("rocketlens").load("/path/to/store")`` is the messages of a store as a
    DataFrame; options and columns are in docs/spark.md. Executors of a cluster are sent RocketLens. Needs
    pyspark; raises :class:`ConfigError` without it, and where no session runs.
    """
    try:
        from pyspark.sql import SparkSession

        from spark_jobs.read.data_source import register
    except ImportError as error:
        raise ConfigError(f"rocketlens.spark needs pyspark: {install_line('spark')}") from error
    session = session or SparkSession.getActiveSession()
    if session is None:
        raise ConfigError("no Spark session runs: start one and pass it to rocketlens.spark")
    register(session)
    return session
