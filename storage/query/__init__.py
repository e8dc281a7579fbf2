"""Look-ups in a snapshot: pulls, key queries, records by offset."""

from typing import Final

DOOR: Final = ("decoded_query", "get_message", "lookup_call", "search_report", "sure_record", "tier_query")
