"""Connections: listening, TLS and PROXY headers, sessions, and what a connection may cost."""
