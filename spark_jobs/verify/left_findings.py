"""What tasks find, left by an attempt in the work directory for the driver."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from spark_jobs.run.attempt import Attempt
from storage.doctor.finding import Finding

FINDINGS: Final = "findings"
"""The kind of file in which a task leaves what it found."""

TOTAL_LIMIT: Final = 100_000
"""Findings that are listed in all."""


def save_findings(findings: Sequence[Finding], attempt: Attempt) -> int:
    """Write them to a file of the attempt; how many there are."""
    _write(attempt.blocks(FINDINGS), msgspec.msgpack.encode(findings))
    return len(findings)


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def load_findings(path: Path) -> list[Finding]:
    """Load what :func:`save_findings` wrote."""
    return msgspec.msgpack.decode(path.read_bytes(), type=list[Finding])
