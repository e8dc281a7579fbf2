"""The class of the format `rocketlens` that a session keeps; it and what it calls first are pickled by value.

Spark's workers unpickle it before anything of ours is imported, so that it can say why that is not possible.
"""

import importlib
import sys
from typing import Any, Final

from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from spark_jobs.run import arrival
from spark_jobs.run.arrival import have_packages_found, installed_version

VERSION: Final = installed_version()

_pickling: Any = cloudpickle
_pickling.register_pickle_by_value(sys.modules[__name__])
_pickling.register_pickle_by_value(arrival)


class RocketLensDataSource(DataSource):
    """The format; Spark makes one for each `load`."""

    @classmethod
    def name(cls) -> str:
        """What `format` takes."""
        return "rocketlens"

    def schema(self) -> StructType:
        """The columns that the options name, else all."""
        columns: StructType = module("data_source").schema_of(self._read_options())
        return columns

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of columns that the schema names."""
        reader: DataSourceReader = module("data_source").reader_of(self._read_options(), schema)
        return reader

    def streamReader(self, schema: StructType) -> Any:  # noqa: N802 — pyspark's name
        """A reader that follows a store."""
        return module("stream_reader").stream_reader_of(self._read_options(), schema)

    def _read_options(self) -> Any:
        return module("source_options").read_options(self.options)


def module(name: str) -> Any:
    """A module beside this one, imported in the worker. Raises ImportError, with a sentence, where we cannot run."""
    have_packages_found(VERSION)
    return importlib.import_module(f"spark_jobs.read.{name}")
