"""Can all that is looked at be opened? What cannot is no damage, and as long as it cannot little else is known."""

from pathlib import Path

from storage.doctor._opened_store import command_line
from storage.doctor.finding import Finding, Findings, Kind, Severity
from storage.layout.closed_parts import RIGHTS, closed_parts, ways_in

NO_DAMAGE = "that is no damage: what is wrong, and what a start would do, is said once all of the store can be read"
NO_START = f"{NO_DAMAGE}; do not start a broker before"


def check_access(root: Path, directories: tuple[Path, ...]) -> list[Finding]:
    """Report unreadable parts of a store, with the command that grants access; then other checks are useless."""
    findings = Findings("access")
    closed = closed_parts(root, directories)
    for each, way in zip(closed, ways_in(closed, command_line("doctor", root, directories)), strict=True):
        severity, meaning = (Severity.WARNING, NO_DAMAGE) if each.code in RIGHTS else (Severity.ERROR, NO_START)
        findings.add(Kind.FILE, severity, each.path, each.found, meaning, way)
    return findings.listed()
