"""The entries of one index file beside those that its log leads to: which belong together, and what is left over.

Both sides ascend by physical offset, as a broker writes them; a file in another order (a compacted one) is sorted. So
one pass over the blocks that the file spans finds for each entry the one that the log leads to, its *rank* among all
entries of the log. A block lies in memory at a time, of the file all.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from spark_jobs.verify.log_table import LogTable
from storage.index.index_copy import IndexCopy, IndexCounts
from storage.kernels.indexes import measure_entries
from storage.kernels.matching import Matching

MOST_UNSEEN: Final = 1 << 21
"""Entries of the log without a match that are kept of one file; more are counted."""

Numbers = npt.NDArray[np.int64]


class LogEntries(NamedTuple):
    """Entries that the log leads to, by rank: of which record, under which hash, and whether it is that of a tag."""

    ranks: Numbers
    physical_offsets: Numbers
    timestamps: Numbers
    hashes: npt.NDArray[np.int32]
    are_tags: npt.NDArray[np.bool_]

    def take(self, chosen: "npt.NDArray[np.bool_] | npt.NDArray[np.int64] | slice") -> "LogEntries":
        """Some of them."""
        return LogEntries(
            self.ranks[chosen],
            self.physical_offsets[chosen],
            self.timestamps[chosen],
            self.hashes[chosen],
            self.are_tags[chosen],
        )

    @classmethod
    def joined(cls, parts: "list[LogEntries]") -> "LogEntries":
        """Parts one behind the other."""
        return cls(*map(np.concatenate, zip(NO_ENTRIES, *parts, strict=True)))


NO_ENTRIES: Final = LogEntries(
    np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.bool_)
)


class LogBlock:
    """One block of entries, without those of records behind the log's end."""

    def __init__(self, log: LogTable, number: int) -> None:
        """Read the block of a number."""
        block = log.blocks[number]
        columns = block.read().columns
        records = int(np.searchsorted(columns["offsets"], max(log.end - block.first, 0)))
        self.first, self.rank = block.first, int(log.ranks[number])
        self.offsets = columns["offsets"][:records]
        self.timestamps = columns["timestamps"][:records]
        self.counts = columns["counts"][:records]
        self.hashes = columns["hashes"][: int(self.counts.sum(dtype=np.int64))]
        self._tagged = columns["tagged"][:records]

    def entries(self, chosen: npt.NDArray[np.int64]) -> LogEntries:
        """Return the entries at some places of the block."""
        ends = np.cumsum(self.counts, dtype=np.int64)
        records = np.searchsorted(ends, chosen, side="right")
        return LogEntries(
            self.rank + chosen,
            self.first + self.offsets[records].astype(np.int64),
            self.timestamps[records],
            self.hashes[chosen],
            (ends[records] == chosen + 1) & (self._tagged[records] != 0),
        )

    def tag_places(self) -> Numbers:
        """Places of the entries of tags."""
        places: Numbers = np.cumsum(self.counts, dtype=np.int64)[self._tagged != 0] - 1
        return places

    def all(self) -> LogEntries:
        """All of them."""
        return self.entries(np.arange(self.hashes.size, dtype=np.int64))


class Matched:
    """The match of a file's entries with the log (:func:`match_file`). `was_sorted`: they do not ascend as they stand.

    `ranks[number]`: the entry's rank, or a code of :mod:`storage.kernels.matching`. `matching`: what else is known of
    them. `unseen`: what the log leads to in the blocks around and has no match here, `more_unseen` how many beyond what
    is kept. `first_tag` and `last_tag`: ranks of the entries of tags that are there, −1 without any.
    """

    def __init__(self, copy: IndexCopy, counts: IndexCounts, begin: int, most_late: int) -> None:
        """Nothing is matched."""
        self.ranks = np.full(counts.entries + 1, -1, np.int64)
        order = entry_order(copy, counts)
        self.was_sorted = order.size > 0
        self.matching = Matching(copy.region, counts.slots, counts.entries, order, begin, self.ranks, most_late)
        self.first_tag = self.last_tag = -1
        self.more_unseen = 0
        self._unseen: dict[int, LogEntries] = {}
        self._kept = 0
        self.unseen = NO_ENTRIES

    @property
    def matches(self) -> int:
        """Entries that belong to a record."""
        return self.matching.matches

    @property
    def lates(self) -> int:
        """Entries whose time difference is wrong."""
        return self.matching.lates

    @property
    def is_ordered(self) -> bool:
        """Whether the entries stand in the order of the log, as a broker puts them."""
        if not self.was_sorted:
            return not self.matching.descents
        return bool((np.diff(self.ranks[self.ranks >= 0]) > 0).all())

    def note_tags(self, ranks: Numbers) -> None:
        """Entries of tags at these ranks are there."""
        if ranks.size:
            self.last_tag = int(ranks[-1])
            self.first_tag = int(ranks[0]) if self.first_tag < 0 else self.first_tag

    def keep_unseen(self, number: int, entries: LogEntries) -> None:
        """Keep what nobody saw of a block."""
        room = max(MOST_UNSEEN - self._kept, 0)
        self.more_unseen += max(len(entries.ranks) - room, 0)
        self._unseen[number] = entries.take(slice(room))
        self._kept += len(self._unseen[number].ranks)

    def settle(self) -> None:
        """All blocks have been looked at."""
        self.unseen = LogEntries.joined([self._unseen[number] for number in sorted(self._unseen)])
        self._unseen.clear()


def match_file(copy: IndexCopy, counts: IndexCounts, log: LogTable, begin: int, most_late: int) -> Matched:
    """Hold all entries of a file against the log; time differences count from `begin` (ms).

    Blocks in which the file has an entry are read, those between the first and the last match, and one to each side of
    them: what a damaged entry at either end should be lies there.
    """
    matched = Matched(copy, counts, begin, most_late)
    matching = matched.matching
    read: dict[int, int] = {}
    for number, block in enumerate(log.blocks):
        offset = matching.next_offset(block.first)
        if offset is None:
            break
        if offset >= block.end or not block.entries:
            continue
        columns = LogBlock(log, number)
        seen = np.zeros(columns.hashes.size, np.uint8)
        before = matched.matches
        matching.match(
            columns.first, columns.offsets, columns.timestamps, columns.counts, columns.hashes, columns.rank, seen
        )
        read[number] = matched.matches - before
        if read[number]:
            matched.keep_unseen(number, columns.entries(np.flatnonzero(seen == 0)))
            tags = columns.tag_places()
            matched.note_tags(columns.rank + tags[seen[tags] != 0])
    for number in _unread_between(read, len(log.blocks)):
        matched.keep_unseen(number, LogBlock(log, number).all())
    matched.settle()
    return matched


def entry_order(copy: IndexCopy, counts: IndexCounts) -> npt.NDArray[np.int32]:
    """Numbers of the entries by physical offset; empty where they lie in that order."""
    if measure_entries(copy.region, counts.slots, 0, counts.entries, 0).ascending:
        return np.zeros(0, np.int32)
    offsets = copy.entries(counts.slots, counts.entries)["physical_offset"][1:].astype(np.int64)
    return (np.argsort(offsets, kind="stable") + 1).astype(np.int32)


def _unread_between(read: dict[int, int], blocks: int) -> Iterator[int]:
    """Blocks from the one before the first match to the one behind the last that were not read, or without a match."""
    covered = [number for number, matches in read.items() if matches]
    if covered:
        for number in range(max(covered[0] - 1, 0), min(covered[-1] + 2, blocks)):
            if not read.get(number):
                yield number
