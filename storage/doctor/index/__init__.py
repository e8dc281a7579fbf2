"""Checks of the index: each file by itself and what of the log it holds, and every entry beside the keys of the log."""

from typing import Final

DOOR: Final = ("index_health", "index_image", "index_reach", "index_shape", "left_over_entries", "match_entries")
