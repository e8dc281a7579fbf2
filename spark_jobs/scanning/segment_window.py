"""A window on a segment of this machine, as the tasks of the bulk jobs read it.

The buffer is small enough to stay in the processor's cache.
"""

from pathlib import Path

from storage.segments.log_window import LONGEST_RECORD, READ_BYTES, LocalFile, LogWindow

__all__ = ["LONGEST_RECORD", "READ_BYTES", "SegmentWindow"]


class SegmentWindow(LogWindow):
    """A segment's file, opened to be read."""

    def __init__(self, path: Path, base_offset: int) -> None:
        """Open the file; raises StoreError where that cannot be done."""
        super().__init__(LocalFile(path), base_offset)
