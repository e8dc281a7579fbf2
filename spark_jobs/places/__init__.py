"""What lies behind URLs: file systems by scheme, files that are read by ranges, output that is committed once."""

from typing import Final

DOOR: Final = (
    "clean",
    "file_systems",
    "hashed_file",
    "output_place",
    "place_names",
    "placed_run",
    "remote_file",
    "remote_tree",
)
