"""The modules that answer requests: the dispatcher, the processors, consumers and their offsets, long polls."""
