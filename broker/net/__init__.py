"""Connections: listening, TLS and PROXY headers, sessions, and what a connection may cost."""

from typing import Final

DOOR: Final = ("budget", "listeners", "reception", "scheduler", "session_settings", "tls", "transport", "writing")
