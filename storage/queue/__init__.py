"""What is done with queues, plain and of batches: found, read, repaired, planned and built."""

from typing import Final

DOOR: Final = (
    "batch_consume_queue",
    "consume_queue",
    "consume_queue_ext",
    "found_entries",
    "queue",
    "queue_end",
    "queue_files",
    "queue_holes",
    "queue_place",
    "queue_record",
    "queue_store",
    "unit_struct",
)
