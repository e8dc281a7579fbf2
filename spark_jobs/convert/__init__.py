"""A new store's log: a plain one of DLedger's, or one without holes of a damaged one."""

from typing import Final

DOOR: Final = ("convert", "convert_request", "foresee", "log_copies", "mend", "new_log", "rescue_request")
