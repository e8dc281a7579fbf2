"""The class of the format `rocketlens` that a session keeps; it and what it calls first are sent by value.

Spark's workers unpickle it before anything of ours is imported, so that it can say why that is not possible.
"""

import importlib
from typing import Any, Final, NoReturn

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from spark_jobs.run.arrival import by_value, have_packages_found, installed_version

VERSION: Final = installed_version()


@by_value
class RocketLensDataSource(DataSource):
    """The format; Spark makes one for each `load`."""

    @classmethod
    def name(cls) -> str:
        """What `format` takes."""
        return "rocketlens"

    def schema(self) -> StructType:
        """The columns that the options name, else all."""
        table = module("_catalog_table")
        options = module("source_options").read_options(table.given_options(self.options))
        columns: StructType = table.keep_options(module("data_source").schema_of(options), self.options)
        return columns

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of columns that the schema names."""
        reader: DataSourceReader = module("data_source").reader_of(self._read_options(schema), schema)
        return reader

    def streamReader(self, schema: StructType) -> Any:  # noqa: N802 — pyspark's name
        """A reader that follows a store."""
        return module("_stream_reader").stream_reader_of(self._read_options(schema), schema)

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:
        """Refuse to write, with a sentence."""
        module("_catalog_table").refuse_writing()
        raise AssertionError

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:  # noqa: N802 — as above
        """Refuse to write, with a sentence."""
        module("_catalog_table").refuse_writing()
        raise AssertionError

    def _read_options(self, schema: StructType) -> Any:
        return module("source_options").read_options(module("_catalog_table").kept_options(schema, self.options))


@by_value
def module(name: str) -> Any:
    """A module beside this one, imported in the worker. Raises ImportError, with a sentence, where we cannot run."""
    have_packages_found(VERSION)
    return importlib.import_module(f"spark_jobs.read.{name}")
