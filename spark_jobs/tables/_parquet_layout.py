"""The schema of Parquet files that a table asks for."""

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa

from spark_jobs.read.arrow_columns import MICROSECONDS, MILLISECONDS, arrow_schema
from spark_jobs.tables._table import FileLayout

FIELD_ID: Final = "PARQUET:field_id"


def parquet_schema(names: Sequence[str], layout: FileLayout) -> pa.Schema:
    """The schema of some columns; what comes again and again is a dictionary and numbers."""
    schema = arrow_schema(names, words=True, times=MICROSECONDS if layout.microseconds else MILLISECONDS)
    if not layout.field_ids:
        return schema
    return pa.schema([_numbered(field, field.name, layout.field_ids) for field in schema])


def _numbered(field: pa.Field, path: str, ids: Mapping[str, int]) -> pa.Field:
    type_ = field.type
    if pa.types.is_list(type_):
        type_ = pa.list_(_numbered(type_.value_field, f"{path}.element", ids))
    elif pa.types.is_map(type_):
        key, value = type_.key_field, type_.item_field
        type_ = pa.map_(_numbered(key, f"{path}.key", ids), _numbered(value, f"{path}.value", ids))
    return pa.field(field.name, type_, field.nullable, {FIELD_ID: str(ids[path])})
