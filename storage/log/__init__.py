"""What is done with the log's segments: listed, scanned, and judged where they end or are damaged."""

from typing import Final

DOOR: Final = ("absence", "commit_log", "damaged_ranges", "log_place", "log_window", "segment_end", "segment_list")
