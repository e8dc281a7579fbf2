"""Importing this registers the format `rocketlens` with the Spark session that runs; `rocketlens.spark` does too."""

from pyspark.sql import SparkSession

from protocol.errors import ConfigError
from spark_jobs.read.data_source import register

_session = SparkSession.getActiveSession()
if _session is None:
    raise ConfigError("start a Spark session before this import, or call rocketlens.spark(session)")
register(_session)
