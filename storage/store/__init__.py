"""A store as a whole: its files at one moment, the facade over them, and how both stay true while a broker writes."""

from typing import Final

DOOR: Final = (
    "extents",
    "file_sizes",
    "group_progress",
    "key_search",
    "light_topics",
    "message_store",
    "snapshot",
    "stale_tail",
    "state_place",
    "store_state",
    "topic_catalog",
)
