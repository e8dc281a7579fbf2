"""What a person or a program asks for, and sees: options, progress, report."""

from typing import Final

DOOR: Final = (
    "command_options",
    "command_run",
    "show_report",
)
