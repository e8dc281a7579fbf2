"""The findings of an examination: how bad each is, where it is, what it means, and the command that fixes it."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

NOWHERE: Final = -1
"""The byte position or physical offset of a finding that has none."""

MOST_OF_ONE_KIND: Final = 20
"""Findings of one kind that are listed one by one; the rest is counted in one more."""

CLEARED_BY_A_START: Final = "nothing to do: the broker's start clears this"
"""The remedy where a broker that starts needs no help; the official broker shows it in tests/interop."""


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
    where no command helps. Findings of one `kind` (a sentence) are alike: what helps one helps all. `more` is 0, or
    how many others of its kind a finding stands for.
    """

    severity: Severity
    check: str
    path: str
    found: str
    meaning: str
    remedy: str
    position: int = NOWHERE
    physical_offset: int = NOWHERE
    kind: str = ""
    more: int = 0

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
    """Findings of one check as they come; beyond `MOST_OF_ONE_KIND` of a severity and kind they are counted."""

    check: str
    _listed: list[DoctorFinding]
    _counts: Counter[tuple[Severity, str]]

    @classmethod
    def of(cls, check: str) -> "CheckFindings":
        """Start an empty list for one check."""
        return cls(check, [], Counter())

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
        kind: str = "",
    ) -> None:
        """Add one finding; `kind` is needed where `meaning` says something of this one place only."""
        kind = kind or meaning
        self._counts[severity, kind] += 1
        if self._counts[severity, kind] <= MOST_OF_ONE_KIND:
            place = str(path), found, meaning, remedy, position, physical_offset
            self._listed.append(DoctorFinding(severity, self.check, *place, kind))

    def listed(self) -> list[DoctorFinding]:
        """All of them, and for each severity and kind one that says how many more there are."""
        more = [
            DoctorFinding(
                severity, self.check, "", f"{left} more like these", "they are not listed", "", kind=kind, more=left
            )
            for (severity, kind), count in self._counts.items()
            if (left := count - MOST_OF_ONE_KIND) > 0
        ]
        return self._listed + more


@dataclass(frozen=True, slots=True)
class Alike:
    """Findings of one severity, check and kind, those that are listed; `count` is how many there are in all."""

    findings: tuple[DoctorFinding, ...]
    count: int


def grouped(findings: Iterable[DoctorFinding]) -> list[Alike]:
    """Put findings that are alike together, each group where its first finding is."""
    groups: dict[tuple[Severity, str, str], list[DoctorFinding]] = {}
    for finding in findings:
        groups.setdefault((finding.severity, finding.check, finding.kind), []).append(finding)
    return [
        Alike(tuple(each for each in group if not each.more), sum(each.more or 1 for each in group))
        for group in groups.values()
    ]
