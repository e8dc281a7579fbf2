"""Decide what entries and keys are that matching has left over (:mod:`.match_entries`): one of five things.

1. An entry without a key that is no damage (`excused`): its record has expired, or lies where the log is lost, or is
   newer than the scan; or a broker that recovered put the entries of the last record once more.
2. An entry that should be another one (`paired`): one entry belongs to no key, and one key has no entry. In a file
   that a broker wrote both stand at the same place of the sequence, and a finding says which bytes are wrong, not that
   one is too many and another missing. In a file in another order, what of the entry is intact shows the key.
3. An entry whose key has another one (`repeated`), and one that belongs to no key (`strays`).
4. A key without an entry that a broker or a compaction left out: of a tag, which brokers before 5.4 do not put, or
   dropped.
5. A key that lacks its entry (`missing`).
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from storage.doctor.index._index_image import IndexStretch
from storage.doctor.index._match_entries import REPEATED, MatchedFile
from storage.doctor.log.scanned_log import Flags, Numbers, ScannedLog

MOST_PAIRED: Final = 100_000
"""Leftover entries of a file that are paired; with more it is not damage in places any more."""


class UnmatchedRun(NamedTuple):
    """Entries and keys that are left over between two neighbours that are matched: numbers and places in `unseen`.

    `is_bounded`: there are such neighbours to both sides, not only an end of the file.
    """

    entries: Numbers
    keys: Numbers
    is_bounded: bool


class LeftOver:
    """The unmatched entries of an index file. `paired`: numbers of entries, with places of the right ones.

    `strays` and `repeated` are numbers of entries, `missing` are keys. `numbers` counts what is matched, and what is
    left over and no damage: `expired`, `lost`, `newer`, `repeats` and keys that a compaction `dropped`; `leaves_out`:
    not only repeated ones. The ranks and times of `matched` are then those of the keys that paired entries should be
    for, too.
    """

    def __init__(self, matched: MatchedFile, log: ScannedLog, *, grows: bool) -> None:
        """Check what is left over; `grows`: a broker writes to the file."""
        self.matched, self.entries, self.unseen = matched, matched.entries, matched.unseen
        self.log, self.grows, self.ordered = log, grows, matched.is_ordered
        self.numbers = Counter[str](matched=matched.matches)
        self.paired: dict[int, int] = {}
        self._is_free = np.ones(len(self.unseen), np.bool_)
        is_optional = self._are_optional()

        wrong = self._without_excused(np.flatnonzero(matched.ranks[1:] < 0) + 1)
        if matched.matches and 0 < wrong.size <= MOST_PAIRED:
            wrong = self._without_paired(wrong, is_optional)
        is_repeat = matched.ranks[wrong] == REPEATED
        self.strays, self.repeated = wrong[~is_repeat], wrong[is_repeat]
        self._take_over_paired()

        first, last = matched.rank_span()
        lacking = self._is_free & ~is_optional & (self.unseen["rank"] > first) & (self.unseen["rank"] < last)
        left_out = lacking & ~self.unseen["is_repeat"]
        self.missing = self.unseen[left_out & self.ordered]
        self.leaves_out = not self.ordered and bool(left_out.any())
        self.numbers["dropped"] = int(lacking.sum()) - len(self.missing)

    def offset_of(self, number: int) -> int:
        """Physical offset that an entry should have."""
        place = self.paired.get(number)
        return int(self.entries["physical_offset"][number] if place is None else self.unseen["physical_offset"][place])

    def stretch(self) -> IndexStretch:
        """The keys that the file has, or should have."""
        ranks = self.matched.rank_span()
        offsets = [self.offset_of(int((self.matched.ranks == rank).argmax())) if rank >= 0 else -1 for rank in ranks]
        return IndexStretch(list(ranks), offsets, bool(self.matched.tags), self.ordered, self.leaves_out)

    # --- entries that are no damage -----------------------------------------------------------------------------------

    def _without_excused(self, numbers: Numbers) -> Numbers:
        """Count what is no damage; the other numbers."""
        offsets = self.entries["physical_offset"][numbers].astype(np.int64)
        ranks, log = self.matched.ranks, self.log
        first = int((ranks >= 0).argmax()) if self.matched.matches else len(ranks)
        excused = {
            # Entries below the log's minimum were put before all others; in a compacted file they are anywhere.
            "expired": (offsets >= 0) & (offsets < log.minimum) & ((numbers < first) | (not self.ordered)),
            "lost": log.are_lost(offsets),
            "newer": (offsets >= log.end) & self.grows,
            "repeats": (ranks[numbers] == REPEATED) & self._are_of_last_record(numbers, offsets),
        }
        self.numbers.update({name: int(flags.sum()) for name, flags in excused.items()})
        others: Numbers = numbers[~np.logical_or.reduce(list(excused.values()))]
        return others

    def _are_of_last_record(self, numbers: Numbers, offsets: Numbers) -> Flags:
        """Which repeated entries a broker puts that recovers: those of the last record once more, all of them."""
        if self.ordered:
            again = self.entries["physical_offset"][numbers - 1].astype(np.int64) == offsets
        else:
            again = offsets == self.entries["physical_offset"][1:].astype(np.int64).max(initial=-1)
        whole: Flags = again & ~np.isin(offsets, self.unseen["physical_offset"])
        return whole

    # --- keys that need no entry --------------------------------------------------------------------------------------

    def _are_optional(self) -> Flags:
        """Which unseen keys are those of tags that a broker before 5.4 did not put, as far as this file shows."""
        ranks, are_tags = self.unseen["rank"], self.unseen["is_tag"]
        if not self.matched.tags:
            return are_tags
        (lowest, highest), (first, last) = self.matched.rank_span(), self.matched.tags
        optional: Flags = np.zeros(len(ranks), np.bool_)
        # Only where tags of this very file are left out before its first or behind its last one, so they are around it.
        for outside, inside in ((ranks < first, ranks > lowest), (ranks > last, ranks < highest)):
            if (are_tags & outside & inside).any():
                optional |= are_tags & outside
        return optional

    # --- entries that should be others --------------------------------------------------------------------------------

    def _without_paired(self, wrong: Numbers, is_optional: Flags) -> Numbers:
        """Find the key that each wrong entry should be for; what remains. Keys that need no entry come second."""
        for may_be in (~is_optional, np.ones_like(is_optional)):
            remaining = [wrong[:0]]
            for run in self._unmatched_runs(wrong, self._is_free & may_be):
                run = self._grouped(run)
                # At the ends of a file entries of tags may be left out or not, so that places alone say little.
                is_sure = run.is_bounded or bool(may_be.all())
                if self.ordered and run.entries.size == run.keys.size and is_sure:
                    self._pair(run.entries, run.keys)
                else:
                    remaining.append(run.entries)
            wrong = np.concatenate(remaining)
        return wrong

    def _unmatched_runs(self, wrong: Numbers, candidates: Flags) -> Iterator[UnmatchedRun]:
        """Yield what is left over between matched entries, where entries are wrong; a file in no order is one run."""
        unseen, ranks = self.unseen["rank"], self.matched.ranks
        if not self.ordered:
            first, last = self.matched.rank_span()
            yield UnmatchedRun(wrong, np.flatnonzero(candidates & (unseen > first) & (unseen < last)), False)
            return
        good = np.flatnonzero(ranks >= 0)
        behind = np.searchsorted(good, wrong)  # for each wrong entry, which of the good ones is the next
        for entries in np.split(wrong, np.flatnonzero(np.diff(behind)) + 1) if wrong.size else ():
            following = int(np.searchsorted(good, entries[0]))
            start = int(np.searchsorted(unseen, ranks[good[following - 1]])) if following else 0
            stop = int(np.searchsorted(unseen, ranks[good[following]])) if following < len(good) else len(unseen)
            keys = start + np.flatnonzero(candidates[start:stop])
            if not following:
                keys = keys[-entries.size :]
            elif following == len(good):
                keys = keys[: entries.size]
            yield UnmatchedRun(entries, keys, 0 < following < len(good))

    def _grouped(self, run: UnmatchedRun) -> UnmatchedRun:
        """Pair entries with keys that have their physical offset, or their hash; what remains of both."""
        entries, keys, is_bounded = run
        for field in ("physical_offset", "key_hash"):
            column = self.unseen[field]
            said = self.entries[field][entries].astype(column.dtype)
            waiting: dict[int, list[int]] = defaultdict(list)
            for key in reversed(keys[np.isin(column[keys], said)].tolist()):
                waiting[int(column[key])].append(key)
            pairs = {
                entry: waiting[value].pop()
                for entry, value in zip(entries.tolist(), said.tolist(), strict=True)
                if waiting.get(value)
            }
            self._pair(np.fromiter(pairs, np.int64), np.fromiter(pairs.values(), np.int64))
            entries, keys = entries[~np.isin(entries, list(pairs))], keys[self._is_free[keys]]
        return UnmatchedRun(entries, keys, is_bounded)

    def _pair(self, entries: Numbers, keys: Numbers) -> None:
        self.paired.update(zip(entries.tolist(), keys.tolist(), strict=True))
        self._is_free[keys] = False

    def _take_over_paired(self) -> None:
        """Give the entries that should be others the ranks and times of their keys."""
        entries, keys = np.fromiter(self.paired, np.int64), np.fromiter(self.paired.values(), np.int64)
        self.matched.ranks[entries] = self.unseen["rank"][keys]
        self.matched.timestamps[entries] = self.unseen["timestamp"][keys]
