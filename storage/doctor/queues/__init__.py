"""Checks of queues: their files and sampled units within seconds, and every unit beside the messages of the log."""

from typing import Final

DOOR: Final = ("clean_front", "queue_files", "queue_reach", "unit_files")
