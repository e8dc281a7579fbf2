"""What writes index files and queue files: from a scan of the log to bytes that a broker loads as its own."""
