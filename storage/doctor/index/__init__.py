"""Checks of the index: each file by itself and what of the log it holds, and every entry beside the keys of the log."""

from typing import Final

DOOR: Final = ("index_files", "index_health", "index_reach")
