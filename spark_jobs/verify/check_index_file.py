"""The tasks that hold index files against the log: check a file, count the keys that no file has.

A file is read into memory whole, beside it one block of the log's keys at a time and 8 bytes an entry, 28 if it is
compacted: 570 MB for a full file of a broker's default size, 950 MB for a compacted one.
"""

from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from protocol.errors import StoreError
from spark_jobs.run.attempt import Attempt, AttemptRecord, Notify, run_attempt
from spark_jobs.run.work_directory import WorkDirectory
from spark_jobs.verify.check_index_shape import CheckedFile, FileContext
from spark_jobs.verify.findings import FILE, FINDINGS, MISSING_ENTRY, Discrepancies, FoundAt
from spark_jobs.verify.log_table import LogTable
from spark_jobs.verify.match_entries import Alignment, MatchedFile
from storage.index.index_copy import IndexCopy, IndexCounts, count_entries, count_slots
from storage.kernels.matching import NO_TIME

PHASE: Final = "check"


class CheckIndexTask(msgspec.Struct, frozen=True):
    """A file to be checked. `slots`: what most files have; `grows`: a broker puts entries into it.

    `previous`: end timestamp and end physical offset in the header of the file before, None for the first.
    """

    work: str
    path: str
    slots: int
    previous: tuple[int, int] | None
    grows: bool
    limit: int

    @property
    def name(self) -> str:
        """The task's name."""
        return f"{PHASE}-index-{Path(self.path).name}"


class CheckedIndexFile(AttemptRecord):
    """What a file's entries are, in `numbers`, and `counts` of what is wrong, by kind.

    `ranks` and `offsets`: of the first and the last key of the log that it covers, −1 for none.
    """

    path: str
    ordered: bool
    has_tags: bool
    ranks: list[int]
    offsets: list[int]
    numbers: dict[str, int]
    counts: dict[str, int]


class GapTask(msgspec.Struct, frozen=True):
    """Keys of ranks [first, stop) that no file has, to be reported at a path; `tags`: those of tags are meant, too.

    `is_end`: behind the last file. `excused`: so many may be missing between compacted files, where those beside them
    lack some, too.
    """

    work: str
    first: int
    stop: int
    tags: bool
    path: str
    is_end: bool
    excused: int


class MissingKeys(msgspec.Struct, frozen=True):
    """How many keys have no entry, and the physical offsets of the first and the last record concerned."""

    count: int
    first: int
    last: int

    def note(self, path: str, findings: Discrepancies, found: str) -> None:
        """Note the finding that says so."""
        expected = f"entries for {self.count} key{'s' * (self.count > 1)} of the records at {self.first} to {self.last}"
        findings.add(MISSING_ENTRY, FoundAt(path, physical_offset=self.first), expected, found, self.count)


def check_index_file(task: CheckIndexTask) -> CheckedIndexFile:
    """Check one file; the summary. What was found lies in the work directory."""

    def check(attempt: Attempt, notify: Notify) -> CheckedIndexFile:
        findings = Discrepancies(task.limit)
        summary = _check(task, LogTable.read(attempt.work), findings)
        notify(summary["numbers"].get("entries", 0), summary["numbers"].get("entries", 0))
        return {**summary, "counts": findings.save(attempt.blocks(FINDINGS))}

    return run_attempt(task.work, task.name, check)


def _check(task: CheckIndexTask, log: LogTable, findings: Discrepancies) -> CheckedIndexFile:
    summary: CheckedIndexFile = {
        "path": task.path,
        "ordered": False,
        "has_tags": False,
        "ranks": [-1, -1],
        "offsets": [-1, -1],
        "numbers": {},
        "counts": {},
    }
    try:
        copy = IndexCopy(Path(task.path))
    except StoreError as error:
        if not (log.is_live and not Path(task.path).exists()):  # else a broker has just deleted it
            findings.add(FILE, FoundAt(task.path), "an index file", str(error))
        return summary
    slots = count_slots(copy, [task.slots])
    if not slots:
        expected = "an index file whose pointers lead from entry to entry"
        findings.add(FILE, FoundAt(task.path), expected, f"{copy.size} bytes that no slot count explains")
        return summary
    counts = count_entries(copy, slots, grows=task.grows)
    matched, begin = _match(copy, counts, log, task.limit)
    aligned = Alignment(matched, log, grows=task.grows)
    file = CheckedFile(copy, counts, aligned, log, findings, FileContext(task.previous, task.grows, task.limit))
    file.check(begin)
    _list_missing(task.path, aligned, findings)
    ranks = [aligned.first_rank, aligned.last_rank]
    return {
        **summary,
        "ordered": aligned.ordered,
        "has_tags": bool(matched.tags),
        "ranks": ranks,
        "offsets": list(map(aligned.offset_at, ranks)),
        "numbers": {**aligned.numbers, "entries": counts.entries},
    }


def _match(copy: IndexCopy, counts: IndexCounts, log: LogTable, limit: int) -> tuple[MatchedFile, int]:
    """Match with the begin timestamp of the header, or with the first record's, whichever explains more times."""
    begin = copy.header.begin_timestamp
    matched = MatchedFile(copy, counts, log, begin, limit)
    other = matched.matching.first_time if matched.is_ordered else matched.matching.smallest_time
    if not matched.matching.lates or other in (NO_TIME, begin):
        return matched, begin
    again = MatchedFile(copy, counts, log, other, limit)
    return (again, other) if again.matching.lates < matched.matching.lates else (matched, begin)


def _list_missing(path: str, aligned: Alignment, findings: Discrepancies) -> None:
    """Runs of keys that lie within what the file covers, and have no entry."""
    missing = aligned.missing
    for run in np.split(missing, np.flatnonzero(np.diff(missing["rank"]) != 1) + 1):
        if run.size:
            offsets = run["physical_offset"]
            MissingKeys(int(run.size), int(offsets[0]), int(offsets[-1])).note(path, findings, "none")
    if aligned.ordered:
        findings.more(MISSING_ENTRY, aligned.matched.more_unseen)


def count_gap(task: GapTask) -> MissingKeys:
    """Count the keys of a gap that have no entry; index files expire with the log that they are of."""
    log = LogTable.read(WorkDirectory(Path(task.work)))
    count, first, last, expired = 0, -1, -1, log.expired_below()
    for keys in log.keys_between(task.first, task.stop):
        offsets = keys["physical_offset"][(keys["physical_offset"] >= expired) & (~keys["is_tag"] | task.tags)]
        if offsets.size:
            first = int(offsets[0]) if first < 0 else first
            count, last = count + offsets.size, int(offsets[-1])
    return MissingKeys(count, first, last)
