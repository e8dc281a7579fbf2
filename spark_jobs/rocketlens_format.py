"""Importing this registers the format `rocketlens` with the Spark session that runs.

For a session that is started later, call :func:`spark_jobs.read.data_source.register`.
"""

from pyspark.sql import SparkSession

from protocol.errors import ConfigError
from spark_jobs.read.data_source import register

_session = SparkSession.getActiveSession()
if _session is None:
    raise ConfigError("start a Spark session before this import, or call spark_jobs.read.data_source.register(spark)")
register(_session)
