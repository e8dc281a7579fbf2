"""Where a store has its files, and the small ones: configuration and checkpoint."""

from typing import Final

DOOR: Final = (
    "backup_names",
    "checkpoint",
    "closed_parts",
    "delay_levels",
    "dledger",
    "epochs",
    "rocksdb_config",
    "store_config",
    "store_layout",
    "tier_layout",
    "timer_check",
    "timer_log",
    "unread_parts",
)
