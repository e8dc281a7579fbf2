"""How the index files of a store fit together: each begins where the one before it ends."""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from spark_jobs.doctor.check_index import CheckedIndexFile, GapTask, count_gap
from spark_jobs.doctor.deep_request import IndexNumbers
from spark_jobs.doctor.work_files import LogTable
from spark_jobs.run.attempt import RunTasks
from spark_jobs.run.work_directory import WorkDirectory
from storage.doctor.finding import Findings, FoundAt, Kind
from storage.doctor.words import INDEX_DIRECTORY


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
