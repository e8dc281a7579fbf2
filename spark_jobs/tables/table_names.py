"""The names that the options of tables have; apart because commands need them before anything is loaded."""

from typing import Final

FILE_FORMATS: Final = ("parquet", "jsonl", "ndjson", "csv")
"""Tables whose files are listed by commits of our own."""

ICEBERG: Final = "iceberg"
DELTA: Final = "delta"
TABLE_FORMATS: Final = (*FILE_FORMATS, ICEBERG, DELTA)

TOPIC: Final = "topic"
DATE: Final = "date"
PARTITIONS: Final = (TOPIC, DATE)
"""What a table may be partitioned by: a message's topic, and the day in UTC on which it was stored."""

HIDDEN: Final = "_rocketlens"
"""The directory of a table that has what no reader needs."""
