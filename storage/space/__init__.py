"""What takes the disk: bytes and messages by topic, queue, tag, host and hour; how the log grows, and until when."""

from typing import Final

DOOR: Final = ("breakdown", "broker_settings", "forecast", "measure", "scan_space", "tally", "whole")
