"""What lies behind URLs: file systems by scheme, and files of theirs that are read by ranges."""

from typing import Final

DOOR: Final = (
    "file_systems",
    "remote_file",
    "remote_tree",
)
