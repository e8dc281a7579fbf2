"""The first part of every job: list the files, and scan their records for index entries and queue units."""

from typing import Final

DOOR: Final = (
    "log_end",
    "probe_store",
    "scan_log",
    "scan_segment",
    "scanned_rows",
    "segment_walk",
    "segment_window",
    "source",
)
