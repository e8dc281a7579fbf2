"""A window on a segment, of this machine or behind a URL, as the tasks of the bulk jobs read it."""

from pathlib import Path
from typing import Final

from spark_jobs.places.remote_file import RemoteObject, open_source
from storage.log.log_window import LONGEST_RECORD, READ_BYTES, LogWindow

__all__ = ["LONGEST_RECORD", "READ_BYTES", "SegmentWindow"]

MAPPED_BYTES: Final = 8 * 1024 * 1024
"""Of a map, shown at once and populated ahead: so many that handing a piece over to another thread costs nothing."""


class SegmentWindow(LogWindow):
    """A segment's file, opened to be read; `remote` is how it was listed, if its path is a URL."""

    def __init__(
        self,
        path: str | Path,
        base_offset: int,
        remote: RemoteObject | None = None,
        read_bytes: int = MAPPED_BYTES,
    ) -> None:
        """Open the file; raises StoreError if that is impossible."""
        super().__init__(open_source(path, remote), base_offset, read_bytes)
