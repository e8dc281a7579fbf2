"""The columns and the partitions of an Iceberg table."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from itertools import count
from typing import Any, Final

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, IdentityTransform, Transform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    TimestamptzType,
)

from protocol.errors import ConfigError
from spark_jobs.read.arrow_columns import NULLABLE
from spark_jobs.tables.table_names import DATE, TOPIC
from storage.columns.names import KINDS, ColumnKind

STORED: Final = "store_timestamp"
_SOURCES: Final = {TOPIC: TOPIC, DATE: STORED}
_FIRST_PARTITION: Final = 1000
_EPOCH: Final = date(1970, 1, 1)


def iceberg_schema(columns: Sequence[str]) -> Schema:
    """The schema of a new table; a catalog may number its fields anew."""
    ids = count(1)
    tops = {name: next(ids) for name in columns}
    return Schema(*(NestedField(tops[name], name, type_of(name, ids), name not in NULLABLE) for name in columns))


def type_of(name: str, ids: Iterator[int]) -> IcebergType:
    """The type of a column, the numbers of what it holds taken from `ids`."""
    kind = KINDS[name]
    if kind is ColumnKind.TEXTS:
        return ListType(element_id=next(ids), element_type=StringType(), element_required=True)
    if kind is ColumnKind.MAP:
        return MapType(
            key_id=next(ids),
            key_type=StringType(),
            value_id=next(ids),
            value_type=StringType(),
            value_required=True,
        )
    return _PLAIN[kind]()


_PLAIN: Final[dict[ColumnKind, type[IcebergType]]] = {
    ColumnKind.INT: IntegerType,
    ColumnKind.LONG: LongType,
    ColumnKind.TIME: TimestamptzType,
    ColumnKind.TEXT: StringType,
    ColumnKind.BYTES: BinaryType,
}


def without_bounds(columns: Sequence[str]) -> dict[str, str]:
    """Properties by which files have no bounds of long texts and bytes; catalogs refuse those of a column not there."""
    paths = [f"{name}{inner}" for name in columns for inner in _LONG.get(KINDS[name], ())]
    return {f"write.metadata.metrics.column.{path}": "none" for path in paths}


_LONG: Final[dict[ColumnKind, tuple[str, ...]]] = {
    ColumnKind.TEXTS: (".element",),
    ColumnKind.MAP: (".key", ".value"),
    ColumnKind.BYTES: ("",),
}


def field_ids(schema: Schema) -> dict[str, int]:
    """The number of each field, by path."""
    return {path: schema.find_field(path).field_id for path in schema.column_names}


def partition_spec(schema: Schema, partition_by: Sequence[str]) -> PartitionSpec:
    """The partitions of a table, by topic and by day of the store time; raises ConfigError without their columns."""
    fields = []
    for number, name in enumerate(partition_by, _FIRST_PARTITION):
        source = _SOURCES[name]
        if source not in schema.column_names:
            raise ConfigError(f"--partition-by {name} needs the column {source} in --columns")
        transform: Transform[Any, Any] = DayTransform() if name == DATE else IdentityTransform()
        fields.append(PartitionField(schema.find_field(source).field_id, number, transform, name))
    return PartitionSpec(*fields)


def partition_names(spec: PartitionSpec) -> tuple[str, ...]:
    """What a table is partitioned by, as its fields are called."""
    return tuple(field.name for field in spec.fields)


def partition_record(spec: PartitionSpec, values: Mapping[str, str | None]) -> Record:
    """The partition of a data file as a manifest has it: texts, and days since 1970."""
    return Record(*(_value(name, values[name]) for name in partition_names(spec)))


def partition_values(spec: PartitionSpec, record: Record) -> dict[str, str | None]:
    """The reverse of :func:`partition_record`."""
    found: dict[str, str | None] = {}
    for number, name in enumerate(partition_names(spec)):
        value = record[number]
        if value is None or name != DATE:
            found[name] = None if value is None else str(value)
        else:
            found[name] = date.fromordinal(_EPOCH.toordinal() + int(value)).isoformat()
    return found


def _value(name: str, value: str | None) -> str | int | None:
    if value is None or name != DATE:
        return value
    return (date.fromisoformat(value) - _EPOCH).days
