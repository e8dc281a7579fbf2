"""Put what was built in the place of the store's own files: lock, checks, journal, exchange, backups."""
