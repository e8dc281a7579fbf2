"""How the index files of a store fit together: each begins where the one before it ends."""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from spark_jobs.verify.check_index_entries import CheckedIndexFile, GapTask, MissingKeys, gap_finding
from spark_jobs.verify.findings import FILE, REPEATED_ENTRY, Discrepancies, FoundAt
from spark_jobs.verify.log_table import LogTable
from spark_jobs.verify.verify_request import IndexNumbers
from storage.kernels.records import MAXIMUM_PIECES


class UncoveredRanks(NamedTuple):
    """Keys of the log, by rank, that no file covers, and the path to report them at; `is_end`: behind the last file.

    `excused`: so many keys may be missing between compacted files, where those beside them lack some, too.
    """

    task: GapTask
    path: str
    is_end: bool
    excused: int


def find_gaps(
    work: Path, directory: Path, summaries: Sequence[CheckedIndexFile], log: LogTable
) -> list[UncoveredRanks]:
    """What lies between files, and before and behind all; `summaries` are those of the checks, in order of names."""
    gaps = []
    covering = sorted((each for each in summaries if each["first_rank"] >= 0), key=lambda each: each["first_rank"])
    twice = _twice([(each["first_rank"], each["last_rank"] + 1) for each in covering])
    covered = 0
    before: CheckedIndexFile | None = None
    for each in covering:
        if each["first_rank"] > covered:
            beside = [each] if before is None else [before, each]
            task = _gap_task(work, covered, each["first_rank"], twice, tags=_have_tags(beside))
            gaps.append(UncoveredRanks(task, each["path"], False, _excused(beside)))
        before = each
        covered = max(covered, each["last_rank"] + 1)
    entries = int(log.ranks[-1])
    if covered < entries:
        beside = covering[-1:]
        task = _gap_task(work, covered, entries, twice, tags=_have_tags(beside))
        gaps.append(UncoveredRanks(task, str(directory), bool(covering), _excused(beside)))
    return gaps


def _have_tags(beside: Sequence[CheckedIndexFile]) -> bool:
    return all(each["has_tags"] for each in beside)


def _excused(beside: Sequence[CheckedIndexFile]) -> int:
    """Keys that a compaction may have left out between files: where it left out others, and fewer than it kept."""
    if not any(each["dropped"] for each in beside):
        return 0
    fewest: int = min(each["matched"] for each in beside)
    return fewest


def _twice(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Where ranges, sorted, overlap those before them: once for each that does."""
    overlaps = []
    covered = 0
    for first, stop in ranges:
        if first < covered:
            overlaps.append((first, min(stop, covered)))
        covered = max(covered, stop)
    return overlaps


def _gap_task(work: Path, first: int, stop: int, twice: Sequence[tuple[int, int]], *, tags: bool) -> GapTask:
    near = [
        (start, end)
        for start, end in twice
        if end - start <= MAXIMUM_PIECES and start < stop + MAXIMUM_PIECES and end > first - MAXIMUM_PIECES
    ]
    return GapTask(str(work), first, stop, tags, tuple(near) if stop - first <= MAXIMUM_PIECES else ())


def judge_index(
    directory: Path,
    summaries: Sequence[CheckedIndexFile],
    gaps: Sequence[tuple[UncoveredRanks, MissingKeys]],
    log: LogTable,
    findings: Discrepancies,
) -> IndexNumbers:
    """Say what is wrong between files; numbers of all for the report. `gaps` come with what is missing there."""
    sums: Counter[str] = Counter()
    for summary in summaries:
        sums.update({name: summary.get(name, 0) for name in ("entries", *_SUMS)})
    lag = 0
    for gap, answer in gaps:
        if answer.count and gap.is_end and log.may_lag:
            lag += answer.count
        elif answer.count <= gap.excused:
            sums["dropped"] += answer.count
        elif answer.count:
            findings.note(gap_finding(gap.path, answer))
    _say_overlaps(summaries, sums, findings)
    _say_directories(directory, findings)
    numbers = {name: sums[name] for name in ("entries", *_SUMS)}
    return IndexNumbers(files=len(summaries), lag=lag, **numbers)


_SUMS = ("matched", "expired", "lost", "newer", "repeats", "dropped")


def _say_overlaps(summaries: Sequence[CheckedIndexFile], sums: Counter[str], findings: Discrepancies) -> None:
    """A broker that recovers puts the entries of the last record once more; nothing else is in two files."""
    before: CheckedIndexFile | None = None
    for summary in summaries:
        if summary["first_rank"] < 0:
            continue
        if before and before["ordered"] and summary["ordered"] and summary["first_rank"] <= before["last_rank"]:
            count = before["last_rank"] - summary["first_rank"] + 1
            if summary["first_offset"] == before["last_offset"]:
                sums["repeats"] += count
            else:
                expected = f"entries of records behind physical offset {before['last_offset']}"
                found = f"{count} that {Path(before['path']).name} has, too"
                offset = summary["first_offset"]
                findings.add(REPEATED_ENTRY, FoundAt(summary["path"], physical_offset=offset), expected, found, count)
        before = summary


def _say_directories(directory: Path, findings: Discrepancies) -> None:
    """With a directory among them whose name is a number, a broker does not load the index."""
    try:
        found = [entry.path for entry in os.scandir(directory) if entry.name.isdecimal() and entry.is_dir()]
    except OSError:
        return
    for path in sorted(found):
        findings.add(FILE, FoundAt(path), "an index file", "a directory")
