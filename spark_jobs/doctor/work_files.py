"""What driver and tasks of a deep check leave one another in the work directory: the scanned log, and findings."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Final

import msgspec

from spark_jobs.build.place_entries import EntryBlock, EntryTable
from spark_jobs.run.attempt import Attempt
from spark_jobs.run.work_directory import WorkDirectory, write_whole
from storage.doctor.finding import Finding
from storage.doctor.log.scanned_log import ScannedLog

LOG: Final = "log.msgpack"
FINDINGS: Final = "findings"
"""The kind of file in which a task leaves what it found."""


class LogTable(ScannedLog, frozen=True, dict=True, kw_only=True):
    """The scanned log with the tables of all blocks of index entries, in the order of the log."""

    tables: tuple[EntryTable, ...]

    def write(self, work: WorkDirectory) -> None:
        """Leave it in the work directory."""
        write_whole(work.root / LOG, msgspec.msgpack.encode(self))

    @classmethod
    def read(cls, work: WorkDirectory) -> "LogTable":
        """As the driver left it."""
        return msgspec.msgpack.decode((work.root / LOG).read_bytes(), type=cls)

    @property
    def entries(self) -> int:
        """The last of `ranks`; the table is read of the one segment in which the log ends."""
        return sum(
            block.entries
            for table in self.tables
            for block in (table.blocks() if table.end > self.end else (table,))
            if block.first < self.end
        )

    @cached_property
    def blocks(self) -> tuple[EntryBlock, ...]:
        """All blocks; tasks read all tables for them."""
        return tuple(block for table in self.tables for block in table.blocks() if block.first < self.end)


def save_findings(findings: Sequence[Finding], attempt: Attempt) -> int:
    """Write what a task found to a file of the attempt; how many there are."""
    _write(attempt.blocks(FINDINGS), msgspec.msgpack.encode(findings))
    return len(findings)


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def load_findings(path: Path) -> list[Finding]:
    """Load what :func:`save_findings` wrote."""
    return msgspec.msgpack.decode(path.read_bytes(), type=list[Finding])
