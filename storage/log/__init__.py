"""The commit log: its segments, the stream of records that they are, and where it ends or is damaged."""

from typing import Final

DOOR: Final = (
    "absence",
    "commit_log",
    "damaged_ranges",
    "fillers",
    "log_place",
    "log_window",
    "record_scan",
    "segment_end",
    "segment_list",
)
