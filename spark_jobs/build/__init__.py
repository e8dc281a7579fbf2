"""Index files and queues from what a scan found: what stays, what goes where, and the tasks that build."""

from typing import Final

DOOR: Final = (
    "build_index_file",
    "build_queues",
    "build_request",
    "chosen_names",
    "exchange",
    "exchange_names",
    "index_profiles",
    "kept_index",
    "moved_log",
    "place_entries",
    "place_queues",
    "rebuild",
    "rebuild_request",
    "shuffle_exchange",
    "split_queues",
    "unit_blocks",
)
