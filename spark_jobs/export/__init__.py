"""Messages as files: what is written, how, and the manifest that tells what was."""

from typing import Final

DOOR: Final = (
    "export",
    "export_place",
    "export_request",
)
