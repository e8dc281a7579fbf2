"""Checks of the log: its files, its records and where they end; the log as queues and index are compared with it."""
