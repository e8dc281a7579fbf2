"""What a broker that starts does to a store, foretold from the files as they lie; no file is written, no broker asked.

So far this is the log alone: where the recovery begins to read (`start_place`), what it takes for a record
(`broker_walk`), where it ends the log and which segments it deletes (`log_outcome`).
"""

from typing import Final

DOOR: Final = ("log_outcome", "queue_ends", "start_place")
