"""Requests that the fast lane knows, read where they lie: see requests.pyx."""

from typing import Final

from storage.kernels.region import Region

VIEW: Final = 33
QUERY: Final = 12
PULL: Final = 11
LITE_PULL: Final = 361

def plain_end(data: Region, position: int) -> int:
    """Where the first byte from a position on lies that is a quote, a backslash, a control or not ASCII."""

def code_of(header: Region) -> int | None:
    """The code of a request whose header is plain, and complete for its code; None for any other header."""
