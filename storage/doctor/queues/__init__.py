"""Checks of queues: their files and sampled units within seconds, and every unit beside the messages of the log."""
