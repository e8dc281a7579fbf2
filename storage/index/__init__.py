"""Index files: their bytes, what they are worth and cover, how they grow, and entries for what none of them covers."""

from typing import Final

DOOR: Final = (
    "index_copy",
    "index_examination",
    "index_file",
    "index_glance",
    "index_header",
    "index_mark",
    "index_set",
    "state_cache",
    "tail_index",
)
