"""Messages as rows of a DataFrame: the data source, its options, filters, partitions and streams."""

from typing import Final

DOOR: Final = (
    "absent_topics",
    "arrow_columns",
    "data_source",
    "log_ranges",
    "read_range",
    "source_options",
)
