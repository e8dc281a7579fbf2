"""The tasks that compare index files with the log: check one file, or count the keys that no file has.

A file is read into memory whole. Beside it stand the slots of its image and one block of the log's keys: 460 MB for a
full file of a broker's default size. For a file that is not as a rebuild makes it, 16 bytes for each entry are added,
20 if its entries do not ascend: 800 MB and 900 MB.
"""

from collections import Counter
from pathlib import Path
from typing import Final, cast

import msgspec
import numpy as np

from protocol.errors import StoreError
from spark_jobs.doctor.work_files import LogTable, save_findings
from spark_jobs.places.remote_file import RemoteObject
from spark_jobs.places.remote_tree import local_copy, named_as
from spark_jobs.run.attempt import Attempt, AttemptRecord, Notify, run_attempt
from spark_jobs.run.work_directory import WorkDirectory
from storage.amounts import counted
from storage.doctor.finding import Findings, FoundAt, Kind, Known
from storage.doctor.index.index_image import NO_STRETCH, IndexStretch, rebuilt_stretch
from storage.doctor.index.index_shape import CheckedFile
from storage.doctor.index.left_over_entries import LeftOver
from storage.doctor.index.match_entries import NO_TIME, MatchedFile
from storage.index.index_copy import IndexCopy, count_entries, count_slots

PHASE: Final = "check"


class CheckIndexTask(msgspec.Struct, frozen=True):
    """A file to be checked. `slots`: the slot count of most files; `grows`: a broker still puts entries into it.

    `previous`: end timestamp and end physical offset in the header of the file before, None for the first. `remote`:
    how the file was listed, if its path is a URL.
    """

    work: str
    path: str
    remote: RemoteObject | None
    slots: int
    previous: tuple[int, int] | None
    grows: bool
    limit: int

    @property
    def name(self) -> str:
        """The task's name."""
        return f"{PHASE}-index-{Path(self.path).name}"


class CheckedIndexFile(AttemptRecord):
    """How many entries of a file are of which sort (`numbers`), and how many findings it left (`found`).

    Between them are the fields of its :class:`IndexStretch`, whose `ranks` and `offsets` are −1 where it covers no key.
    """

    path: str
    ranks: list[int]
    offsets: list[int]
    has_tags: bool
    ordered: bool
    leaves_out: bool
    numbers: dict[str, int]
    found: int


class GapTask(msgspec.Struct, frozen=True):
    """Keys of the ranks [first, stop), which no file covers, and the path to report them at.

    `tags`: the keys of tags count, too. `is_end`: they lie behind the last file. `excused`: how many of them a
    compaction may have left out, as it did in the files beside them.
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

    def note(self, path: str, findings: Findings, found: str) -> None:
        """Note the finding."""
        expected = f"entries for {counted(self.count, 'key')} of the records at {self.first} to {self.last}"
        findings.note(Kind.MISSING_ENTRY, FoundAt(path, physical_offset=self.first), expected, found, self.count)


def check_index_file(task: CheckIndexTask) -> CheckedIndexFile:
    """Check one file and return the summary. The findings are left in the work directory."""

    def check(attempt: Attempt, notify: Notify) -> CheckedIndexFile:
        with local_copy(task.path, task.remote) as path:
            findings = Findings("index-files", Known.READ, task.limit, named_as(path, task.path))
            stretch, numbers = _check(task, path, LogTable.read(attempt.work), findings)
        notify(numbers["entries"], numbers["entries"])
        found = save_findings(findings.listed(), attempt)
        return cast("CheckedIndexFile", {"path": task.path, **stretch._asdict(), "numbers": numbers, "found": found})

    return run_attempt(task.work, task.name, check)


def _check(task: CheckIndexTask, path: Path, log: LogTable, findings: Findings) -> tuple[IndexStretch, Counter[str]]:
    try:
        copy = IndexCopy(path)
    except StoreError as error:
        if not (log.is_live and not path.exists()):  # otherwise the broker has just deleted it
            findings.note(Kind.FILE, FoundAt(task.path), "an index file", str(error))
        return NO_STRETCH, Counter()
    stretch = None if task.grows else rebuilt_stretch(copy, task.slots, task.previous, log)
    if stretch is not None:
        entries = copy.header.index_count - 1
        return stretch, Counter(entries=entries, matched=entries)
    slots = count_slots(copy, [task.slots])
    if not slots:
        expected = "an index file whose pointers lead from entry to entry"
        findings.note(Kind.FILE, FoundAt(task.path), expected, f"{copy.size} bytes that no slot count explains")
        return NO_STRETCH, Counter()
    counts = count_entries(copy, slots, grows=task.grows)
    left = LeftOver(MatchedFile(copy, counts, log), log, grows=task.grows)
    CheckedFile(copy, counts, left, findings, task.previous).check(_begin(copy, left.matched))
    _list_missing(task.path, left, findings)
    return left.stretch(), left.numbers + Counter(entries=counts.entries)


def _begin(copy: IndexCopy, matched: MatchedFile) -> int:
    """The begin timestamp of the header, or that of the records where it explains more of the entries' times."""
    said = copy.header.begin_timestamp
    wrong = matched.wrong_times(said).size
    if not wrong:
        return said
    true = int(matched.timestamps[1]) if matched.is_ordered else matched.time_span()[0]
    return true if true != NO_TIME and matched.wrong_times(true).size < wrong else said


def _list_missing(path: str, left: LeftOver, findings: Findings) -> None:
    """Note each run of keys that lie within the stretch that the file covers and have no entry."""
    missing = left.missing
    for run in np.split(missing, np.flatnonzero(np.diff(missing["rank"]) != 1) + 1):
        if run.size:
            offsets = run["physical_offset"]
            MissingKeys(int(run.size), int(offsets[0]), int(offsets[-1])).note(path, findings, "none")
    if left.ordered:
        findings.more(Kind.MISSING_ENTRY, left.matched.more_unseen)


def count_gap(task: GapTask) -> MissingKeys:
    """Count the keys of a gap; those of segments that the broker has deleted meanwhile are not missing."""
    log = LogTable.read(WorkDirectory(Path(task.work)))
    count, first, last, expired = 0, -1, -1, log.expired_below()
    for keys in log.keys_between(task.first, task.stop):
        counts = (keys["physical_offset"] >= expired) & (~keys["is_tag"] | task.tags) & ~keys["is_repeat"]
        offsets = keys["physical_offset"][counts]
        if offsets.size:
            first = int(offsets[0]) if first < 0 else first
            count, last = count + offsets.size, int(offsets[-1])
    return MissingKeys(count, first, last)
