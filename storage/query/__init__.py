"""Look-ups in a snapshot: pulls, key queries, records by offset."""
