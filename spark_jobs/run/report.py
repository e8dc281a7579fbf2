"""What a bulk job answers: amounts, times, what it found damaged, and details of its own kind."""

from typing import Any

import msgspec


class Damage(msgspec.Struct, frozen=True, rename="camel"):
    """Bytes [physical_offset, physical_offset + length) that hold no record that counts; `path` holds the first."""

    path: str
    physical_offset: int
    length: int
    expected: str
    found: str

    def sentence(self) -> str:
        """For a person."""
        return (
            f"{self.path} at physical offset {self.physical_offset}: expected {self.expected}, found {self.found} "
            f"({self.length} bytes passed over)"
        )


class Report(msgspec.Struct, kw_only=True, rename="camel"):
    """What a job did. Bytes and messages are those of the log; `steady_seconds` from first read to last publishing."""

    command: str
    store: str
    out: str
    bytes: int = 0
    messages: int = 0
    entries: int = 0
    units: int = 0
    seconds: float = 0.0
    steady_seconds: float = 0.0
    resumed: bool = False
    details: dict[str, Any] = {}
    damages: list[Damage] = []
    more_damages: int = 0
    notes: list[str] = []

    @property
    def exit_code(self) -> int:
        """4 with damage, or where a verification found anything wrong; 1 where nothing was to be exported; else 0."""
        if self.damages or self.more_damages or not self.details.get("clean", True):
            return 4
        return 0 if self.details.get("found", True) else 1
