"""A window on a segment of this machine, as the tasks of the bulk jobs read it."""

from pathlib import Path
from typing import Final

from storage.log.log_window import LONGEST_RECORD, READ_BYTES, LocalFile, LogWindow

__all__ = ["LONGEST_RECORD", "READ_BYTES", "SegmentWindow"]

MAPPED_BYTES: Final = 8 * 1024 * 1024
"""Of a map, shown at once and populated ahead: so many that handing a piece over to another thread costs nothing."""


class SegmentWindow(LogWindow):
    """A segment's file, opened to be read."""

    def __init__(self, path: Path, base_offset: int) -> None:
        """Open the file; raises StoreError where that cannot be done."""
        super().__init__(LocalFile(path), base_offset, MAPPED_BYTES)
