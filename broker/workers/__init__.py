"""A server as several processes: one that watches and one or more that serve."""
