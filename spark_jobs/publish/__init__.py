"""Put what was built in the place of the store's own files: lock, checks, journal, exchange, backups."""

from typing import Final

DOOR: Final = (
    "deliver",
    "fetch",
    "fewer_records",
    "mended_config",
    "mended_timers",
    "new_config",
    "new_store",
    "publish",
    "publish_journal",
    "publish_names",
    "send",
    "sent_manifest",
    "store_lock",
)
