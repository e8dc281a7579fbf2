"""Messages as files: what is written, in which formats, and the manifest that lists it."""

from typing import Final

DOOR: Final = (
    "export",
    "export_formats",
    "export_part",
    "export_place",
    "export_request",
)
