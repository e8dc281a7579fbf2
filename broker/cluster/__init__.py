"""The server among other brokers: the broker names that it serves, its registration, and our client."""

from typing import Final

DOOR: Final = ("client", "registration", "several_stores")
