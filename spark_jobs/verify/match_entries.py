"""The entries of one index file beside the keys that its log leads to: which belong together, and what is left over.

Both sides ascend by physical offset, as a broker writes them; a file in another order (a compacted one) is sorted. So
one pass over the blocks that a rebuild would build the file from finds for each entry its key, by *rank*: its number
among all keys of the log. A block lies in memory at a time, of the file all.

Where an entry is damaged, one entry belongs to no key, and one key has no entry. In a file that a broker wrote both
stand at the same place of the sequence, so they are paired by it, and a finding says which bytes are wrong, not that
one is too many and another missing. In a file in another order they are paired by what of the entry is intact, hash or
physical offset.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from spark_jobs.verify.log_table import KEY_DTYPE, Flags, Keys, LogTable, Numbers
from storage.index.index_copy import IndexCopy, IndexCounts
from storage.kernels.indexes import measure_entries
from storage.kernels.matching import REPEATED, Matching

MOST_UNSEEN: Final = 1 << 21
"""Keys without an entry that are kept of one file; more are counted."""

MOST_PAIRED: Final = 100_000
"""Leftover entries of a file that are paired; with more it is not damage in places any more."""


class MatchedFile:
    """One file's entries held against the log, time differences against a begin timestamp (ms).

    `ranks[number]`: the rank of an entry's key, or a code of :mod:`storage.kernels.matching`; `lowest` and `highest` of
    all, −1 without any. `unseen`: keys without an entry in the blocks around, `more_unseen` how many beyond what is
    kept. `tags`: the lowest and the highest rank of the keys of tags that have entries.
    """

    def __init__(self, copy: IndexCopy, counts: IndexCounts, log: LogTable, begin: int, most_late: int) -> None:
        """Read the blocks in which the file has an entry, those between, and one to each side.

        What a damaged entry at either end should be lies there.
        """
        self.entries = copy.entries(counts.slots, counts.entries)
        self.ranks = np.full(counts.entries + 1, -1, np.int64)
        order = _entry_order(copy, counts)
        self.matching = Matching(copy.region, counts.slots, counts.entries, order, begin, self.ranks, most_late)
        self.tags: list[int] = []
        self.more_unseen = self._kept = 0
        unseen: dict[int, Keys] = {}
        for number, block in enumerate(log.blocks):
            offset = self.matching.next_offset(block.first)
            if offset is None:
                break
            if block.entries and offset < block.end:
                self._match_block(log, number, unseen)
        for number in range(max(min(unseen, default=0) - 1, 0), min(max(unseen, default=-2) + 2, len(log.blocks))):
            if number not in unseen:
                unseen[number] = self._keep(log.keys(number).all())
        self.unseen = np.concatenate([np.zeros(0, KEY_DTYPE), *(unseen[number] for number in sorted(unseen))])
        if order.size:
            self.is_ordered = bool((np.diff(self.ranks[self.ranks >= 0]) > 0).all())
        else:
            self.is_ordered = not self.matching.descents
        self.lowest, self.highest = self.matching.lowest, self.matching.highest

    def _match_block(self, log: LogTable, number: int, unseen: dict[int, Keys]) -> None:
        keys, before = log.keys(number), self.matching.matches
        seen = np.zeros(keys.hashes.size, np.uint8)
        self.matching.match(keys.first, keys.offsets, keys.timestamps, keys.counts, keys.hashes, keys.rank, seen)
        if self.matching.matches > before:
            unseen[number] = self._keep(keys.take(np.flatnonzero(seen == 0)))
            tags = keys.tag_places()
            tags = keys.rank + tags[seen[tags] != 0]
            if tags.size:
                self.tags = [*(self.tags or [int(tags[0])])[:1], int(tags[-1])]

    def _keep(self, keys: Keys) -> Keys:
        room = max(MOST_UNSEEN - self._kept, 0)
        self.more_unseen += max(len(keys) - room, 0)
        self._kept += min(len(keys), room)
        return keys[:room]


def _entry_order(copy: IndexCopy, counts: IndexCounts) -> npt.NDArray[np.int32]:
    """Numbers of the entries by physical offset; empty where they lie in that order."""
    if measure_entries(copy.region, counts.slots, 0, counts.entries, 0).ascending:
        return np.zeros(0, np.int32)
    offsets = copy.entries(counts.slots, counts.entries)["physical_offset"][1:].astype(np.int64)
    return (np.argsort(offsets, kind="stable") + 1).astype(np.int32)


class Alignment:
    """What the entries of a file are that have no key, and which keys have no entry though the file spans them.

    `paired`: numbers of entries that should be others, with places in `unseen` of what they should be; `strays`:
    numbers of entries that should not be; `repeated`: of those that are there already; `missing`: keys that should have
    an entry. `numbers` counts what is no damage: `expired` entries (their records are gone), those into `lost` ranges
    of the log, `newer` ones than the scan, `repeats` of a record that a broker dispatched again, and keys that a
    compaction `dropped`. `first_rank` and `last_rank` are those of the keys that the file covers, −1 without any.
    """

    def __init__(self, matched: MatchedFile, log: LogTable, *, grows: bool) -> None:
        """Judge what is left over; `grows`: a broker writes to the file."""
        self.matched, self.entries, self.unseen, self._log = matched, matched.entries, matched.unseen, log
        self.ordered = matched.is_ordered
        self.paired: dict[int, int] = {}
        self.numbers = Counter[str](matched=matched.matching.matches)
        wrong = self._without_excused(np.flatnonzero(matched.ranks[1:] < 0) + 1, grows=grows)
        lenient = self._of_other_brokers()
        if matched.matching.matches and 0 < wrong.size <= MOST_PAIRED:
            wrong = self._pair(wrong, lenient)
        is_repeat = matched.ranks[wrong] <= REPEATED
        self.strays, self.repeated = wrong[~is_repeat], wrong[is_repeat]
        paired = self._places()
        ranks = self.unseen["rank"]
        self.first_rank = int(ranks[paired].min(initial=matched.lowest))
        self.last_rank = int(ranks[paired].max(initial=matched.highest))
        lacking = (ranks > self.first_rank) & (ranks < self.last_rank) & ~lenient
        lacking[paired] = False
        self.missing = self.unseen[lacking & self.ordered]
        self.numbers["dropped"] = 0 if self.ordered else int(lacking.sum())

    def offset_of(self, number: int) -> int:
        """Physical offset that an entry should have."""
        place = self.paired.get(number)
        return int(self.entries["physical_offset"][number] if place is None else self.unseen["physical_offset"][place])

    def time_of(self, number: int, matched: int) -> int:
        """Store time (ms) of an entry's record: what its match says, or the key that it is paired with."""
        place = self.paired.get(number)
        return matched if place is None else int(self.unseen["timestamp"][place])

    def offset_at(self, rank: int) -> int:
        """Physical offset of the key of a rank that the file has, or should have; −1 for none."""
        if rank < 0:
            return -1
        place = int(np.searchsorted(self.unseen["rank"], rank))
        if place < len(self.unseen) and self.unseen["rank"][place] == rank:
            return int(self.unseen["physical_offset"][place])
        return int(self.entries["physical_offset"][int((self.matched.ranks == rank).argmax())])

    def _places(self) -> Numbers:
        return np.fromiter(self.paired.values(), np.int64)

    def _without_excused(self, numbers: Numbers, *, grows: bool) -> Numbers:
        """Count what is no damage; the other numbers."""
        offsets = self.entries["physical_offset"][numbers].astype(np.int64)
        ranks, log = self.matched.ranks, self._log
        first = int((ranks >= 0).argmax()) if self.numbers["matched"] else len(ranks)
        excused = {
            # Entries below the log's minimum were put before all others; in a compacted file they are anywhere.
            "expired": (offsets >= 0) & (offsets < log.minimum) & ((numbers < first) | (not self.ordered)),
            "lost": log.are_lost(offsets),
            "newer": (offsets >= log.end) & grows,
            "repeats": (ranks[numbers] <= REPEATED) & self._at_boundary(numbers, offsets),
        }
        self.numbers.update({name: int(flags.sum()) for name, flags in excused.items()})
        others: Numbers = numbers[~np.logical_or.reduce(list(excused.values()))]
        return others

    def _at_boundary(self, numbers: Numbers, offsets: Numbers) -> Flags:
        """Which repeated entries a broker puts that recovers: those of the last record once more, all of them."""
        if self.ordered:
            again = self.entries["physical_offset"][numbers - 1].astype(np.int64) == offsets
        else:
            again = offsets == self.entries["physical_offset"][1:].astype(np.int64).max(initial=-1)
        whole: Flags = again & ~np.isin(offsets, self.unseen["physical_offset"])
        return whole

    def _of_other_brokers(self) -> Flags:
        """Which unseen keys are those of tags that a broker before 5.4 did not put, as far as this file shows."""
        ranks, are_tags = self.unseen["rank"], self.unseen["is_tag"]
        if not self.matched.tags:
            return are_tags
        lenient: Flags = np.zeros(len(ranks), np.bool_)
        first, last = self.matched.tags
        # Only where tags of this very file are left out before its first or behind its last one, so they are around it.
        for outside, inside in (
            (ranks < first, ranks > self.matched.lowest),
            (ranks > last, ranks < self.matched.highest),
        ):
            if (are_tags & outside & inside).any():
                lenient |= are_tags & outside
        return lenient

    def _pair(self, wrong: Numbers, lenient: Flags) -> Numbers:
        """Find out which unseen key each wrong entry should be for; what remains."""
        free = np.zeros(len(lenient), np.bool_)
        for candidates in (~lenient, lenient):
            free |= candidates
            free[self._places()] = False
            remaining = [wrong[:0]]
            for gap, places, is_bounded in self._gaps(wrong, free):
                numbers, places = self._pair_alike(gap, places)
                # At the ends of a file entries of tags may be left out or not, so that places alone say little.
                if self.ordered and places.size == numbers.size and (candidates is lenient or is_bounded):
                    self.paired.update(zip(numbers.tolist(), places.tolist(), strict=True))
                else:
                    remaining.append(numbers)
            wrong = np.concatenate(remaining)
        return wrong

    def _gaps(self, wrong: Numbers, free: Flags) -> Iterator[tuple[Numbers, Numbers, bool]]:
        """Runs of wrong entries, the free places of unseen keys beside each, and whether good ones stand around it."""
        unseen, ranks = self.unseen["rank"], self.matched.ranks
        if not self.ordered:
            inside = free & (unseen > self.matched.lowest) & (unseen < self.matched.highest)
            yield wrong, np.flatnonzero(inside), False
            return
        found = np.flatnonzero(ranks >= 0)
        gaps = np.searchsorted(found, wrong)
        for numbers in np.split(wrong, np.flatnonzero(np.diff(gaps)) + 1) if wrong.size else ():
            gap = int(np.searchsorted(found, numbers[0]))
            start = int(np.searchsorted(unseen, ranks[found[gap - 1]])) if gap else 0
            stop = int(np.searchsorted(unseen, ranks[found[gap]])) if gap < len(found) else len(unseen)
            places = start + np.flatnonzero(free[start:stop])
            if not gap:
                places = places[-numbers.size :]
            elif gap == len(found):
                places = places[: numbers.size]
            yield numbers, places, 0 < gap < len(found)

    def _pair_alike(self, numbers: Numbers, places: Numbers) -> tuple[Numbers, Numbers]:
        """Pair entries with keys that have their physical offset, or their hash; what remains of both."""
        for field in ("physical_offset", "key_hash"):
            column, said = self.unseen[field], self.entries[field][numbers].astype(self.unseen[field].dtype)
            waiting: dict[int, list[int]] = defaultdict(list)
            for place in reversed(places[np.isin(column[places], said)].tolist()):
                waiting[int(column[place])].append(place)
            pairs = {
                number: waiting[value].pop()
                for number, value in zip(numbers.tolist(), said.tolist(), strict=True)
                if waiting.get(value)
            }
            self.paired.update(pairs)
            numbers = numbers[~np.isin(numbers, list(pairs))]
            places = places[~np.isin(places, list(pairs.values()))]
        return numbers, places
