"""The names of a message's columns, and of what of them can be masked: checked without loading a kernel."""

import re
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Final

from protocol.errors import ConfigError


class ColumnKind(Enum):
    """What a column holds."""

    INT = "i32"
    LONG = "i64"
    TIME = "ms"
    TEXT = "text"
    TEXTS = "texts"
    MAP = "map"
    BYTES = "bytes"


KINDS: Final[dict[str, ColumnKind]] = {
    "topic": ColumnKind.TEXT,
    "queue_id": ColumnKind.INT,
    "queue_offset": ColumnKind.LONG,
    "physical_offset": ColumnKind.LONG,
    "size": ColumnKind.INT,
    "store_timestamp": ColumnKind.TIME,
    "store_host": ColumnKind.TEXT,
    "born_timestamp": ColumnKind.TIME,
    "born_host": ColumnKind.TEXT,
    "unique_key": ColumnKind.TEXT,
    "keys": ColumnKind.TEXTS,
    "tags": ColumnKind.TEXT,
    "properties": ColumnKind.MAP,
    "flag": ColumnKind.INT,
    "sys_flag": ColumnKind.INT,
    "reconsume_times": ColumnKind.INT,
    "prepared_transaction_offset": ColumnKind.LONG,
    "body_crc": ColumnKind.INT,
    "body": ColumnKind.BYTES,
    "body_error": ColumnKind.TEXT,
}
"""All columns, in order."""

JSON_NAMES: Final = {
    name: "totalSize" if name == "size" else re.sub("_([a-z])", lambda found: found[1].upper(), name) for name in KINDS
}
"""What each column is called in JSON, as docs/message.schema.json describes it."""

OPTIONAL: Final = frozenset({"unique_key", "tags", "body", "body_error"})
"""Columns that may be empty."""

PROPERTY: Final = "properties."
PROPERTIES_OF: Final = {"keys": "KEYS", "tags": "TAGS", "unique_key": "UNIQ_KEY"}
MASKABLE: Final = ("body", "keys", "tags", "unique_key", "born_host", "store_host", "properties")


def check_names(names: Sequence[str]) -> tuple[str, ...]:
    """The names, each a column's and given once; raises ConfigError."""
    unknown = [name for name in names if name not in KINDS]
    if unknown:
        raise ConfigError(f"no column {unknown[0]!r}: expected some of {', '.join(KINDS)}")
    if len(set(names)) != len(names):
        raise ConfigError(f"a column is named twice in {', '.join(names)}")
    return tuple(names)


def masked_names(fields: Iterable[str]) -> tuple[frozenset[str], frozenset[str]]:
    """Columns and properties to mask, of fields as a person names them; raises ConfigError.

    A field is a column, `hosts` for both, or `properties.NAME`.
    """
    columns, properties = set[str](), set[str]()
    for field in fields:
        if field.startswith(PROPERTY) and len(field) > len(PROPERTY):
            properties.add(field.removeprefix(PROPERTY))
        elif field == "hosts":
            columns |= {"born_host", "store_host"}
        elif field in MASKABLE:
            columns.add(field)
        else:
            raise ConfigError(f"no field {field!r} to mask: expected {', '.join(MASKABLE)}, hosts or {PROPERTY}NAME")
    for column, name in PROPERTIES_OF.items():
        if column in columns or name in properties or "properties" in columns:
            columns.add(column)
            properties.add(name)
    if "body" in columns:
        columns.add("body_crc")
    assert columns <= KINDS.keys()
    return frozenset(columns), frozenset(properties)
