"""Look-ups of a snapshot: pulls, keys, records by offset."""

from typing import Final

DOOR: Final = ("decoded_query", "get_message", "lookup_call", "search_report", "sure_record")
