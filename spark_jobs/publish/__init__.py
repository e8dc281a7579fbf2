"""Put what was built in the place of the store's own files: lock, checks, journal, exchange, backups."""

from typing import Final

DOOR: Final = (
    "deliver",
    "fewer_records",
    "publish",
    "publish_journal",
    "publish_names",
    "store_lock",
)
