"""Bytes to look for, and which two of them are worth looking at first."""

from dataclasses import dataclass
from typing import Final

_SELDOM: Final = b"zqjxkvZQJXKVYUWHGF~`^\\|#@$%&*?!<>;+=()/'ywbpgfmucdlhrsnioateEATOINSRLDCMPB9876543_-. 210[]{},:\""
"""ASCII by falling rarity in bodies that are JSON, text or ids; a rough order is enough."""
_RANK: Final = {byte: rank for rank, byte in enumerate(_SELDOM)}


@dataclass(frozen=True, slots=True)
class Needle:
    """Bytes, and the positions of two of them that are seldom, in ascending order (equal for a single byte)."""

    data: bytes
    first: int
    second: int

    @classmethod
    def of(cls, data: bytes) -> "Needle":
        """Choose the two rarest bytes, unlike ones if there are any; ``data`` must not be empty."""
        order = sorted(range(len(data)), key=lambda position: _RANK.get(data[position], -1))
        first = order[0]
        second = next((position for position in order if data[position] != data[first]), order[-1])
        return cls(data, min(first, second), max(first, second))
