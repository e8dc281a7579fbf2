"""What every job begins with: which files there are, and what their records lead to."""

from typing import Final

DOOR: Final = (
    "log_end",
    "probe_store",
    "scan_log",
    "scan_segment",
    "segment_window",
    "source",
)
