"""The entries of one index file beside the keys that its log leads to: which belong together, and what is left over.

This is for a file that is not, byte for byte, what a rebuild makes (:mod:`.index_image`): it was compacted, a broker
recovered or was upgraded in its midst, or some of its bytes are wrong. Each entry is matched with a key of the record
that it names, and gets the key's *rank*: its number among all keys of the log. A block of keys lies in memory at a
time, and all of the file.

Where an entry is damaged, one entry belongs to no key, and one key has no entry. In a file that a broker wrote both
stand at the same place of the sequence, so they are paired by it, and a finding says which bytes are wrong, not that
one is too many and another missing. In a file in another order they are paired by what of the entry is intact, hash or
physical offset.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from spark_jobs.verify.index_image import IndexStretch
from spark_jobs.verify.log_table import KEY_DTYPE, MOST_KEYS, BlockKeys, Flags, Keys, LogTable, Numbers, codes_of
from storage.index.index_copy import IndexCopy, IndexCounts
from storage.kernels.indexes import measure_entries

MOST_UNSEEN: Final = 1 << 21
"""Keys without an entry that are kept of one file; more are counted."""

MOST_PAIRED: Final = 100_000
"""Leftover entries of a file that are paired; with more it is not damage in places any more."""

NO_TIME: Final = -1
"""In place of a store time that is not known."""
NO_RECORD: Final = -1
"""In place of a rank: no record of the log starts at the entry's physical offset."""
NO_KEY: Final = -2
"""In place of a rank: the record that starts there has no such key."""
REPEATED: Final = -3
"""In place of a rank: the record has the key, but other entries have taken it."""

PIECE: Final = 1 << 20
LONGEST: Final = np.iinfo(np.int32).max


class MatchedFile:
    """One file's entries, each with its key.

    `ranks[number]` is the rank of an entry's key or one of the codes above, `timestamps[number]` the store time (ms) of
    its record, where that has the key. `matches` entries have keys, of the ranks from `lowest` to `highest` (−1 without
    any); `is_ordered`: these ascend, and no compaction chose their places. `unseen`: keys without an entry in the
    blocks around, `more_unseen` how many beyond what is kept. `tags`: the lowest and the highest rank of the keys of
    tags that have entries.
    """

    def __init__(self, copy: IndexCopy, counts: IndexCounts, log: LogTable) -> None:
        """Read the blocks in which the file has an entry, and one to each side.

        What a damaged entry at either end should be lies there.
        """
        self.entries = copy.entries(counts.slots, counts.entries)
        self._order = _entry_order(copy, counts)
        self.ranks = np.full(counts.entries + 1, NO_RECORD, np.int64)
        self.timestamps = np.full(counts.entries + 1, NO_TIME, np.int64)
        self.tags: list[int] = []
        self.more_unseen = self._kept = 0
        unseen: dict[int, Keys] = {}
        for number, block in enumerate(log.blocks):
            start, stop = (self._entries_below(offset) for offset in (block.first, block.end))
            if start < stop and block.entries:
                numbers: Numbers = np.arange(start, stop)
                numbers = self._order[numbers].astype(np.int64) if self._order.size else numbers + 1
                self._match_block(log.keys(number), numbers, number, unseen)
        for number in range(max(min(unseen, default=0) - 1, 0), min(max(unseen, default=-2) + 2, len(log.blocks))):
            if number not in unseen:
                keys = log.keys(number)
                unseen[number] = self._keep(keys.unseen(np.zeros(keys.hashes.size, np.bool_)))
        self.unseen = np.concatenate([np.zeros(0, KEY_DTYPE), *(unseen[number] for number in sorted(unseen))])
        found = self.ranks[self.ranks >= 0]
        self.matches = int(found.size)
        # The entries of a small compacted file may ascend by accident; others between them were left out all the same.
        self.is_ordered = copy.mark(counts.slots) is None and bool((np.diff(found) > 0).all())
        self.lowest, self.highest = self.rank_span()

    def rank_span(self) -> tuple[int, int]:
        """The lowest and the highest rank of an entry, −1 without any."""
        found = self.ranks[self.ranks >= 0]
        return (int(found.min()), int(found.max())) if found.size else (-1, -1)

    def _entries_below(self, physical_offset: int) -> int:
        """How many entries, by physical offset, come before one."""
        offsets, order = self.entries["physical_offset"], self._order
        places = range(len(offsets) - 1)
        return bisect_left(places, physical_offset, key=lambda i: int(offsets[order[i] if order.size else i + 1]))

    def _match_block(self, keys: BlockKeys, numbers: Numbers, place: int, unseen: dict[int, Keys]) -> None:
        """Match the entries of some numbers with the keys of the block that they point into."""
        distances = self.entries["physical_offset"][numbers].astype(np.int64) - keys.first
        records = np.searchsorted(keys.offsets, distances)
        are_there = records < keys.offsets.size
        are_there[are_there] = keys.offsets[records[are_there]] == distances[are_there]
        numbers, records = numbers[are_there], records[are_there]
        if not numbers.size:
            return
        order = np.arange(keys.hashes.size)
        if numbers[0] == 1:
            # The keys of a record may lie in two files, and one of them may be there twice.
            stop = int(keys.counts[: records[0] + 1].sum(dtype=np.int64))
            first = stop - int(keys.counts[records[0]])
            order[first:stop] = np.roll(order[first:stop], -self._first_place(keys.hashes[first:stop]))
        found = _match(keys.codes()[order], codes_of(records, self.entries["key_hash"][numbers]))
        are_matched, are_known = found >= 0, found != NO_KEY
        found[are_matched] = order[found[are_matched]]
        self.ranks[numbers] = np.where(are_matched, keys.rank + found, found)
        self.timestamps[numbers[are_known]] = keys.timestamps[records[are_known]]
        if are_matched.any():
            seen = np.zeros(keys.hashes.size, np.bool_)
            seen[found[are_matched]] = True
            unseen[place] = self._keep(keys.unseen(seen))
            tags = keys.tag_places()
            tags = keys.rank + tags[seen[tags]]
            if tags.size:
                self.tags = [*(self.tags or [int(tags[0])])[:1], int(tags[-1])]

    def _first_place(self, hashes: npt.NDArray[np.int32]) -> int:
        """Where among the keys of its record the file's first entry is looked for first.

        A file that begins in the midst of a record begins with its last keys, with the tag's or, by older brokers,
        without it; of a file that has no other record they may be any.
        """
        head = self.entries[1 : MOST_KEYS + 2]
        differ = np.flatnonzero(head["physical_offset"] != head["physical_offset"][0])
        together = int(differ[0]) if differ.size else len(head)
        last = len(hashes) - together
        leading = head["key_hash"][:together].astype(np.int32).tobytes()
        for place in range(last, max(last - 1, 0) - 1 if differ.size else -1, -1):
            if hashes[place : place + together].tobytes() == leading:
                return place
        return 0

    def _keep(self, keys: Keys) -> Keys:
        room = max(MOST_UNSEEN - self._kept, 0)
        self.more_unseen += max(len(keys) - room, 0)
        self._kept += min(len(keys), room)
        return keys[:room]

    def are_timed(self, part: slice = slice(None)) -> Flags:
        """Which entries have records whose store times are known."""
        flags: Flags = (self.ranks[part] >= 0) | (self.ranks[part] == REPEATED)
        return flags

    def wrong_times(self, begin: int) -> Numbers:
        """Numbers of the entries, without the first, whose time differences do not count from ``begin`` (ms)."""
        found = [np.zeros(0, np.int64)]
        for first in range(2, len(self.ranks), PIECE):
            part = slice(first, first + PIECE)
            times = self.timestamps[part]
            # As `storage.kernels.indexes.seconds_between`, which is for one time.
            expected = np.minimum((np.maximum(times, begin) - begin) // 1000, LONGEST) if begin > 0 else 0 * times
            found.append(
                first + np.flatnonzero(self.are_timed(part) & (self.entries["time_difference"][part] != expected))
            )
        return np.concatenate(found)

    def time_span(self) -> tuple[int, int]:
        """The smallest and the largest of the known times; only a time above 0 is the smallest, if there is one."""
        timed = self.timestamps[self.are_timed()]
        return first_true_time(timed), int(timed.max()) if timed.size else NO_TIME


def first_true_time(times: Numbers) -> int:
    """The smallest of some times (ms) that is above 0, without any the largest; NO_TIME for no times."""
    if not times.size:
        return NO_TIME
    true = times[times > 0]
    return int(true.min() if true.size else times.max())


def _match(known: Numbers, wanted: Numbers) -> Numbers:
    """Match equal codes in their order, each known one once: its place, REPEATED if all are taken, or NO_KEY."""
    order, by_code = np.argsort(known, kind="stable"), np.argsort(wanted, kind="stable")
    known, wanted = known[order], wanted[by_code]
    first, stop = (np.searchsorted(known, wanted, side=side) for side in ("left", "right"))
    nth = first + np.arange(len(wanted)) - np.searchsorted(wanted, wanted)
    found = np.where(first < stop, REPEATED, NO_KEY)
    is_free = nth < stop
    found[is_free] = order[nth[is_free]]
    places = np.empty(len(wanted), np.int64)
    places[by_code] = found
    return places


def _entry_order(copy: IndexCopy, counts: IndexCounts) -> npt.NDArray[np.int32]:
    """Numbers of the entries by physical offset; empty where they lie in that order."""
    if measure_entries(copy.region, counts.slots, 0, counts.entries, 0).ascending:
        return np.zeros(0, np.int32)
    offsets = copy.entries(counts.slots, counts.entries)["physical_offset"][1:].astype(np.int64)
    order = np.argsort(offsets, kind="stable")
    del offsets  # as large as the order
    order += 1
    return order.astype(np.int32)


class Alignment:
    """What the entries of a file are that have no key, and which keys have no entry though the file spans them.

    `paired`: numbers of entries that should be others, with places in `unseen` of what they should be; `strays`:
    numbers of entries that should not be; `repeated`: of those that are there already; `missing`: keys that should have
    an entry. `numbers` counts what is no damage: `expired` entries (their records are gone), those into `lost` ranges
    of the log, `newer` ones than the scan, `repeats` of a record that a broker dispatched again, and keys that a
    compaction `dropped`; `leaves_out`: not only repeated ones. The ranks and times of `matched` are then those of the
    keys that paired entries should be for, too.
    """

    def __init__(self, matched: MatchedFile, log: LogTable, *, grows: bool) -> None:
        """Judge what is left over; `grows`: a broker writes to the file."""
        self.matched, self.entries, self.unseen = matched, matched.entries, matched.unseen
        self.log, self.grows = log, grows
        self.ordered = matched.is_ordered
        self.paired: dict[int, int] = {}
        self.numbers = Counter[str](matched=matched.matches)
        wrong = self._without_excused(np.flatnonzero(matched.ranks[1:] < 0) + 1)
        lenient, ranks = self._of_other_brokers(), self.unseen["rank"]
        if matched.matches and 0 < wrong.size <= MOST_PAIRED:
            wrong = self._pair(wrong, lenient)
        is_repeat = matched.ranks[wrong] == REPEATED
        self.strays, self.repeated = wrong[~is_repeat], wrong[is_repeat]
        numbers, places = np.fromiter(self.paired, np.int64), self._places()
        matched.ranks[numbers], matched.timestamps[numbers] = ranks[places], self.unseen["timestamp"][places]
        first, last = matched.rank_span()
        lacking = (ranks > first) & (ranks < last) & ~lenient
        lacking[places] = False
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

    def _places(self) -> Numbers:
        return np.fromiter(self.paired.values(), np.int64)

    def _without_excused(self, numbers: Numbers) -> Numbers:
        """Count what is no damage; the other numbers."""
        offsets = self.entries["physical_offset"][numbers].astype(np.int64)
        ranks, log = self.matched.ranks, self.log
        first = int((ranks >= 0).argmax()) if self.numbers["matched"] else len(ranks)
        excused = {
            # Entries below the log's minimum were put before all others; in a compacted file they are anywhere.
            "expired": (offsets >= 0) & (offsets < log.minimum) & ((numbers < first) | (not self.ordered)),
            "lost": log.are_lost(offsets),
            "newer": (offsets >= log.end) & self.grows,
            "repeats": (ranks[numbers] == REPEATED) & self._at_boundary(numbers, offsets),
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
