"""Compare index files with the log: each file by a task, the gaps between files by others, and how they fit together.

A file is read into memory whole. Beside it stand the slots of its image and one block of the log's keys: 460 MB for a
full file of a broker's default size. For a file that is not as a rebuild makes it, 16 bytes for each entry are added,
20 if its entries do not ascend: 800 MB and 900 MB.
"""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final, cast

import msgspec

from spark_jobs.doctor.deep_request import IndexNumbers
from spark_jobs.doctor.work_files import LogTable, save_findings
from spark_jobs.places.remote_file import RemoteObject
from spark_jobs.places.remote_tree import local_copy, named_as
from spark_jobs.run.attempt import Attempt, AttemptRecord, Notify, RunTasks, run_attempt
from spark_jobs.run.work_directory import WorkDirectory
from storage.doctor.finding import Findings, FoundAt, Kind, Known
from storage.doctor.index.index_check import MissingKeys, check_file, count_missing
from storage.doctor.words import INDEX_DIRECTORY

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


def check_index_file(task: CheckIndexTask) -> CheckedIndexFile:
    """Check one file and return the summary. The findings are left in the work directory."""

    def check(attempt: Attempt, notify: Notify) -> CheckedIndexFile:
        with local_copy(task.path, task.remote) as path:
            findings = Findings("index-files", Known.READ, task.limit, named_as(path, task.path))
            log, previous = LogTable.read(attempt.work), task.previous
            stretch, numbers = check_file(path, log, findings, slots=task.slots, previous=previous, grows=task.grows)
        notify(numbers["entries"], numbers["entries"])
        found = save_findings(findings.listed(), attempt)
        return cast("CheckedIndexFile", {"path": task.path, **stretch._asdict(), "numbers": numbers, "found": found})

    return run_attempt(task.work, task.name, check)


def count_gap(task: GapTask) -> MissingKeys:
    """Count the keys of a gap."""
    return count_missing(LogTable.read(WorkDirectory(Path(task.work))), task.first, task.stop, tags=task.tags)


def judge_index(
    run: RunTasks,
    work: WorkDirectory,
    directory: Path,
    summaries: Sequence[CheckedIndexFile],
    log: LogTable,
    findings: Findings,
) -> IndexNumbers:
    """Report what is wrong between the files of a directory; return the sums for the report."""
    sums = Counter[str]()
    for summary in summaries:
        sums.update(summary["numbers"])
    _report_overlaps(summaries, sums, findings)
    gaps = _find_gaps(work.root, directory, summaries, log)
    for gap, missing in zip(gaps, run("gaps", gaps, count_gap), strict=True):
        if gap.is_end and log.may_lag:
            sums["lag"] += missing.count
        elif missing.count <= gap.excused:
            sums["dropped"] += missing.count
        else:
            missing.note(gap.path, findings, "none in any file")
    _report_directories(directory, findings)
    sums["files"] = len(summaries)
    return IndexNumbers(**{name: sums[name] for name in IndexNumbers.__struct_fields__})


def _find_gaps(work: Path, directory: Path, summaries: Sequence[CheckedIndexFile], log: LogTable) -> list[GapTask]:
    """The stretches between files, before the first and behind the last; `summaries` are in the order of file names."""
    gaps: list[GapTask] = []
    covering = sorted((each for each in summaries if each["ranks"][0] >= 0), key=lambda each: each["ranks"])
    covered = 0

    def note_gap(stop: int, path: str, beside: Sequence[CheckedIndexFile], *, is_end: bool = False) -> None:
        if stop > covered:
            tags = all(each["has_tags"] for each in beside)
            gaps.append(GapTask(str(work), covered, stop, tags, path, is_end, _excused(beside)))

    for number, each in enumerate(covering):
        note_gap(each["ranks"][0], each["path"], covering[max(number - 1, 0) : number + 1])
        covered = max(covered, each["ranks"][1] + 1)
    note_gap(log.entries, str(directory), covering[-1:], is_end=bool(covering))
    return gaps


def _excused(beside: Sequence[CheckedIndexFile]) -> int:
    """Return how many keys a compaction may have left out between files that lack others, too: no more than it kept."""
    if not any(each["leaves_out"] for each in beside):
        return 0
    return min(each["numbers"].get("matched", 0) for each in beside)


def _report_overlaps(summaries: Sequence[CheckedIndexFile], sums: Counter[str], findings: Findings) -> None:
    """Report entries that are in two files.

    Only those of one record may be: a broker that recovers puts the entries of the last record once more.
    """
    before: CheckedIndexFile | None = None
    for summary in summaries:
        (first, _), offset = summary["ranks"], summary["offsets"][0]
        if first < 0:
            continue
        if before is not None and first <= before["ranks"][1]:
            count, last = before["ranks"][1] - first + 1, before["offsets"][1]
            if before["ordered"] and summary["ordered"]:
                if offset == last:
                    sums["repeats"] += count
                else:
                    expected = f"entries of records behind physical offset {last}"
                    found = f"{count} that {Path(before['path']).name} has, too"
                    at = FoundAt(summary["path"], physical_offset=offset)
                    findings.note(Kind.REPEATED_ENTRY, at, expected, found, count)
        before = summary


def _report_directories(directory: Path, findings: Findings) -> None:
    """Report directories whose names are numbers: with one among its files a broker does not load the index."""
    try:
        found = [entry.path for entry in os.scandir(directory) if entry.name.isdecimal() and entry.is_dir()]
    except OSError:
        return
    for path in sorted(found):
        findings.note(Kind.FILE, FoundAt(path), *INDEX_DIRECTORY)
