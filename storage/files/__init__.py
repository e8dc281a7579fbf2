"""Files as such: mapped, open, waited for, written; nothing of RocketMQ."""

from typing import Final

DOOR: Final = (
    "attempt_names",
    "direct_writer",
    "kept_files",
    "mapped_file",
    "mount_points",
    "open_files",
    "own_directories",
    "recently_used",
    "waiting",
    "write_guard",
)
