"""Index files anew from index files: taken apart, merged with the log's times, and put in order."""

from typing import Final

DOOR: Final = (
    "compact",
    "compact_request",
    "index_cost",
)
