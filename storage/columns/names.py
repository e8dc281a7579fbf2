"""The names of a message's columns: checked without loading a kernel."""

import re
from collections.abc import Sequence
from enum import Enum
from typing import Final

from protocol.errors import ConfigError


class ColumnKind(Enum):
    """The type of a column."""

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

FIRST_TIME: Final = -62_135_424_000_000
LAST_TIME: Final = 253_402_214_399_999
"""From 0001-01-03 to 9999-12-30, in ms: what Python has a date for in every time zone. Beyond, a time is null: for one
message's, which its client chose, Spark, pandas, DuckDB and Polars would fail at all that stands beside it."""

PROPERTIES_OF: Final = {"keys": "KEYS", "tags": "TAGS", "unique_key": "UNIQ_KEY"}


def check_names(names: Sequence[str]) -> tuple[str, ...]:
    """The names, each a column's and given once; raises ConfigError."""
    unknown = [name for name in names if name not in KINDS]
    if unknown:
        raise ConfigError(f"no column {unknown[0]!r}: expected some of {', '.join(KINDS)}")
    if len(set(names)) != len(names):
        raise ConfigError(f"a column is named twice in {', '.join(names)}")
    return tuple(names)
