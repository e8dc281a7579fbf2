"""Queues, plain and of batches: their files and units, where they begin and end, and how damage to them is repaired."""
