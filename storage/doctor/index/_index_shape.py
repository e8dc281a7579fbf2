"""Compare header, slots, pointers and times of an index file with what follows from its entries and their records."""

from collections.abc import Collection

import numpy as np

from storage.doctor.finding import Findings, FoundAt, Kind
from storage.doctor.index._left_over_entries import LeftOver
from storage.doctor.index._match_entries import NO_TIME
from storage.doctor.log.scanned_log import Numbers
from storage.doctor.words import HEADER_PLACES, field_position, header_field
from storage.index.index_copy import IndexCopy, IndexCounts
from storage.index.index_file import ENTRY_DTYPE
from storage.kernels.indexes import (
    BAD_SLOT,
    ENTRY_BYTES,
    INDEX_HEADER,
    SLOT_BYTES,
    PointerCheck,
    check_pointers,
    seconds_between,
)


class CheckedFile:
    """One file that is not as a rebuild makes it: its bytes, its counts, and its entries beside the keys of the log."""

    def __init__(
        self,
        copy: IndexCopy,
        counts: IndexCounts,
        left: LeftOver,
        findings: Findings,
        previous: tuple[int, int] | None,
    ) -> None:
        """Nothing is checked yet; `previous`: end timestamp (ms) and end physical offset of the file before, if any."""
        self._copy, self._counts, self._left, self._findings = copy, counts, left, findings
        self._matched, self._previous, self._limit = left.matched, previous, findings.limit
        self._used = 0

    def check(self, begin: int) -> None:
        """Check everything; the time differences of the entries count from `begin` (ms)."""
        self._list_entries()
        self._check_times(begin)
        self._check_pointers()
        self._check_header()
        self._check_unused()

    # --- entries ------------------------------------------------------------------------------------------------------

    def _report_entry(
        self, number: int, field: str, expected: object, found: object = None, kind: Kind = Kind.ENTRY
    ) -> None:
        """Note that a field of an entry is wrong, or with no field all of it."""
        found = int(self._left.entries[field][number]) if found is None else found
        place, at = f"entry {number} {field}".strip(), self._entry_position(number, field)
        self._report(kind, place, at, expected, found, self._left.offset_of(number))

    def _some(self, kind: Kind, numbers: Numbers) -> list[int]:
        """Return the numbers of wrong entries that are listed; the others are counted."""
        self._findings.more(kind, max(len(numbers) - self._limit, 0))
        listed: list[int] = numbers[: self._limit].tolist()
        return listed

    def _list_entries(self) -> None:
        """List the entries that should be others, and those that should not be there."""
        left = self._left
        for number, place in sorted(left.paired.items()):
            for field in ("key_hash", "physical_offset"):
                if left.entries[field][number] != left.unseen[field][place]:
                    self._report_entry(number, field, int(left.unseen[field][place]))
        strays = left.strays
        if strays.size and not left.numbers["matched"]:
            found = f"{strays.size} of {self._counts.entries} entries, and none that does"
            self._findings.note(
                Kind.FILE, FoundAt(self._copy.path), "no entry that belongs to no record of this log", found
            )
            self._findings.more(Kind.ENTRY, int(strays.size) - 1)
            strays = strays[:0]
        for number in self._some(Kind.ENTRY, strays):
            entry = left.entries[number]
            found = f"physical offset {entry['physical_offset']} with hash {entry['key_hash']}"
            self._report_entry(number, "", "a key of a record that is there", found)
        for number in self._some(Kind.REPEATED_ENTRY, left.repeated):
            found = f"hash {left.entries['key_hash'][number]} once more"
            self._report_entry(number, "", "each key of a record once", found, Kind.REPEATED_ENTRY)

    def _check_times(self, begin: int) -> None:
        """Check the time differences of all entries whose records are there."""
        times, wrong = self._matched.timestamps, self._matched.wrong_times(begin)
        if wrong.size > 2 and 2 * wrong.size > self._matched.matches + len(self._left.paired):
            self._report_header("begin_timestamp", "a time from which those of the entries count", begin)
            return
        for number in self._some(Kind.ENTRY, wrong):
            self._report_entry(number, "time_difference", seconds_between(begin, int(times[number])))
        self._check_first_time(begin)

    def _check_first_time(self, begin: int) -> None:
        """Check the first entry's time, which a broker counts from the end of the file before (store-format §3.5)."""
        left = self._left
        timestamp = int(self._matched.timestamps[1]) if self._counts.entries else NO_TIME
        if timestamp == NO_TIME:
            return
        found = int(left.entries["time_difference"][1])
        before = left.unseen["timestamp"][left.unseen["rank"] < self._matched.rank_span()[0]][-1:].tolist()
        if self._previous is not None:
            before.append(self._previous[0])
        elif (before or self._left.log.minimum) and found >= 0:
            return  # the file before is gone, and with it the time at which it ended
        allowed = {seconds_between(start, timestamp) for start in (begin, *before)}
        if found not in allowed:
            self._report_entry(1, "time_difference", min(allowed))

    # --- slots and pointers -------------------------------------------------------------------------------------------

    def _check_pointers(self) -> None:
        """Check slots and pointers: they follow from the hashes that the entries should have."""
        check = self._recompute(sorted(self._left.paired))
        if check.wrong and self._left.paired:
            # The index may be right, and the key of a record may have changed after it was indexed.
            check = min(check, self._recompute(()), key=lambda each: each.wrong)
        self._used = check.used
        for each in check.noted:
            if each.kind == BAD_SLOT:
                position = INDEX_HEADER + SLOT_BYTES * each.number
                self._report(Kind.SLOT, f"slot {each.number}", position, each.expected, each.found)
            else:
                self._report_entry(each.number, "previous", each.expected, each.found)
        self._findings.more(Kind.SLOT, check.wrong - len(check.noted))

    def _recompute(self, wrong: Collection[int]) -> PointerCheck:
        """Find the wrong slots and pointers, taking the hashes of some entries for wrong, too."""
        counts, left = self._counts, self._left
        places = [left.paired[number] for number in wrong]
        hashes = np.ascontiguousarray(left.unseen["key_hash"][places], np.int32)
        written = counts.capacity if self._left.grows else counts.entries
        numbers = np.array(wrong, np.int64)
        return check_pointers(self._copy.region, counts.slots, counts.entries, written, numbers, hashes, self._limit)

    # --- header -------------------------------------------------------------------------------------------------------

    def _check_header(self) -> None:
        """Check every field of the header, of a file that grows only its begin; NO_TIME stands for an unknown value."""
        expected = self._ends() if self._counts.entries else self._seeds()
        if not self._left.grows:
            expected["slot_count"] = {self._used}
            expected["index_count"] = {self._counts.entries + 1} if self._counts.entries else {0, 1}
        elif self._counts.entries:
            del expected["end_timestamp"], expected["end_physical_offset"]
        for field, values in expected.items():
            found = getattr(self._copy.header, field)
            if found not in values and NO_TIME not in values:
                self._report_header(field, " or ".join(map(str, sorted(values))), found)

    def _ends(self) -> dict[str, set[int]]:
        """The values of begin and end that follow from the entries."""
        left, last = self._left, self._counts.entries
        if left.ordered:
            begin, end = self._matched.timestamps[[1, last]].tolist()
            first, last = left.offset_of(1), left.offset_of(last)
        else:
            known = not (left.numbers["expired"] or left.numbers["lost"] or left.strays.size)
            begin, end = self._matched.time_span() if known else (NO_TIME, NO_TIME)
            first, last = self._span()
            # A compaction leaves the end where the broker's skip rule needs it, be the last records dropped or not.
            said = self._copy.header.end_physical_offset
            last = max(last, said) if said < self._left.log.end else last
        return {
            "begin_timestamp": {begin},
            "end_timestamp": {end},
            "begin_physical_offset": {first},
            "end_physical_offset": {last},
        }

    def _span(self) -> tuple[int, int]:
        """The smallest and the largest physical offset that entries should have."""
        left = self._left
        offsets = left.entries["physical_offset"].astype(np.int64)
        for number in left.paired:
            offsets[number] = left.offset_of(number)
        offsets = np.delete(offsets, [0, *left.strays.tolist()])
        return (int(offsets.min()), int(offsets.max())) if offsets.size else (NO_TIME, NO_TIME)

    def _seeds(self) -> dict[str, set[int]]:
        """The values that a file without entries takes from the file before, or 0 if a broker lost them in a crash."""
        header = self._copy.header
        time, place = self._previous or (header.end_timestamp, header.end_physical_offset)
        fields = {"begin_timestamp": time, "end_timestamp": time, "begin_physical_offset": place}
        fields["end_physical_offset"] = place
        return {field: {0, seed} for field, seed in fields.items()}

    # --- the rest -----------------------------------------------------------------------------------------------------

    def _check_unused(self) -> None:
        """Check the bytes that a broker never writes: entry 0, and all behind the last entry."""
        copy, slots, entries = self._copy, self._counts.slots, self._counts.entries
        if (copy.size - INDEX_HEADER - SLOT_BYTES * slots) % ENTRY_BYTES:
            expected = f"{INDEX_HEADER} bytes, {slots} slots and a number of whole entries"
            self._findings.note(Kind.FILE, FoundAt(copy.path), expected, f"{copy.size} bytes")
        position = copy.first_data(self._entry_position(0), self._entry_position(1))
        if position >= 0 and not self._is_marked():
            self._report(Kind.ENTRY, "entry 0", position, "zeros, or the mark of a compacted file", "other bytes")
        position = copy.first_data(self._entry_position(entries + 1), copy.size)
        if position >= 0 and not self._left.grows:
            self._report(Kind.ENTRY, "behind the last entry", position, "zeros", "other bytes")

    def _is_marked(self) -> bool:
        """Whether entry 0 is the mark of this file; its checksum may be wrong where an entry is that it is for."""
        mark = self._copy.mark(self._counts.slots)
        if mark is None or mark.entries > self._counts.entries:
            return False
        return self._findings.counts[Kind.ENTRY] > 0 or self._copy.is_marked_truly(self._counts.slots)

    def _entry_position(self, number: int, field: str = "") -> int:
        start = INDEX_HEADER + SLOT_BYTES * self._counts.slots + ENTRY_BYTES * number
        return start + field_position(ENTRY_DTYPE, field)

    def _report_header(self, field: str, expected: object, found: object) -> None:
        """Report a field with the record that it comes from: that of the first or the last entry, if entries ascend."""
        number = {"begin": 1, "end": self._counts.entries}.get(field.partition("_")[0], 0)
        has_record = 0 < number <= self._counts.entries and self._left.ordered
        offset = self._left.offset_of(number) if has_record else -1
        self._report(Kind.HEADER, header_field(field), HEADER_PLACES[field], expected, found, offset)

    def _report(self, kind: Kind, place: str, position: int, expected: object, found: object, offset: int = -1) -> None:
        self._findings.note(kind, FoundAt(self._copy.path, place, position, offset), expected, found)
