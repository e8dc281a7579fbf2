"""The findings of an examination: how bad each is, where it is, what it means, and the command that fixes it."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

NOWHERE: Final = -1
"""The byte position or physical offset of a finding that has none."""

MOST_OF_ONE_KIND: Final = 20
"""Findings of one check that are listed one by one; the rest is counted in one more."""


class Severity(StrEnum):
    """How bad a finding is; only stores without findings above `INFO` are clean."""

    INFO = "info"
    """Good to know; nothing is wrong."""
    WARNING = "warning"
    """Nothing is lost, but something is slower, unsafe at a broker's next start, or not what it should be."""
    ERROR = "error"
    """Messages are lost or damaged, or cannot be found as they should."""


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """One thing found by `check`, the name of the module that looked.

    `path` and `position` (a byte in that file) and `physical_offset` say where, `NOWHERE` or an empty path where that
    makes no sense. `found` is what is there, `meaning` what follows from it, `remedy` a command, or in words what to do
    where no command helps.
    """

    severity: Severity
    check: str
    path: str
    found: str
    meaning: str
    remedy: str
    position: int = NOWHERE
    physical_offset: int = NOWHERE

    @property
    def place(self) -> str:
        """Where it is, for a person."""
        parts = [self.path] if self.path else []
        if self.position >= 0:
            parts.append(f"byte {self.position}")
        if self.physical_offset >= 0:
            parts.append(f"physical offset {self.physical_offset}")
        return ", ".join(parts)


@dataclass(slots=True)
class CheckFindings:
    """Findings of one check as they come; beyond `MOST_OF_ONE_KIND` of a severity they are counted."""

    check: str
    _listed: list[DoctorFinding]
    _more: dict[Severity, int]

    @classmethod
    def of(cls, check: str) -> "CheckFindings":
        """Start an empty list for one check."""
        return cls(check, [], {})

    def add(
        self,
        severity: Severity,
        path: Path | str,
        found: str,
        meaning: str,
        remedy: str,
        *,
        position: int = NOWHERE,
        physical_offset: int = NOWHERE,
    ) -> None:
        """Add one finding."""
        if sum(finding.severity is severity for finding in self._listed) >= MOST_OF_ONE_KIND:
            self._more[severity] = self._more.get(severity, 0) + 1
            return
        found_there = DoctorFinding(severity, self.check, str(path), found, meaning, remedy, position, physical_offset)
        self._listed.append(found_there)

    def listed(self) -> list[DoctorFinding]:
        """All of them, and for each severity one that says how many more there are."""
        more = [
            DoctorFinding(severity, self.check, "", f"{count} more like these", "they are not listed", "")
            for severity, count in self._more.items()
        ]
        return self._listed + more
