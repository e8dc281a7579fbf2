"""What was built takes the place of a store's own: lock, checks, journal, exchange, backups."""
