"""The first half of a deep check: every record read, where the log ends, and what all else is compared with.

Beside a live broker the log grows while it is read: a record that was being written when it was looked at is no
damage. So places near the end where the log broke off are looked at once more; the log that counts ends at the first
one that has become whole.
"""

import os
from collections.abc import Sequence
from functools import cached_property
from typing import Final

import msgspec

from protocol.errors import StoreError
from spark_jobs.build.place_entries import EntryBlock, EntryTable, entry_tables
from spark_jobs.build.place_queues import log_extent
from spark_jobs.places.remote_file import RemoteReadError
from spark_jobs.run.attempt import RunTasks
from spark_jobs.run.work_directory import WorkDirectory, write_whole
from spark_jobs.scan.log_end import MISSING, find_log_end
from spark_jobs.scan.scan_segment import ScanSummary, ScanTask, scan_segment
from spark_jobs.scan.segment_window import SegmentWindow
from spark_jobs.scan.source import StoreSource
from storage.doctor.finding import Findings, FoundAt, Kind, Known
from storage.doctor.log.log_end import note_damage
from storage.doctor.log.scanned_log import ScannedLog
from storage.doctor.words import Words
from storage.kernels import records as codes

GROWING_SEGMENTS: Final = 2
"""Segments at the end of the log to which a broker may have written while they were read."""

MOST_LOOKED_AT_AGAIN: Final = 64

LOG: Final = "log.msgpack"


class LogTable(ScannedLog, frozen=True, dict=True, kw_only=True):
    """The scanned log with the tables of all blocks of index entries, in the order of the log.

    The driver leaves it to the tasks in the work directory.
    """

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


def scan_readable(task: ScanTask) -> ScanSummary:
    """Scan a segment; one that cannot be read, or is gone, has a summary, too: `problem` says what is wrong with it.

    Of one behind a URL that could not be read nothing is known; that ends the task.
    """
    try:
        return {**scan_segment(task), "problem": ""}
    except RemoteReadError:
        raise
    except StoreError as error:
        return {
            "path": task.path,
            "base": task.base_offset,
            "size": 0 if task.limit < 0 else task.limit - task.base_offset,
            "bytes_read": 0,
            "records": 0,
            "end": task.base_offset,
            "state": "unreadable",
            "last_timestamp": 0,
            "breaks": [[task.base_offset, -1, codes.BAD_SIZE, 0]],
            "more_breaks": 0,
            "entry_table": [],
            "unit_table": -1,
            "unit_bundles": b"",
            "units": 0,
            "hot_queues": [],
            "attempt": "",
            "problem": str(error),
        }


def look_again(task: tuple[str, int, int, int]) -> bool:
    """Whether there is an intact record now, or what closes the segment.

    The task is a place where the log broke off: path and base offset of the segment, physical offset, and where the
    next segment starts.
    """
    path, base, offset, boundary = task
    try:
        with SegmentWindow(path, base) as window:
            start = window.record_start(offset - base)
            return window.intact_size(start) > 0 or window.is_closed_at(offset - base, boundary)
    except StoreError:
        return False


class LogVerdict(msgspec.Struct, frozen=True):
    """The result of the scan of all segments: the log that all else is compared with, and what is wrong in it.

    `scans` are those of the segments that it is made of.
    """

    table: LogTable
    findings: Findings
    lag: int
    scans: Sequence[ScanSummary]


def check_log(
    run: RunTasks, work: WorkDirectory, source: StoreSource, scans: Sequence[ScanSummary], limit: int
) -> LogVerdict:
    """Check the summaries of all segments, in order."""
    findings = Findings("log-end", Known.READ, limit, source.named)
    if source.is_live:  # a broker may have deleted the first segments, read before or not; one at least remains
        scans = scans[next((n for n, scan in enumerate(scans) if os.path.exists(scan["path"])), len(scans) - 1) :]
    log_end = find_log_end(scans, None)
    end = min([log_end.end, *(_looked_again(run, scans) if source.is_live else ())])
    # Behind the end is what was being written, and where the log just goes on.
    damages = [damage for damage in log_end.damages if damage.physical_offset < end or not source.is_live]
    unreadable = {scan["path"]: scan["problem"] for scan in scans if scan["problem"]}
    for path, problem in unreadable.items():
        findings.note(Kind.FILE, FoundAt(path), MISSING, problem)
    bases = {scan["path"]: scan["base"] for scan in scans}
    for damage in damages:
        offset = damage.physical_offset
        if damage.path not in unreadable:
            at = FoundAt(damage.path, position=offset - bases.get(damage.path, offset + 1), physical_offset=offset)
            kind = Kind.HOLE if damage.expected == MISSING else Kind.RECORD
            note_damage(findings, kind, at, Words(damage.expected, damage.found), damage.length)
    findings.more(Kind.RECORD, log_end.more_damages)
    table = LogTable(
        minimum=scans[0]["base"],
        end=end,
        lost=tuple(log_extent(scans[0]["base"], end, damages).lost),
        segment_size=max(scan["size"] for scan in scans),
        is_live=source.is_live,
        may_lag=source.is_live or source.has_crashed,
        segments=tuple((scan["base"], scan["path"]) for scan in scans),
        tables=tuple(table for table in entry_tables(work, scans) if table.first < end),
    )
    return LogVerdict(table, findings, max(log_end.end - end, 0), scans)


def _looked_again(run: RunTasks, scans: Sequence[ScanSummary]) -> list[int]:
    """Places near the end where the log broke off, and goes on now."""
    boundaries = [*(scan["base"] for scan in scans[1:]), scans[-1]["base"] + scans[-1]["size"]]
    written = [place for place in zip(scans, boundaries, strict=True) if place[0]["records"]][-GROWING_SEGMENTS:]
    places = [
        (scan["path"], scan["base"], int(offset), boundary)
        for scan, boundary in written
        for offset, *_ in scan["breaks"][:MOST_LOOKED_AT_AGAIN]
    ]
    seen = run("look again", places, look_again)
    return [place[2] for place, answer in zip(places, seen, strict=True) if answer]
