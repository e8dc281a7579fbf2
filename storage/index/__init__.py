"""Index files: their bytes, whether they are sound, what they cover, how they grow, and entries for the rest."""

from typing import Final

DOOR: Final = (
    "index_copy",
    "index_examination",
    "index_file",
    "index_glance",
    "index_header",
    "index_mark",
    "index_probe",
    "index_set",
    "state_cache",
    "tail_index",
)
