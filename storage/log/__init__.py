"""What is done with the log's segments: listed, scanned, and judged where they end or are damaged."""
