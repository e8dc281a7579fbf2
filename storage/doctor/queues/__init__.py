"""Checks of queues: their files and sampled units within seconds, and every unit beside the messages of the log."""

from typing import Final

DOOR: Final = ("clean_front", "diagnose_queue", "ext_units", "queue_files", "queue_reach", "unit_compare", "unit_files")
