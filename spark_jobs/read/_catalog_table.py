"""The options of a table that a catalog of Spark keeps: `CREATE TABLE … USING rocketlens OPTIONS (…) LOCATION …`.

Spark asks a data source in Python for the schema of such a table with all that the catalog knows of it, and then reads
it without any option. So the schema takes them along, as metadata of its first column, which Spark keeps with the table
and gives back.
"""

import json
from collections.abc import Mapping
from typing import Final, NoReturn

from pyspark.sql.types import StructField, StructType

from protocol.errors import ConfigError

METADATA: Final = "rocketlens"
"""The name of the metadata."""

_OPTION: Final = "option."


def given_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options that were given, by lower-case names.

    Among them, for a table, is what Spark keeps of it besides, such as `provider` and `owner`. Each of OPTIONS is there
    twice, once behind `option.`, but for the path, which LOCATION may have given.
    """
    given = {name.lower(): value for name, value in options.items()}
    if not _is_of_table(given):
        return given
    own = {name.removeprefix(_OPTION): value for name, value in given.items() if name.startswith(_OPTION)}
    paths = [given[name] for name in ("path", "location") if given.get(name)]
    return own | ({"path": paths[0]} if paths else {})


def keep_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """The schema, with the options in it where it is that of a table."""
    if not _is_of_table({name.lower(): value for name, value in options.items()}):
        return schema
    first, *others = schema.fields
    metadata = {METADATA: json.dumps(given_options(options))}
    return StructType([StructField(first.name, first.dataType, first.nullable, metadata), *others])


def kept_options(schema: StructType, options: Mapping[str, str]) -> dict[str, str]:
    """The options of a table as its schema has them, and those that a query adds; of a frame, its own.

    Raises ConfigError for a table whose columns were given, for which nobody asked us for a schema.
    """
    kept = (each.metadata[METADATA] for each in schema.fields if METADATA in (each.metadata or {}))
    every: dict[str, str] = json.loads(next(kept, "{}")) | given_options(options)
    if not every.get("path"):
        raise ConfigError(
            "name the store: .load('/path/to/store'), or a URL. To read a table Spark gives a source in Python none of "
            "its options: create it without a list of columns, of which OPTIONS (columns '…') chooses some"
        )
    return every


def refuse_writing() -> NoReturn:
    """Raise ConfigError: there is nothing of the format that Spark could write to."""
    raise ConfigError("the format rocketlens reads stores, and never writes to one: write with another format")


def _is_of_table(given: Mapping[str, str]) -> bool:
    return "provider" in given
