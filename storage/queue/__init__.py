"""Queues, plain and of batches: their files and units, where they begin and end, and how damage to them is repaired."""

from typing import Final

DOOR: Final = (
    "batch_consume_queue",
    "consume_queue",
    "consume_queue_ext",
    "derived_queues",
    "queue",
    "queue_files",
    "queue_hole",
    "queue_holes",
    "queue_place",
    "queue_record",
    "queue_store",
    "tier",
    "unit_reader",
    "unit_runs",
    "unit_struct",
)
