"""Every record, queue unit and index entry held against the others."""

from typing import Final

DOOR: Final = (
    "verify",
    "verify_request",
)
