"""A new store's log: a plain one of DLedger's, or one without holes of a damaged one."""
