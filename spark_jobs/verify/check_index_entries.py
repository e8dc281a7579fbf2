"""The tasks that hold index files against the log: measure a file, check it, count what lies between two files.

A file is read into memory whole, beside it one block of the log's entries at a time and 8 bytes an entry, 28 if it is
compacted: 570 MB for a full file of a broker's default size, 950 MB for a compacted one.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Required

import msgspec
import numpy as np

from protocol.errors import StoreError
from spark_jobs.run.attempt import Attempt, AttemptRecord, Notify, run_attempt
from spark_jobs.run.work_directory import WorkDirectory
from spark_jobs.verify.check_index_structure import CheckIndexTask, ShapeCheck, entry_position
from spark_jobs.verify.findings import (
    ENTRY,
    FILE,
    FINDINGS,
    MISSING_ENTRY,
    REPEATED_ENTRY,
    Discrepancies,
    Discrepancy,
    FoundAt,
)
from spark_jobs.verify.log_table import LogTable
from spark_jobs.verify.match_entries import LogBlock, LogEntries, Matched, match_file
from spark_jobs.verify.pair_entries import Leftover, sort_out
from storage.index.index_copy import Entries, IndexCopy, IndexCounts, count_entries, count_slots
from storage.kernels.indexes import INDEX_HEADER
from storage.kernels.matching import NO_TIME


class MeasureIndexTask(msgspec.Struct, frozen=True):
    """A file whose counts are asked for."""

    path: str


class GapTask(msgspec.Struct, frozen=True):
    """Entries of ranks [first, stop) that no file has; `tags`: those of tags are looked for, too.

    `twice`: ranks close by that two files have. Where a record that straddles them names a key twice it may be the
    other one's entry.
    """

    work: str
    first: int
    stop: int
    tags: bool
    twice: tuple[tuple[int, int], ...]


class MeasuredIndexFile(msgspec.Struct, frozen=True):
    """The slot count of a file, 0 for none, and where its header says that it ends: time and physical offset."""

    slots: int
    end: tuple[int, int] | None


class MissingKeys(msgspec.Struct, frozen=True):
    """How many keys have no entry, and the physical offsets of the first and the last record concerned."""

    count: int
    first: int
    last: int


class CheckedIndexFile(AttemptRecord, total=False):
    """Numbers of a file's entries. A file that cannot be read has only `entries`, 0, and `first_rank`, −1.

    `first_rank` to `last_rank` are the keys of the log that it covers, −1 for none, and `first_offset` to
    `last_offset` their records; `counts` is what is wrong, by kind.
    """

    path: str
    entries: Required[int]
    first_rank: Required[int]
    counts: dict[str, int]
    slots: int
    capacity: int
    matched: int
    expired: int
    lost: int
    newer: int
    repeats: int
    dropped: int
    ordered: bool
    has_tags: bool
    last_rank: int
    first_offset: int
    last_offset: int


def measure_index_file(task: MeasureIndexTask) -> MeasuredIndexFile:
    """Measure a file, without a look at its entries."""
    try:
        copy = IndexCopy(Path(task.path))
    except StoreError:
        return MeasuredIndexFile(0, None)
    if copy.size < INDEX_HEADER:
        return MeasuredIndexFile(0, None)
    return MeasuredIndexFile(count_slots(copy), (copy.header.end_timestamp, copy.header.end_physical_offset))


def check_index_file(task: CheckIndexTask) -> CheckedIndexFile:
    """Check one file; the summary. What was found lies in the work directory."""

    def check(attempt: Attempt, notify: Notify) -> CheckedIndexFile:
        findings = Discrepancies(task.limit)
        summary = _check(task, LogTable.read(attempt.work), findings)
        notify(summary["entries"], summary["entries"])
        return {**summary, "path": task.path, "counts": findings.save(attempt.blocks(FINDINGS))}

    return run_attempt(task.work, task.name, check)


def _check(task: CheckIndexTask, log: LogTable, findings: Discrepancies) -> CheckedIndexFile:
    path = Path(task.path)
    try:
        copy = IndexCopy(path)
    except StoreError as error:
        if not (log.is_live and not path.exists()):  # else a broker has just deleted it
            findings.add(FILE, FoundAt(path), "an index file", str(error))
        return {"entries": 0, "first_rank": -1}
    slots = count_slots(copy, [task.slots])
    if not slots:
        expected = "an index file whose pointers lead from entry to entry"
        findings.add(FILE, FoundAt(path), expected, f"{copy.size} bytes that no slot count explains")
        return {"entries": 0, "first_rank": -1}
    counts = count_entries(copy, slots, grows=task.grows)
    return IndexCheck(task, copy, counts, log, findings).run()


class IndexCheck:
    """One file whose counts are known, beside the log."""

    def __init__(
        self, task: CheckIndexTask, copy: IndexCopy, counts: IndexCounts, log: LogTable, findings: Discrepancies
    ) -> None:
        """Nothing is checked yet."""
        self._task, self._copy, self._counts, self._log, self._findings = task, copy, counts, log, findings
        self._entries: Entries = copy.entries(counts.slots, counts.entries)

    def run(self) -> CheckedIndexFile:
        """Check everything; the summary."""
        matched, begin = self._match()
        left = sort_out(self._entries, matched, self._log, grows=self._task.grows)
        if not matched.matches and left.strays.size:
            self._say_foreign(left)
        else:
            self._list_entries(left)
        self._list_missing(left, matched.more_unseen)
        ShapeCheck(self._task, self._copy, self._counts, self._log, matched, left, self._findings).run(begin)
        return self._summary(matched, left)

    def _match(self) -> tuple[Matched, int]:
        """Match with the begin timestamp of the header, or with the first record's, whichever explains more times."""
        copy, counts, log = self._copy, self._counts, self._log
        begin = copy.header.begin_timestamp
        matched = match_file(copy, counts, log, begin, self._task.limit)
        if not matched.lates:
            return matched, begin
        other = matched.matching.first_time if matched.is_ordered else matched.matching.smallest_time
        if other in (NO_TIME, begin):
            return matched, begin
        again = match_file(copy, counts, log, other, self._task.limit)
        return (again, other) if again.lates < matched.lates else (matched, begin)

    def _say_foreign(self, left: Leftover) -> None:
        """One sentence for a file none of whose entries belongs here."""
        found = f"{left.strays.size} of {self._counts.entries} entries, and none that does"
        self._findings.add(FILE, FoundAt(self._task.path), "no entry that belongs to no record of this log", found)
        self._findings.more(ENTRY, int(left.strays.size) - 1)

    def _list_entries(self, left: Leftover) -> None:
        """List the single entries that are wrong."""
        for number, place in left.pairs:
            self._list_pair(number, left.unseen.take(slice(place, place + 1)))
        for number in left.strays[: self._task.limit].tolist():
            entry = self._entries[number]
            found = f"physical offset {entry['physical_offset']} with hash {entry['key_hash']}"
            self._add(ENTRY, number, "", int(entry["physical_offset"]), "a key of a record that is there", found)
        for number in left.repeated[: self._task.limit].tolist():
            entry = self._entries[number]
            expected, found = "each key of a record once", f"hash {entry['key_hash']} once more"
            self._add(REPEATED_ENTRY, number, "", int(entry["physical_offset"]), expected, found)
        self._findings.more(ENTRY, max(len(left.strays) - self._task.limit, 0))
        self._findings.more(REPEATED_ENTRY, max(len(left.repeated) - self._task.limit, 0))

    def _list_pair(self, number: int, expected: LogEntries) -> None:
        """The fields in which an entry differs from what it should be."""
        entry, offset = self._entries[number], int(expected.physical_offsets[0])
        if entry["key_hash"] != expected.hashes[0]:
            self._add(ENTRY, number, "key_hash", offset, int(expected.hashes[0]), int(entry["key_hash"]))
        if entry["physical_offset"] != offset:
            self._add(ENTRY, number, "physical_offset", offset, offset, int(entry["physical_offset"]))

    def _add(self, kind: str, number: int, field: str, offset: int, expected: object, found: object) -> None:
        position = entry_position(self._counts, number, field)
        self._findings.add(
            kind, FoundAt(self._task.path, f"entry {number} {field}".strip(), position, offset), expected, found
        )

    def _list_missing(self, left: Leftover, more: int) -> None:
        """Runs of keys that lie within what the file covers, and are not in it."""
        ranks = left.missing.ranks
        for run in np.split(np.arange(len(ranks)), np.flatnonzero(np.diff(ranks) != 1) + 1):
            if run.size:
                self._findings.note(missing_finding(self._task.path, left.missing.take(run), int(run.size)))
        if more and left.ordered:
            self._findings.more(MISSING_ENTRY, more)

    def _summary(self, matched: Matched, left: Leftover) -> CheckedIndexFile:
        return {
            "slots": self._counts.slots,
            "capacity": self._counts.capacity,
            "entries": self._counts.entries,
            "matched": matched.matches,
            "expired": left.expired,
            "lost": left.lost,
            "newer": left.newer,
            "repeats": left.repeats,
            "dropped": left.dropped,
            "ordered": left.ordered,
            "has_tags": matched.first_tag >= 0,
            "first_rank": left.first_rank,
            "last_rank": left.last_rank,
            "first_offset": left.first_offset,
            "last_offset": left.last_offset,
        }


def missing_finding(path: str, missing: LogEntries, count: int) -> Discrepancy:
    """The finding that says of a file that keys of the log have no entry in it."""
    first, last = int(missing.physical_offsets[0]), int(missing.physical_offsets[-1])
    expected = f"entries for {count} key{'s' * (count > 1)} of the records at {first} to {last}"
    return Discrepancy(MISSING_ENTRY, path, "", -1, first, expected, "none", count)


def count_gap(task: GapTask) -> MissingKeys:
    """Count the keys of a gap that have no entry."""
    log = LogTable.read(WorkDirectory(Path(task.work)))
    others = Counter(
        place
        for first, stop in task.twice
        for entries in _ranks_between(log, first, stop)
        for place in _places(entries)
    )
    count, first, last = 0, -1, -1
    expired = log.expired_below()  # index files go with the log that they are of
    for entries in _ranks_between(log, task.first, task.stop):
        missing = entries if task.tags else entries.take(~entries.are_tags)
        if expired > log.minimum:
            missing = missing.take(missing.physical_offsets >= expired)
        if others:
            missing = missing.take(np.array([not _takes(others, place) for place in _places(missing)], np.bool_))
        if missing.ranks.size:
            first = int(missing.physical_offsets[0]) if first < 0 else first
            count, last = count + len(missing.ranks), int(missing.physical_offsets[-1])
    return MissingKeys(count, first, last)


def _ranks_between(log: LogTable, first: int, stop: int) -> Iterator[LogEntries]:
    """Entries of the ranks [first, stop), block by block."""
    start = int(np.searchsorted(log.ranks, first, side="right")) - 1
    for number in range(max(start, 0), len(log.blocks)):
        if log.ranks[number] >= stop:
            return
        entries = LogBlock(log, number).all()
        yield entries.take((entries.ranks >= first) & (entries.ranks < stop))


def _places(entries: LogEntries) -> Iterator[tuple[int, int]]:
    """Physical offset and hash of each."""
    return zip(entries.physical_offsets.tolist(), entries.hashes.tolist(), strict=True)


def _takes(others: "Counter[tuple[int, int]]", place: tuple[int, int]) -> bool:
    """Whether there is one more of a kind."""
    others[place] -= 1
    return others[place] >= 0


def gap_finding(path: str, gap: MissingKeys) -> Discrepancy:
    """What to say of a gap that is not empty."""
    first, last, count = gap.first, gap.last, gap.count
    expected = f"entries for {count} key{'s' * (count > 1)} of the records at {first} to {last}"
    return Discrepancy(MISSING_ENTRY, path, "", -1, first, expected, "none in any file", count)
