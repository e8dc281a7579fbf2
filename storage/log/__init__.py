"""The commit log: its segments, the stream of records that they are, and where it ends or is damaged."""
