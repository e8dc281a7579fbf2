"""What was built takes the place of a store's own: lock, checks, journal, exchange, backups."""

from typing import Final

DOOR: Final = (
    "deliver",
    "fewer_records",
    "publish",
    "publish_journal",
    "publish_names",
    "store_lock",
)
