"""The log that was scanned, as queues and index are compared with it: where it ends, and what its records lead to.

A key is an index entry that a record leads to. Keys come in blocks, in the order of the log.
"""

import os
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from storage.build.existing_queue import ReadableLog
from storage.build.index_builder import EntryColumns

MOST_KEYS: Final = 1 << 16
"""Of one record."""
KEY_DTYPE: Final = np.dtype(
    [
        ("rank", "i8"),
        ("physical_offset", "i8"),
        ("timestamp", "i8"),
        ("key_hash", "i4"),
        ("is_tag", "?"),
        ("is_repeat", "?"),
    ]
)

Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]
Keys = npt.NDArray[np.void]
"""Keys of the log by rank, that is by number in the log: of which record, under which hash, and whether of a tag.

`is_repeat` marks a key without an entry whose record has an entry under the same hash. A look-up finds the record all
the same, and a compaction keeps one entry of those.
"""


class KeyBlock(Protocol):
    """A block of keys: the physical offsets [first, end) of their records, and how many there are."""

    @property
    def first(self) -> int:
        """Physical offset of the first record."""
        ...

    @property
    def end(self) -> int:
        """Physical offset behind the last record."""
        ...

    @property
    def entries(self) -> int:
        """How many keys there are."""
        ...

    def columns(self) -> Mapping[str, npt.NDArray[Any]]:
        """Read the block: `offsets` from the first, `timestamps` and `counts` of records, `tagged`, and `hashes`."""
        ...


class ScannedLog(msgspec.Struct, frozen=True, dict=True, kw_only=True):
    """The log as it was scanned: records from `minimum` up to `end`, without the `lost` ranges [from, to).

    `is_live`: a broker writes to the store; `may_lag`: what is missing at the end of queues and index may come yet.
    `segments` are base offsets and paths. `follows_reading`: what lies before `minimum` was read earlier, and nothing
    was wrong with it.
    """

    minimum: int
    end: int
    lost: tuple[tuple[int, int], ...]
    segment_size: int
    is_live: bool
    may_lag: bool
    segments: tuple[tuple[int, str], ...]
    follows_reading: bool = False

    @property
    def blocks(self) -> Sequence[KeyBlock]:
        """All blocks that begin below the end."""
        raise NotImplementedError

    def are_lost(self, physical_offsets: npt.NDArray[Any]) -> Flags:
        """Which offsets lie where the log holds no intact records."""
        return ReadableLog(self.minimum, self.end, self.lost).are_lost(physical_offsets)

    def loses_between(self, start: int, stop: int) -> bool:
        """Whether anything of [start, stop) is lost."""
        number = bisect_right(self.lost, start, key=lambda lost: lost[1])
        return number < len(self.lost) and self.lost[number][0] < stop

    def expired_below(self) -> int:
        """Below which physical offset a broker has deleted segments since; `minimum` where none runs."""
        if not self.is_live:
            return self.minimum
        return next((base for base, path in self.segments if os.path.exists(path)), self.end)

    def where(self, physical_offset: int) -> tuple[str, int]:
        """The segment that a physical offset lies in, and the byte there."""
        number = max(bisect_right(self.segments, physical_offset, key=lambda segment: segment[0]) - 1, 0)
        base, path = self.segments[number]
        return path, physical_offset - base

    @property
    def entries(self) -> int:
        """How many keys there are."""
        return int(self.ranks[-1])

    @cached_property
    def ranks(self) -> Numbers:
        """Keys before each block, and in all."""
        return np.cumsum([0, *(block.entries for block in self.blocks)], dtype=np.int64)

    def keys(self, number: int) -> "BlockKeys":
        """Read the block of a number."""
        return BlockKeys(self.blocks[number], int(self.ranks[number]), self.end)

    def keys_from(self, physical_offset: int) -> Iterator["BlockKeys"]:
        """The blocks from the one on that has a physical offset; none where that lies before all."""
        first = bisect_right(self.blocks, physical_offset, key=lambda block: block.first) - 1
        yield from map(self.keys, range(first, len(self.blocks)) if first >= 0 else ())

    def keys_between(self, first: int, stop: int) -> Iterator[Keys]:
        """Keys of the ranks [first, stop), block by block; all others count as keys that have entries."""
        start = int(np.searchsorted(self.ranks, first, side="right")) - 1
        for number in range(max(start, 0), int(np.searchsorted(self.ranks[:-1], stop))):
            keys = self.keys(number)
            ranks = keys.rank + np.arange(keys.hashes.size)
            yield keys.unseen((ranks < first) | (ranks >= stop))


class BlockKeys:
    """The keys of one block, without those of records behind the log's end; `rank` is that of the first."""

    def __init__(self, block: KeyBlock, rank: int, end: int) -> None:
        """Read the block."""
        columns = block.columns()
        records = int(np.searchsorted(columns["offsets"], max(end - block.first, 0)))
        self.first, self.rank = block.first, rank
        self.offsets = columns["offsets"][:records]
        self.timestamps = columns["timestamps"][:records]
        self.counts = columns["counts"][:records]
        self.hashes = columns["hashes"][: int(self.counts.sum(dtype=np.int64))]
        self._tagged = columns["tagged"][:records]

    def take(self, places: Numbers) -> Keys:
        """Return the keys at some places of the block."""
        ends = np.cumsum(self.counts, dtype=np.int64)
        records = np.searchsorted(ends, places, side="right")
        keys = np.empty(len(places), KEY_DTYPE)
        keys["rank"] = self.rank + places
        keys["physical_offset"] = self.first + self.offsets[records].astype(np.int64)
        keys["timestamp"] = self.timestamps[records]
        keys["key_hash"] = self.hashes[places]
        keys["is_tag"] = (ends[records] == places + 1) & (self._tagged[records] != 0)
        keys["is_repeat"] = False
        return keys

    def codes(self) -> Numbers:
        """A number for each key that only keys of the same record and hash share."""
        return codes_of(np.repeat(np.arange(self.counts.size), self.counts), self.hashes)

    def unseen(self, seen: Flags) -> Keys:
        """The keys without an entry; `seen` are those that have one."""
        keys = self.take(np.flatnonzero(~seen))
        if len(keys):
            codes = self.codes()
            keys["is_repeat"] = np.isin(codes[~seen], codes[seen])
        return keys

    def columns(self, *, tags: bool) -> tuple[EntryColumns, Numbers]:
        """The keys as a rebuild puts them, with those of tags or without, and their places in the block."""
        places, counts, hashes = np.arange(self.hashes.size), self.counts, self.hashes
        if not tags:
            places = np.delete(places, self.tag_places())
            counts, hashes = counts - (self._tagged != 0), hashes[places]
        return EntryColumns(self.first, self.offsets, self.timestamps, counts, hashes), places

    def tag_places(self) -> Numbers:
        """Places of the keys of tags."""
        places: Numbers = np.cumsum(self.counts, dtype=np.int64)[self._tagged != 0] - 1
        return places


def codes_of(records: Numbers, hashes: npt.NDArray[np.int32]) -> Numbers:
    """One number for each pair of a record's place in its block and a hash."""
    codes: Numbers = (records.astype(np.int64) << 32) | (hashes.astype(np.int64) & 0xFFFFFFFF)
    return codes
