"""A store's log as a plain one: records without the heads of DLedger's entries, at their new places."""

from typing import Final

DOOR: Final = ("convert", "convert_request")
