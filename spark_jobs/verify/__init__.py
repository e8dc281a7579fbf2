"""Every record, queue unit and index entry held against the others."""
