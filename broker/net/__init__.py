"""Connections: listening, TLS, reading and writing frames, and what a connection may cost."""
