"""The Spark data source `rocketlens`: the messages of a store as a DataFrame.

    rocketlens.spark(spark)            # registers the format with a session

    spark.read.format("rocketlens").option("topic", "TopicTest").load("/path/to/store")

Columns are those of :mod:`storage.columns.message_columns`; times are timestamps. A Python data source does not learn
from Spark which columns a query needs, so name them by the option `columns` or by a schema to read fewer. Spark's own
filters are not taken over, since Spark would apply those of one query to later queries of the same frame, too: options
say what is read.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from protocol.errors import ConfigError
from spark_jobs.read._registered_source import RocketLensDataSource
from spark_jobs.read.arrow_columns import MICROSECONDS, NULLABLE, arrow_schema
from spark_jobs.read.log_ranges import LogRange, Problem, find_ranges
from spark_jobs.read.read_range import check_problems, read_damage, read_messages
from spark_jobs.read.source_options import DAMAGE, DataSourceOptions
from spark_jobs.run.arrival import Sendable
from spark_jobs.run.session import send_packages, send_packages_by_connect
from storage.columns.names import KINDS, ColumnKind

_TYPES: dict[ColumnKind, DataType] = {
    ColumnKind.INT: IntegerType(),
    ColumnKind.LONG: LongType(),
    ColumnKind.TIME: TimestampType(),
    ColumnKind.TEXT: StringType(),
    ColumnKind.TEXTS: ArrayType(StringType(), containsNull=False),
    ColumnKind.MAP: MapType(StringType(), StringType(), valueContainsNull=False),
    ColumnKind.BYTES: BinaryType(),
}

DAMAGE_TYPE = StructType(
    [
        StructField("path", StringType(), False),
        StructField("physical_offset", LongType(), False),
        StructField("length", LongType(), False),
        StructField("reason", StringType(), False),
    ]
)

_DAMAGE_SCHEMA = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("physical_offset", pa.int64(), nullable=False),
        pa.field("length", pa.int64(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
    ]
)
"""The same for Arrow. Spark's own way from one to the other has other arguments in each version of pyspark."""


def register(spark: SparkSession) -> None:
    """Make the format `rocketlens` known to a session and to its executors."""
    if type(spark).__module__.startswith("pyspark.sql.connect."):
        send_packages_by_connect(spark)
    else:
        send_packages(spark.sparkContext)
    spark.dataSource.register(RocketLensDataSource)


@dataclass(frozen=True)
class LogPartition(InputPartition):
    """A stretch of the log that one task reads, or problems that are known already."""

    range: LogRange | None
    problems: tuple[Problem, ...] = ()

    def __init__(self, range_: LogRange | None, problems: tuple[Problem, ...] = ()) -> None:
        object.__setattr__(self, "range", range_)
        object.__setattr__(self, "problems", problems)


def read_partition(
    partition: InputPartition, options: DataSourceOptions, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The messages of a stretch of the log."""
    if isinstance(partition, LogPartition) and partition.range is not None:
        fails_fast, masked = options.fails_fast, options.masked
        yield from read_messages(partition.range, options.wanted, schema, fails_fast=fails_fast, masked=masked)


def schema_of(options: DataSourceOptions) -> StructType:
    """The columns that the options name, else all."""
    return DAMAGE_TYPE if options.table == DAMAGE else struct_type(options.columns)


def reader_of(options: DataSourceOptions, schema: StructType) -> DataSourceReader:
    """A reader of columns that the schema names."""
    if options.table == DAMAGE:
        return DamageReader(options)
    return MessageReader(options, check_schema(schema))


class MessageReader(Sendable, DataSourceReader):
    """Reads messages, a task a segment."""

    def __init__(self, options: DataSourceOptions, schema: pa.Schema) -> None:
        self._options, self._schema = options, schema

    def partitions(self) -> Sequence[InputPartition]:
        """The segments that may hold a message wanted."""
        found = find_ranges(self._options.path, self._options.commit_log, self._options.storage)
        check_problems(found, fails_fast=self._options.fails_fast)
        return [LogPartition(each) for each in found.holding(self._options.wanted)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one segment."""
        return read_partition(partition, self._options, self._schema)


class DamageReader(Sendable, DataSourceReader):
    """Reads the damaged and missing parts of a store: those that are known beforehand, then segment by segment."""

    def __init__(self, options: DataSourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """One for what is known, one for each segment."""
        found = find_ranges(self._options.path, self._options.commit_log, self._options.storage)
        return [LogPartition(None, found.problems), *map(LogPartition, found.ranges)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """A row a place."""
        assert isinstance(partition, LogPartition)
        problems = partition.problems if partition.range is None else read_damage(partition.range)
        rows = [(each.path, each.physical_offset, each.length, each.reason) for each in problems]
        if rows:
            columns = zip(zip(*rows, strict=True), _DAMAGE_SCHEMA.types, strict=True)
            arrays = [pa.array(column, type_) for column, type_ in columns]
            yield pa.RecordBatch.from_arrays(arrays, schema=_DAMAGE_SCHEMA)


def struct_type(names: Sequence[str]) -> StructType:
    """The columns' types for Spark."""
    return StructType([StructField(name, _TYPES[KINDS[name]], name in NULLABLE) for name in names])


def check_schema(schema: StructType) -> pa.Schema:
    """The schema for Arrow, whose fields must be columns of ours with their types; raises ConfigError."""
    for each in schema.fields:
        if each.name not in KINDS:
            raise ConfigError(f"no column {each.name!r}: expected some of {', '.join(KINDS)}")
        expected = _TYPES[KINDS[each.name]]
        if each.dataType.simpleString() != expected.simpleString():
            raise ConfigError(
                f"column {each.name}: type {each.dataType.simpleString()}, expected {expected.simpleString()}"
            )
    known = arrow_schema(schema.names, times=MICROSECONDS)
    return pa.schema([_field(known.field(each.name), each) for each in schema.fields])


def _field(known: pa.Field, asked: StructField) -> pa.Field:
    """A column that may be null, and whose elements may be, where Spark was given it so."""
    type_ = known.type
    if isinstance(asked.dataType, ArrayType):
        type_ = pa.list_(type_.value_field.with_nullable(asked.dataType.containsNull))
    elif isinstance(asked.dataType, MapType):
        type_ = pa.map_(type_.key_type, type_.item_field.with_nullable(asked.dataType.valueContainsNull))
    return pa.field(known.name, type_, nullable=asked.nullable)
