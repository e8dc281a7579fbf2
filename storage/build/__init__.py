"""What writes index files and queue files: from a scan of the log to bytes that a broker loads as its own."""

from typing import Final

DOOR: Final = (
    "batch_queue_builder",
    "dispatch_scan",
    "existing_queue",
    "index_builder",
    "queue_builder",
    "queue_carry",
    "queue_ext_builder",
    "queue_file_writer",
    "queue_plan",
    "queue_units",
    "spill",
)
