"""Look-ups of a snapshot: pulls, keys, records by offset."""
