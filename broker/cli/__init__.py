"""The `rocketlens` command, one module a subcommand; nothing else imports this package."""

from typing import Final

DOOR: Final = ("main",)
