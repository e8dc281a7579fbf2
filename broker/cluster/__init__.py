"""The server among other brokers: the broker names that it serves, its registration, and our client."""
