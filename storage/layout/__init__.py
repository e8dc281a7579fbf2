"""Where a store has its files, and the small ones: configuration and checkpoint."""
