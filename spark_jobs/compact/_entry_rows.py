"""Index entries in memory, grouped by their records: sorted, without doubles, and as the columns of a block.

An entry is what its record's offset and its hash are, so both are packed into one number, and sorting numbers brings
entries into the order of the log and doubles side by side. Entries of one record are in the order of their hashes:
nothing depends on that order, and so whatever an index is made from, it comes out the same.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

HASH_BITS: Final = 31
HASH_MASK: Final = (1 << HASH_BITS) - 1
MOST_ENTRIES: Final = 0xFFFF
"""Entries of one row of a block; a record with more has several rows."""

LONGEST_BLOCK: Final = 1 << 32
"""Offsets of a block's rows count from the lowest one in 32 bits."""


@dataclass(frozen=True, slots=True)
class EntryRows:
    """Records by physical offset and store timestamp (ms), the entries of each, and all hashes one behind the other."""

    offsets: np.ndarray
    timestamps: np.ndarray
    counts: np.ndarray
    hashes: np.ndarray

    def take(self, rows: np.ndarray) -> "EntryRows":
        """The rows of some numbers, in their order."""
        counts = self.counts[rows]
        ends = np.cumsum(self.counts)
        # Where each taken row's hashes were, less where they are going to be.
        shift = (ends - self.counts)[rows] - (np.cumsum(counts) - counts)
        hashes = self.hashes[np.repeat(shift, counts) + np.arange(counts.sum())]
        return EntryRows(self.offsets[rows], self.timestamps[rows], counts, hashes)

    def by_time(self) -> "EntryRows":
        """Sort the rows by store time, and those of one time in the order of the log."""
        times, offsets = self.timestamps, self.offsets
        if np.all((times[1:] > times[:-1]) | ((times[1:] == times[:-1]) & (offsets[1:] >= offsets[:-1]))):
            return self
        return self.take(np.lexsort((self.offsets, self.timestamps)))

    def keep_entries(self, kept: np.ndarray) -> "EntryRows":
        """Only the entries of a mask, and the records that have any of them."""
        rows = np.repeat(np.arange(self.counts.size), self.counts)
        counts = np.bincount(rows[kept], minlength=self.counts.size)
        some = counts > 0
        return EntryRows(self.offsets[some], self.timestamps[some], counts[some], self.hashes[kept])

    def narrow(self) -> "EntryRows":
        """Rows of at most `MOST_ENTRIES` entries."""
        if not self.counts.size or self.counts.max() <= MOST_ENTRIES:
            return self
        parts = -(-self.counts // MOST_ENTRIES)
        rows = np.repeat(np.arange(self.counts.size), parts)
        counts = np.full(rows.size, MOST_ENTRIES)
        last = np.cumsum(parts) - 1
        counts[last] = self.counts - (parts - 1) * MOST_ENTRIES
        return replace(self, offsets=self.offsets[rows], timestamps=self.timestamps[rows], counts=counts)

    def cut(self, rows: int, entries: int) -> Iterator["EntryRows"]:
        """Cut the rows into portions of at most `rows` rows and `entries` entries; a row with more is one by itself."""
        ends = np.cumsum(self.counts)
        start, numbers = 0, np.arange(self.counts.size)
        while start < self.counts.size:
            before = int(ends[start - 1]) if start else 0
            stop = min(start + rows, int(np.searchsorted(ends, before + entries, side="right")))
            stop = max(stop, start + 1)
            yield self.take(numbers[start:stop])
            start = stop

    def columns(self) -> dict[str, np.ndarray]:
        """As a block of a scan has them; offsets count from the lowest, which must be less than 4 GiB away."""
        return {
            "offsets": (self.offsets - self.offsets.min()).astype(np.uint32),
            "timestamps": self.timestamps,
            "counts": self.counts.astype(np.uint16),
            "hashes": self.hashes,
        }


def join(parts: Sequence[EntryRows]) -> EntryRows:
    """The rows of all, one after the other; there must be some."""
    return EntryRows(
        np.concatenate([part.offsets for part in parts]),
        np.concatenate([part.timestamps for part in parts]),
        np.concatenate([part.counts for part in parts]),
        np.concatenate([part.hashes for part in parts]),
    )


def pack_entries(positions: np.ndarray, hashes: np.ndarray) -> np.ndarray:
    """Entries as numbers: by 32-bit positions in the log, then by their hashes, which are not negative."""
    packed: np.ndarray = positions.astype(np.int64) << HASH_BITS | hashes
    return packed


def unpack_entries(packed: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of sorted packed entries the positions of the records, the number of entries of each, and all hashes."""
    positions = packed >> HASH_BITS
    starts = np.flatnonzero(np.diff(positions, prepend=-1))
    counts = np.diff(starts, append=positions.size)
    return positions[starts], counts, (packed & HASH_MASK).astype(np.int32)


def sort_distinct(packed: np.ndarray) -> np.ndarray:
    """Sorted, each number once; the argument is sorted in place."""
    packed.sort()
    distinct: np.ndarray = packed[np.diff(packed, prepend=-1) != 0]
    return distinct
