"""The check of index files.

Quick: each file by itself, whether it is sound and what its header and its chains are like. Deep: each file beside the
log, as a rebuild makes it, or what of it is not; then how the files fit together, and keys of the log that none has.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from protocol.errors import StoreError
from storage.amounts import counted
from storage.doctor._opened_store import OpenedStore
from storage.doctor._rescue_line import set_aside_line
from storage.doctor.finding import ADVICE, INDEX, Finding, Findings, FoundAt, Kind, Severity
from storage.doctor.index._index_image import NO_STRETCH, IndexStretch, rebuilt_stretch
from storage.doctor.index._index_shape import CheckedFile
from storage.doctor.index._left_over_entries import LeftOver
from storage.doctor.index._match_entries import NO_TIME, MatchedFile
from storage.doctor.index.index_health import IndexFileHealth
from storage.doctor.log.scanned_log import ScannedLog
from storage.doctor.words import HEADER_PLACES, INDEX_DIRECTORY, header_field
from storage.files.mapped_file import MappedFile
from storage.index.index_copy import IndexCopy, count_entries, count_slots
from storage.index.index_examination import KEYS_LEFT_OUT
from storage.index.index_file import DEFAULT_SLOTS, ENTRY, HEADER, SLOT, IndexFile, last_data_position
from storage.index.index_header import is_index_name
from storage.kernels.indexes import check_structure

LONG_CHAIN = 100_000
"""Entries in one slot above which look-ups in it take milliseconds."""

COMPLETE = "compact index --from-log"


class ReadFile(NamedTuple):
    """An index file of which every entry was read: the keys that it covers, and how many entries are of which sort."""

    path: str
    stretch: IndexStretch
    numbers: Mapping[str, int]

    @classmethod
    def of(cls, path: str, stretch: Sequence[Any], numbers: Mapping[str, int]) -> "ReadFile":
        """One of which the fields of the stretch are given."""
        return cls(path, IndexStretch(*stretch), numbers)


class UncoveredKeys(NamedTuple):
    """Keys of the ranks [first, stop), which no file covers, and the path to report them at.

    `tags`: the keys of tags count, too. `is_end`: they lie behind the last file. `excused`: how many of them a
    compaction may have left out, as it did in the files beside them.
    """

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

    def note(self, path: Path | str, findings: Findings, found: str, remedy: str = "") -> None:
        """Note the finding, with the remedy of its kind unless another one is given."""
        expected = f"entries for {counted(self.count, 'key')} of the records at {self.first} to {self.last}"
        at = FoundAt(path, physical_offset=self.first)
        findings.note(Kind.MISSING_ENTRY, at, expected, found, self.count, remedy)


# --- quick ------------------------------------------------------------------------------------------------------------


def check_index_files(store: OpenedStore, measured: list[IndexFileHealth]) -> list[Finding]:
    """Report the damage of each index file by itself."""
    findings = Findings("index-files")
    sound = {file.index.file.path for file in store.index.files}
    for path in _paths(store.layout.index):
        if path not in sound:
            _report_useless(store, path, findings)
    for file, health in zip(store.index.files, measured, strict=True):
        _check_header(store, file.index, health, findings)
        _check_health(store, health, findings)
    return findings.listed()


def _paths(directory: Path) -> list[Path]:
    try:
        return sorted(directory / name for name in os.listdir(directory))
    except OSError:
        return []


def _report_useless(store: OpenedStore, path: Path, findings: Findings) -> None:
    """Name a file that covers nothing: no index file, an empty one, or one that does not hold together."""
    if not is_index_name(path.name):
        meaning = "it is ignored here; a broker tries to read it as an index file"
        findings.add(Kind.FILE, Severity.WARNING, path, "is no index file", meaning, set_aside_line(store, path))
        return
    if os.path.isdir(path):
        meaning = "it is ignored here; a broker that finds it does not load the index"
        expected, found = INDEX_DIRECTORY
        remedy = set_aside_line(store, path)
        findings.add(Kind.FILE, Severity.WARNING, path, found, meaning, remedy, expected=expected)
        return
    lost = "keys in its range are looked for in the log instead, which takes memory; a broker does not find them"
    problem = next((text for text in store.index.problems if str(path) in text), "")
    if not problem:  # a broker has just made it
        at = FoundAt(path, position=HEADER.size)
        findings.add(Kind.FILE, Severity.INFO, at, "has no entries yet", "it covers nothing", "no fix is needed")
        return
    if KEYS_LEFT_OUT in problem:
        meaning = "its range is scanned from the log at each start; a broker does not find what was left out"
        findings.add(Kind.MISSING_ENTRY, Severity.WARNING, path, KEYS_LEFT_OUT, meaning, store.command(COMPLETE))
        return
    position, what = _first_fault(store, path)
    found = f"is not sound: {what or problem.partition(': ')[2] or problem}"
    findings.add(Kind.FILE, Severity.ERROR, FoundAt(path, position=position), found, lost, store.command(INDEX))


def _first_fault(store: OpenedStore, path: Path) -> tuple[int, str]:
    """Position and description of the first slot or entry that does not fit the entries before it, if one is found."""
    try:
        file = MappedFile.open(path)
    except StoreError:  # the problem says why
        return 0, ""
    known = [each.index.shape.slots for each in store.index.files] or [DEFAULT_SLOTS]
    slots, last = known[-1], last_data_position(file)
    entries = (last - HEADER.size - SLOT.size * slots) // ENTRY.size
    room = (file.size - HEADER.size - SLOT.size * slots) // ENTRY.size - 1
    if not 1 <= entries <= room:
        return min(file.size, HEADER.size), ""
    bad = check_structure(file.region, slots, entries)
    if not bad:
        return 0, ""
    if bad > entries:
        slot = bad - entries - 1
        return HEADER.size + SLOT.size * slot, f"slot {slot} does not hold the newest of its entries"
    position = HEADER.size + SLOT.size * slots + ENTRY.size * bad
    return position, f"entry {bad} of {entries}: its hash is negative, or it does not point to the one before it"


def _check_header(store: OpenedStore, index: IndexFile, health: IndexFileHealth, findings: Findings) -> None:
    """A header says what the entries do; brokers trust it."""
    header = index.header
    is_last = index is store.index.files[-1].index
    if store.state.is_live and is_last:
        return
    stated = {
        "index_count": (header.index_count, health.entries + 1),
        "begin_physical_offset": (header.begin_physical_offset, health.first_physical_offset),
        "end_physical_offset": (header.end_physical_offset, health.last_physical_offset),
    }
    if index.shape.compacted == index.shape.entries and header.end_physical_offset > health.last_physical_offset:
        # A compaction leaves it where a broker is to go on, whatever entries it drops.
        del stated["end_physical_offset"]
    if health.used_slots >= 0:
        stated["slot_count"] = header.slot_count, health.used_slots
    severity, meaning, remedy = ADVICE["index-files"][Kind.HEADER]
    for name, (has, should) in stated.items():
        if has != should:
            at = FoundAt(health.path, header_field(name), HEADER_PLACES[name])
            findings.add(Kind.HEADER, severity, at, str(has), meaning, store.command(remedy), expected=str(should))
    if header.begin_timestamp > header.end_timestamp:
        found = f"its header begins at {header.begin_timestamp} ms and ends before, at {header.end_timestamp} ms"
        meaning = "the clock was set back while it was filled: a broker misses keys in searches by time"
        at = FoundAt(health.path, position=0)
        findings.add(Kind.CLOCK, Severity.WARNING, at, found, meaning, "no fix is needed to serve the store")


def _check_health(store: OpenedStore, health: IndexFileHealth, findings: Findings) -> None:
    if health.beyond_log > 0:
        found = f"{health.beyond_log} of {health.entries} entries point beyond the log's end at {store.commit_log.end}"
        meaning = "the log was cut under the index: a broker indexes nothing that is written there anew"
        at = FoundAt(health.path, physical_offset=health.last_physical_offset)
        findings.add(Kind.ENTRY, Severity.WARNING, at, found, meaning, store.command(INDEX))
    if health.longest_chain > LONG_CHAIN:
        found = f"one slot holds {health.longest_chain} of {health.entries} entries"
        meaning = "a look-up of a key in that slot reads all of them; if they are not in memory that takes long"
        findings.add(Kind.CHAIN, Severity.INFO, health.path, found, meaning, store.command("compact index"))


# --- deep -------------------------------------------------------------------------------------------------------------


def check_file(
    path: Path, log: ScannedLog, findings: Findings, *, slots: int, previous: tuple[int, int] | None, grows: bool
) -> tuple[IndexStretch, Counter[str]]:
    """Compare a file with the log; returns what of the log it covers, and how many of its entries are of which sort.

    `slots` are those of most files, `previous` is the end timestamp (ms) and end physical offset in the header of the
    file before, None for the first. `grows`: a broker puts entries into it.
    """
    try:
        copy = IndexCopy(path)
    except StoreError as error:
        if not (log.is_live and not path.exists()):  # otherwise the broker has just deleted it
            findings.note(Kind.FILE, FoundAt(path), "an index file", str(error))
        return NO_STRETCH, Counter()
    stretch = None if grows else rebuilt_stretch(copy, slots, previous, log)
    if stretch is not None:
        entries = copy.header.index_count - 1
        return stretch, Counter(entries=entries, matched=entries)
    slots = count_slots(copy, [slots])
    if not slots:
        expected = "an index file whose pointers lead from entry to entry"
        findings.note(Kind.FILE, FoundAt(path), expected, f"{copy.size} bytes that no slot count explains")
        return NO_STRETCH, Counter()
    counts = count_entries(copy, slots, grows=grows)
    left = LeftOver(MatchedFile(copy, counts, log), log, grows=grows)
    CheckedFile(copy, counts, left, findings, previous).check(_begin(copy, left.matched))
    _list_missing(path, left, findings)
    return left.stretch(), left.numbers + Counter(entries=counts.entries)


def _begin(copy: IndexCopy, matched: MatchedFile) -> int:
    """The begin timestamp of the header, or that of the records where it explains more of the entries' times."""
    said = copy.header.begin_timestamp
    wrong = matched.wrong_times(said).size
    if not wrong:
        return said
    true = int(matched.timestamps[1]) if matched.is_ordered else matched.time_span()[0]
    return true if true != NO_TIME and matched.wrong_times(true).size < wrong else said


def _list_missing(path: Path, left: LeftOver, findings: Findings) -> None:
    """Note each run of keys that lie within the stretch that the file covers and have no entry."""
    missing = left.missing
    for run in np.split(missing, np.flatnonzero(np.diff(missing["rank"]) != 1) + 1):
        if run.size:
            offsets = run["physical_offset"]
            MissingKeys(int(run.size), int(offsets[0]), int(offsets[-1])).note(path, findings, "none")
    if left.ordered:
        findings.more(Kind.MISSING_ENTRY, left.matched.more_unseen)


def count_missing(log: ScannedLog, gap: UncoveredKeys) -> MissingKeys:
    """Count the keys of a gap as missing, but for those of segments that the broker has deleted, and repeated ones."""
    count, lowest, last, expired = 0, -1, -1, log.expired_below()
    for keys in log.keys_between(gap.first, gap.stop):
        counts = (keys["physical_offset"] >= expired) & (~keys["is_tag"] | gap.tags) & ~keys["is_repeat"]
        offsets = keys["physical_offset"][counts]
        if offsets.size:
            lowest = int(offsets[0]) if lowest < 0 else lowest
            count, last = count + offsets.size, int(offsets[-1])
    return MissingKeys(count, lowest, last)


def check_between_files(
    directory: Path,
    files: Sequence[ReadFile],
    log: ScannedLog,
    count: Callable[[Sequence[UncoveredKeys]], Sequence[MissingKeys]],
    findings: Findings,
) -> Counter[str]:
    """Report inconsistencies between the index files, in the order of their names; sums of their numbers.

    `count` counts the missing keys of gaps, as :func:`count_missing`. Added are `lag` and `dropped`, keys without an
    entry for a reason.
    """
    sums = Counter[str](files=len(files))
    for each in files:
        sums.update(each.numbers)
    _report_overlaps(files, sums, findings)
    gaps = list(_gaps(directory, files, log.entries))
    for gap, missing in zip(gaps, count(gaps), strict=True):
        if gap.is_end and log.may_lag:
            sums["lag"] += missing.count
        elif missing.count <= gap.excused:
            sums["dropped"] += missing.count
        else:
            missing.note(gap.path, findings, "none in any file", INDEX)
    for path in _paths(directory):
        if path.name.isdecimal() and path.is_dir():
            findings.note(Kind.FILE, FoundAt(path), *INDEX_DIRECTORY)
    return sums


def _gaps(directory: Path, files: Sequence[ReadFile], entries: int) -> Iterator[UncoveredKeys]:
    """The stretches of the log's keys between files, before the first and behind the last."""
    covering = sorted((each for each in files if each.stretch.ranks[0] >= 0), key=lambda each: each.stretch.ranks)
    covered = 0
    for before, each in pairwise([None, *covering, None]):
        stop, path = (entries, str(directory)) if each is None else (each.stretch.ranks[0], each.path)
        if stop > covered:
            beside = [file for file in (before, each) if file is not None]
            tags, is_end = all(file.stretch.has_tags for file in beside), each is None and before is not None
            yield UncoveredKeys(covered, stop, tags, path, is_end, _excused(beside))
        covered = covered if each is None else max(covered, each.stretch.ranks[1] + 1)


def _excused(beside: Sequence[ReadFile]) -> int:
    """Return how many keys a compaction may have left out between files that lack others, too: no more than it kept."""
    if not any(each.stretch.leaves_out for each in beside):
        return 0
    return min(each.numbers.get("matched", 0) for each in beside)


def _report_overlaps(files: Sequence[ReadFile], sums: Counter[str], findings: Findings) -> None:
    """Report entries that are in two files.

    Only those of one record may be: a broker that recovers puts the entries of the last record once more.
    """
    for before, each in pairwise(each for each in files if each.stretch.ranks[0] >= 0):
        count = before.stretch.ranks[1] - each.stretch.ranks[0] + 1
        last, offset = before.stretch.offsets[1], each.stretch.offsets[0]
        if count <= 0 or not (before.stretch.ordered and each.stretch.ordered):
            continue
        if offset == last:
            sums["repeats"] += count
        else:
            expected = f"entries of records behind physical offset {last}"
            found = f"{count} that {Path(before.path).name} has, too"
            at = FoundAt(each.path, physical_offset=offset)
            findings.note(Kind.REPEATED_ENTRY, at, expected, found, count)
