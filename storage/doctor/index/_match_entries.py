"""Match the entries of one index file with the keys that its log leads to: which entry is for which key.

This is for a file that is not, byte for byte, what a rebuild makes (:mod:`.index_image`): it was compacted, a broker
recovered or was upgraded in its midst, or some of its bytes are wrong.

Every key of the log has a *rank*: its number among all keys, record by record. An entry is for a key where physical
offset and hash are the same; of several keys of a record under one hash the first entry takes the first. For example:

    the log: rank, record, hash    the file: entry, record, hash    its rank
             0     100     7                 1      100     9       1
             1     100     9                 2      200     7       2
             2     200     7                 3      200     7       REPEATED: record 200 has this key once
             3     300     8                 4      300     5       NO_KEY: record 300 has no such key
             4     400     6                 5      350     6       NO_RECORD: none starts there
                                             6      400     6       4

Without entry, or `unseen`, are then the keys of the ranks 0 and 3. What that means is decided by
:mod:`.left_over_entries`: the file begins with the second key of record 100; entry 4 should be for the key of rank 3,
which stands between the same neighbours; entry 3 is what a broker leaves that recovered, all entries of a record once
more; entry 5 belongs to nothing. A block of keys lies in memory at a time, and all of the file.
"""

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from storage.doctor.log.scanned_log import KEY_DTYPE, MOST_KEYS, BlockKeys, Flags, Keys, Numbers, ScannedLog, codes_of
from storage.index.index_copy import IndexCopy, IndexCounts
from storage.kernels.indexes import measure_entries

MOST_UNSEEN: Final = 1 << 21
"""Keys without an entry that are kept of one file; more are counted."""

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
    """One file's entries by number, each with its key; entry 0 is none.

    `ranks` are those of their keys or one of the codes above, `timestamps` the store times (ms) of their records, where
    these have the keys. `unseen`: keys without an entry, by rank, of the blocks in which the file has entries and of
    one to each side, where what a damaged first or last entry should be may lie; `more_unseen` how many beyond what is
    kept. `tags`: the lowest and the highest rank of the keys of tags that have entries, or none.
    """

    def __init__(self, copy: IndexCopy, counts: IndexCounts, log: ScannedLog) -> None:
        """Match every entry."""
        self.entries = copy.entries(counts.slots, counts.entries)
        self.ranks = np.full(counts.entries + 1, NO_RECORD, np.int64)
        self.timestamps = np.full(counts.entries + 1, NO_TIME, np.int64)
        self.tags: list[int] = []
        self.more_unseen, self._room = 0, MOST_UNSEEN
        unseen: dict[int, Keys] = {}
        for number, entries in self._entries_of_blocks(log, _entry_order(copy, counts)):
            keys = log.keys(number)
            seen = self._match(keys, entries)
            if seen.any():
                unseen[number] = self._keep(keys.unseen(seen))
                self._note_tags(keys, seen)
        for number in range(max(min(unseen, default=0) - 1, 0), min(max(unseen, default=-2) + 2, len(log.blocks))):
            if number not in unseen:
                keys = log.keys(number)
                unseen[number] = self._keep(keys.unseen(np.zeros(keys.hashes.size, np.bool_)))
        self.unseen = np.concatenate([np.zeros(0, KEY_DTYPE), *(unseen[number] for number in sorted(unseen))])
        found = self.ranks[self.ranks >= 0]
        self.matches = int(found.size)
        # The entries of a small compacted file may ascend by accident; others between them were left out all the same.
        self.is_ordered = copy.mark(counts.slots) is None and bool((np.diff(found) > 0).all())

    # --- how they are matched -----------------------------------------------------------------------------------------

    def _entries_of_blocks(self, log: ScannedLog, order: npt.NDArray[np.int32]) -> Iterator[tuple[int, Numbers]]:
        """Yield the number of each block into which entries point, with the numbers of these by physical offset."""
        offsets, count = self.entries["physical_offset"], len(self.entries) - 1

        def entries_below(physical_offset: int) -> int:
            places = range(count)
            return bisect_left(places, physical_offset, key=lambda i: int(offsets[order[i] if order.size else i + 1]))

        for number, block in enumerate(log.blocks):
            start, stop = entries_below(block.first), entries_below(block.end)
            if start < stop and block.entries:
                yield number, order[start:stop].astype(np.int64) if order.size else np.arange(start + 1, stop + 1)

    def _match(self, keys: BlockKeys, numbers: Numbers) -> Flags:
        """Give entries that point into a block their ranks and times; returns which keys of the block have entries."""
        seen = np.zeros(keys.hashes.size, np.bool_)
        distances = self.entries["physical_offset"][numbers].astype(np.int64) - keys.first
        records = np.searchsorted(keys.offsets, distances)
        are_there = records < keys.offsets.size
        are_there[are_there] = keys.offsets[records[are_there]] == distances[are_there]
        numbers, records = numbers[are_there], records[are_there]
        if not numbers.size:
            return seen
        order = np.arange(keys.hashes.size)
        if numbers[0] == 1:
            self._put_first(keys, int(records[0]), order)
        found = match_equal(keys.codes()[order], codes_of(records, self.entries["key_hash"][numbers]))
        has_key = found >= 0
        found[has_key] = order[found[has_key]]
        seen[found[has_key]] = True
        self.ranks[numbers] = np.where(has_key, keys.rank + found, found)
        self.timestamps[numbers[found != NO_KEY]] = keys.timestamps[records[found != NO_KEY]]
        return seen

    def _put_first(self, keys: BlockKeys, record: int, order: Numbers) -> None:
        """Order the keys of the file's first record so that those with which the file begins come first.

        A file may begin in the midst of a record, with its last keys, or by older brokers all but the tag's; of a file
        that has no other record they may be any. The hash of a key may stand among those before, too, whose entries
        are in the file before.
        """
        stop = int(keys.counts[: record + 1].sum(dtype=np.int64))
        first = stop - int(keys.counts[record])
        head = self.entries[1 : MOST_KEYS + 2]
        others = np.flatnonzero(head["physical_offset"] != head["physical_offset"][0])
        leading = head["key_hash"][: others[0] if others.size else None].astype(np.int32)
        place = last_place(keys.hashes[first:stop], leading)
        if not others.size or place + len(leading) >= stop - first - 1:
            order[first:stop] = np.roll(order[first:stop], -place)

    def _note_tags(self, keys: BlockKeys, seen: Flags) -> None:
        tags = keys.rank + (places := keys.tag_places())[seen[places]]
        if tags.size:
            self.tags = [*(self.tags or [int(tags[0])])[:1], int(tags[-1])]

    def _keep(self, keys: Keys) -> Keys:
        """Some of the keys without an entry, as many as there is room for; the others are counted."""
        kept = keys[: self._room]
        self._room -= len(kept)
        self.more_unseen += len(keys) - len(kept)
        return kept

    # --- what follows of it -------------------------------------------------------------------------------------------

    def rank_span(self) -> tuple[int, int]:
        """The lowest and the highest rank of an entry, −1 without any."""
        found = self.ranks[self.ranks >= 0]
        return (int(found.min()), int(found.max())) if found.size else (-1, -1)

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
            wrong = self.are_timed(part) & (self.entries["time_difference"][part] != expected)
            found.append(first + np.flatnonzero(wrong))
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


def last_place(hashes: npt.NDArray[np.int32], run: npt.NDArray[np.int32]) -> int:
    """Find the last place in `hashes` from which on they are those of `run`; 0 without one."""
    size = hashes.itemsize
    data, part, stop = hashes.tobytes(), run.tobytes(), hashes.nbytes
    while (found := data.rfind(part, 0, stop)) > 0:
        if found % size == 0:
            return found // size
        stop = found + len(part) - 1
    return 0


def match_equal(known: Numbers, wanted: Numbers) -> Numbers:
    """Give each wanted code the place of a known one that is equal, REPEATED if all of these are taken, or NO_KEY.

    The nth of equal wanted codes takes the nth of the known ones.
    """
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
