"""What lies behind URLs: file systems by scheme, files that are read by ranges, output that is committed once."""
