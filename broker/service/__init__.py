"""What answers requests: the dispatcher, the processors, consumers and their offsets, long polls."""
