"""One index file beside the log: as a rebuild makes it, or what of it is not; and keys of the log that no file has."""

from collections import Counter
from pathlib import Path

import msgspec
import numpy as np

from protocol.errors import StoreError
from storage.amounts import counted
from storage.doctor.finding import Findings, FoundAt, Kind
from storage.doctor.index.index_image import NO_STRETCH, IndexStretch, rebuilt_stretch
from storage.doctor.index.index_shape import CheckedFile
from storage.doctor.index.left_over_entries import LeftOver
from storage.doctor.index.match_entries import NO_TIME, MatchedFile
from storage.doctor.log.scanned_log import ScannedLog
from storage.index.index_copy import IndexCopy, count_entries, count_slots


class MissingKeys(msgspec.Struct, frozen=True):
    """How many keys have no entry, and the physical offsets of the first and the last record concerned."""

    count: int
    first: int
    last: int

    def note(self, path: Path | str, findings: Findings, found: str) -> None:
        """Note the finding."""
        expected = f"entries for {counted(self.count, 'key')} of the records at {self.first} to {self.last}"
        findings.note(Kind.MISSING_ENTRY, FoundAt(path, physical_offset=self.first), expected, found, self.count)


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


def count_missing(log: ScannedLog, first: int, stop: int, *, tags: bool) -> MissingKeys:
    """Count the keys of the ranks [first, stop), with those of tags or without, as missing.

    Those of segments that the broker has deleted meanwhile are not, and neither are repeated ones.
    """
    count, lowest, last, expired = 0, -1, -1, log.expired_below()
    for keys in log.keys_between(first, stop):
        counts = (keys["physical_offset"] >= expired) & (~keys["is_tag"] | tags) & ~keys["is_repeat"]
        offsets = keys["physical_offset"][counts]
        if offsets.size:
            lowest = int(offsets[0]) if lowest < 0 else lowest
            count, last = count + offsets.size, int(offsets[-1])
    return MissingKeys(count, lowest, last)
