"""One message's life: its copies, its delays, who has consumed it; and all messages that wait."""

from typing import Final

DOOR: Final = (
    "message_copies",
    "message_life",
    "named_messages",
    "origins",
    "pending",
    "pop_log",
    "transactions",
    "verdicts",
)
