"""Header, slots, pointers and times of an index file: what follows from its entries and from the records they name."""

from functools import reduce
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from spark_jobs.verify.findings import ENTRY, FILE, HEADER, SLOT, Discrepancies, FoundAt
from spark_jobs.verify.log_table import LogTable
from spark_jobs.verify.match_entries import Matched
from spark_jobs.verify.pair_entries import Leftover
from storage.index.index_copy import IndexCopy, IndexCounts
from storage.kernels.indexes import (
    BAD_SLOT,
    ENTRY_BYTES,
    INDEX_HEADER,
    SLOT_BYTES,
    PointerCheck,
    check_pointers,
    seconds_between,
)
from storage.kernels.matching import NO_TIME, earlier_begin

PHASE: Final = "check"
HEADER_PLACES: Final = {
    "begin_timestamp": 0,
    "end_timestamp": 8,
    "begin_physical_offset": 16,
    "end_physical_offset": 24,
    "slot_count": 32,
    "index_count": 36,
}
FIELD_PLACES: Final = {"": 0, "key_hash": 0, "physical_offset": 4, "time_difference": 12, "previous": 16}


def entry_position(counts: IndexCounts, number: int, field: str) -> int:
    """The byte of a file at which an entry's field lies."""
    return INDEX_HEADER + SLOT_BYTES * counts.slots + ENTRY_BYTES * number + FIELD_PLACES[field]


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


class ShapeCheck:
    """One file whose entries have been held against the log."""

    def __init__(
        self,
        task: CheckIndexTask,
        copy: IndexCopy,
        counts: IndexCounts,
        log: LogTable,
        matched: Matched,
        left: Leftover,
        findings: Discrepancies,
    ) -> None:
        """Nothing is checked yet."""
        self._task, self._copy, self._counts, self._log = task, copy, counts, log
        self._matched, self._left, self._findings = matched, left, findings
        self._entries = copy.entries(counts.slots, counts.entries)
        self._paired = dict(left.pairs)
        self._used = 0

    def run(self, begin: int) -> None:
        """Check everything but which records the entries name; `begin` is the time that theirs were held against."""
        self.times(begin)
        self.pointers()
        self.header()
        self.unused()

    # --- times --------------------------------------------------------------------------------------------------------

    def times(self, begin: int) -> None:
        """Time differences of all entries whose records are there."""
        unseen, matched = self._left.unseen, self._matched
        if matched.lates > 2 and 2 * matched.lates > matched.matches:
            self._say_header("begin_timestamp", "a time from which those of the entries count", begin)
            return
        late = matched.matching.late
        for each in late:
            self._say_late(each.number, each.expected)
        self._findings.more(ENTRY, matched.lates - len(late))
        for number, place in self._left.pairs:
            expected = seconds_between(begin, int(unseen.timestamps[place]))
            if number > 1 and self._entries["time_difference"][number] != expected:
                self._say_late(number, expected)
        self._first_difference(begin)

    def _say_late(self, number: int, expected: int) -> None:
        found = int(self._entries["time_difference"][number])
        self._say_entry(number, "time_difference", self._offset_of(number), expected, found)

    def _first_difference(self, begin: int) -> None:
        """The first entry: a broker counts from the end of the file before (store-format §3.5)."""
        timestamp = self._time_of(1, self._matched.matching.first_time)
        if not self._counts.entries or timestamp == NO_TIME:
            return
        found = int(self._entries["time_difference"][1])
        allowed = {seconds_between(begin, timestamp)}
        before = np.flatnonzero(self._left.unseen.ranks < self._left.first_rank)
        if self._task.previous is not None:
            allowed.add(seconds_between(self._task.previous[0], timestamp))
        elif (before.size or self._log.minimum) and found >= 0:
            return  # the file before is gone, and nobody knows when it ended
        if before.size:
            allowed.add(seconds_between(int(self._left.unseen.timestamps[before[-1]]), timestamp))
        if found not in allowed:
            self._say_late(1, min(allowed))

    def _offset_of(self, number: int) -> int:
        """Physical offset that an entry should have."""
        place = self._paired.get(number)
        if place is None:
            return int(self._entries["physical_offset"][number])
        return int(self._left.unseen.physical_offsets[place])

    def _time_of(self, number: int, said: int) -> int:
        """Store time of an entry's record: what its match says, or the entry that it is paired with."""
        pair = self._paired.get(number)
        return said if pair is None else int(self._left.unseen.timestamps[pair])

    # --- slots and pointers -------------------------------------------------------------------------------------------

    def pointers(self) -> None:
        """Slots and pointers, from the hashes that the entries should have."""
        numbers = np.array(sorted(self._paired), np.int64)
        hashes = self._left.unseen.hashes[[self._paired[number] for number in numbers.tolist()]].astype(np.int32)
        check = self._recompute(numbers, hashes)
        if check.wrong and numbers.size:
            # Maybe the index is right, and it is a record that says another key than it was stored with.
            said = self._recompute(numbers[:0], hashes[:0])
            check = said if said.wrong < check.wrong else check
        self._used = check.used
        for each in check.noted:
            number = each.number
            if each.kind == BAD_SLOT:
                position = INDEX_HEADER + SLOT_BYTES * number
                self._findings.add(
                    SLOT, FoundAt(self._task.path, f"slot {number}", position), each.expected, each.found
                )
            else:
                offset = int(self._entries["physical_offset"][number])
                self._say_entry(number, "previous", offset, each.expected, each.found)
        self._findings.more(SLOT, check.wrong - len(check.noted))

    def _recompute(self, numbers: npt.NDArray[np.int64], hashes: npt.NDArray[np.int32]) -> PointerCheck:
        """Which slots and pointers are wrong if some entries have these hashes."""
        copy, counts = self._copy, self._counts
        written = counts.capacity if self._task.grows else counts.entries
        return check_pointers(copy.region, counts.slots, counts.entries, written, numbers, hashes, self._task.limit)

    # --- header -------------------------------------------------------------------------------------------------------

    def header(self) -> None:
        """Every field of the header; of a file that grows only where it begins."""
        counts, header = self._counts, self._copy.header
        expected: dict[str, set[int]] = self._ends() if counts.entries else self._seeds()
        if not self._task.grows:
            expected["slot_count"] = {self._used}
            expected["index_count"] = {counts.entries + 1} if counts.entries else {0, 1}
        for field, values in expected.items():
            found = getattr(header, field)
            if found not in values and NO_TIME not in values:
                self._say_header(field, " or ".join(map(str, sorted(values))), found)

    def _ends(self) -> dict[str, set[int]]:
        """Begin and end as the entries have them; −1 stands for what cannot be known."""
        begins, ends = self._places()
        matching = self._matched.matching
        expected = {"begin_physical_offset": {begins}}
        if self._left.ordered:
            expected["begin_timestamp"] = {self._time_of(1, matching.first_time)}
            newest = self._time_of(self._counts.entries, matching.last_time)
            last = {"end_timestamp": {newest}, "end_physical_offset": {ends}}
        else:
            known = not (self._left.expired or self._left.lost or self._left.strays.size)
            times = [int(self._left.unseen.timestamps[place]) for _, place in self._left.pairs]
            times += [matching.smallest_time, matching.largest_time]
            expected["begin_timestamp"] = {reduce(earlier_begin, times) if known else NO_TIME}
            # A compaction leaves the end where the broker's skip rule needs it, be the last records dropped or not.
            said = self._copy.header.end_physical_offset
            last = {
                "end_timestamp": {max(times) if known else NO_TIME},
                "end_physical_offset": {max(ends, said) if said < self._log.end else ends},
            }
        return expected if self._task.grows else {**expected, **last}

    def _places(self) -> tuple[int, int]:
        """Physical offsets of the first and the last entry, or the smallest and the largest; −1: not known."""
        if self._left.ordered:
            return self._offset_of(1), self._offset_of(self._counts.entries)
        offsets = self._entries["physical_offset"].astype(np.int64)
        for number, place in self._left.pairs:
            offsets[number] = self._left.unseen.physical_offsets[place]
        good = np.ones(len(offsets), np.bool_)
        good[0] = False
        good[self._left.strays] = False
        return int(offsets[good].min(initial=np.iinfo(np.int64).max)), int(offsets[good].max(initial=NO_TIME))

    def _seeds(self) -> dict[str, set[int]]:
        """What a file without entries has from the one before; nothing where a broker lost that in a crash."""
        header, previous = self._copy.header, self._task.previous
        if previous is None:
            return {
                "begin_timestamp": {0, header.end_timestamp},
                "begin_physical_offset": {0, header.end_physical_offset},
            }
        times, places = {0, previous[0]}, {0, previous[1]}
        fields = ("begin_timestamp", "end_timestamp", "begin_physical_offset", "end_physical_offset")
        return dict(zip(fields, (times, times, places, places), strict=True))

    # --- the rest -----------------------------------------------------------------------------------------------------

    def unused(self) -> None:
        """Bytes that nobody has written: entry 0, and what lies behind the last entry."""
        slots, entries = self._counts.slots, self._counts.entries
        room = self._copy.size - INDEX_HEADER - SLOT_BYTES * slots
        if room % ENTRY_BYTES:
            expected = f"{INDEX_HEADER} bytes, {slots} slots and a number of whole entries"
            self._findings.add(FILE, FoundAt(self._task.path), expected, f"{self._copy.size} bytes")
        first, behind = entry_position(self._counts, 0, ""), entry_position(self._counts, entries + 1, "")
        position = self._copy.first_data(first, first + ENTRY_BYTES)
        if position >= 0 and not self._is_marked():
            expected = "zeros, or the mark of a compacted file"
            self._findings.add(ENTRY, FoundAt(self._task.path, "entry 0", position), expected, "other bytes")
        position = self._copy.first_data(behind, self._copy.size)
        if position >= 0 and not self._task.grows:
            found = "other bytes"
            self._findings.add(ENTRY, FoundAt(self._task.path, "behind the last entry", position), "zeros", found)

    def _is_marked(self) -> bool:
        """Whether entry 0 is the mark of this file; its checksum may be wrong where an entry is that it is for."""
        slots, entries = self._counts.slots, self._counts.entries
        mark = self._copy.mark(slots)
        if mark is None or mark.entries > entries:
            return False
        return self._findings.counts[ENTRY] > 0 or self._copy.is_marked_truly(slots)

    def _say_header(self, field: str, expected: object, found: object) -> None:
        """A field's record is that of the first or the last entry, as long as those are the oldest and the newest."""
        offset = -1
        if self._left.ordered and self._counts.entries:
            if field.startswith("begin"):
                offset = self._offset_of(1)
            elif field.startswith("end"):
                offset = self._offset_of(self._counts.entries)
        self._findings.add(
            HEADER, FoundAt(self._task.path, f"header {field}", HEADER_PLACES[field], offset), expected, found
        )

    def _say_entry(self, number: int, field: str, offset: int, expected: object, found: object) -> None:
        position = entry_position(self._counts, number, field)
        self._findings.add(
            ENTRY, FoundAt(self._task.path, f"entry {number} {field}", position, offset), expected, found
        )
