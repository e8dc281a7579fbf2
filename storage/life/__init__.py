"""One message's life: its copies, its delays, and who has consumed it."""

from typing import Final

DOOR: Final = ("delay_levels", "message_copies", "message_life")
