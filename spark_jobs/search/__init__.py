"""Search and look-up for archives: the same questions as the commands', asked of many segments by Spark."""

from typing import Final

DOOR: Final = (
    "look_up",
    "lookup_parquet",
    "search",
    "searched_store",
    "space",
)
