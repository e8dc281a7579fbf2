"""What takes the disk: bytes and messages by topic, queue, tag, host and hour; how the log grows, and until when."""
