"""A server as several processes: one that watches and one or more that serve."""

from typing import Final

DOOR: Final = ("core_sharing", "link", "loop_watch", "member", "owner", "supervisor")
