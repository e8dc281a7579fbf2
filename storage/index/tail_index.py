"""Entries for what the index files do not cover: scanned from the log by a kernel, kept in memory, answered like files.

A broker's index lags, loses its last file in every crash, and may be missing altogether; a file whose counts cannot
be found out counts as missing. The ranges of physical offsets that no sound file covers are scanned here. An entry
takes 12 bytes. So are those in which batches lie: no broker indexes the messages of a batch.

A log is scanned piece by piece, so entries lie in runs, each sorted by itself. A run at least half as long as the one
before it is merged with it, unless that makes one of more than four million entries: there are few runs, each entry is
moved a few times only, and merging takes no memory to speak of.
"""

from __future__ import annotations

import mmap
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from protocol.errors import StoreError
from protocol.java_hash import index_hash
from protocol.message import Message, decode_message
from storage.arrays import np, npt
from storage.kernels.records import AT_DAMAGE, AT_PACKED, MAXIMUM_PIECES, OUTPUT_FULL, scan_keys, sort_entries
from storage.kernels.store_view import RunsView
from storage.log.commit_log import CommitLog, Segment
from storage.log.record_scan import RecordScan, Stop, end_of_record_around
from storage.ranges import MOST, Range, Ranges, coarse, intersect, lie_within, merge, subtract, total_length

if TYPE_CHECKING:  # there is no such module when code runs
    from _typeshed import ReadableBuffer

OUTPUT_ENTRIES = 1 << 20
ENTRY_BYTES = 12
MOST_MERGED = 1 << 22
SCAN_STEP = 16 * 1024 * 1024
"""Bytes of log scanned at once: of a dense one a million entries."""

Hashes: TypeAlias = "npt.NDArray[np.int32]"
Offsets: TypeAlias = "npt.NDArray[np.int64]"


@dataclass(frozen=True, slots=True)
class EntryRun:
    """Entries sorted by (hash, physical offset), columns of int32 and int64 of one length, not 0.

    ``first`` and ``last`` are the lowest and the highest offset.
    """

    hash_column: memoryview[int]
    offset_column: memoryview[int]
    first: int
    last: int

    @classmethod
    def of(cls, hashes: Sequence[ReadableBuffer], offsets: Sequence[ReadableBuffer]) -> EntryRun:
        """Sort entries that come in pieces, in any order; in that of the log, as they mostly do, it takes less time."""
        hash_column = memoryview(bytearray().join(hashes)).cast("i")
        offset_column = memoryview(bytearray().join(offsets)).cast("q")
        span = sort_entries(hash_column, offset_column)
        return cls(hash_column, offset_column, span.first, span.last)

    @property
    def hashes(self) -> Hashes:
        """The hashes as an array."""
        return np.frombuffer(self.hash_column, np.int32)

    @property
    def offsets(self) -> Offsets:
        """The offsets as an array."""
        return np.frombuffer(self.offset_column, np.int64)

    def merged(self, later: EntryRun) -> EntryRun:
        """The entries of both."""
        return EntryRun.of((self.hash_column, later.hash_column), (self.offset_column, later.offset_column))

    def within(self, ranges: Sequence[Range]) -> EntryRun | None:
        """The entries whose offsets lie in some ranges, None if none does."""
        near = intersect(ranges, [(self.first, self.last + 1)])
        if not near or near == ((self.first, self.last + 1),):
            return self if near else None
        inside = lie_within(self.offsets, ranges)
        if inside.all():
            return self
        if not inside.any():
            return None
        return EntryRun.of([self.hashes[inside].data], [self.offsets[inside].data])

    def offsets_of(self, key_hash: int) -> list[int]:
        """The offsets of the entries of one hash, ascending."""
        column = self.hash_column
        return self.offset_column[bisect_left(column, key_hash) : bisect_right(column, key_hash)].tolist()


@dataclass(frozen=True)
class TailIndex:
    """Scanned entries of what lies in ``scope``, ranges of physical offsets at which records start.

    ``remaining`` is what is still to be scanned of it; ``skipped`` are ranges of damaged bytes that the scan stepped
    over; in ``batches`` all batches lie that are known of.
    """

    runs: tuple[EntryRun, ...] = ()
    scope: Ranges = ()
    remaining: Ranges = ()
    skipped: Ranges = ()
    batches: Ranges = ()

    @cached_property
    def view(self) -> RunsView:
        """The entries as kernels see them."""
        return RunsView((run.hash_column, run.offset_column) for run in self.runs)

    @property
    def entry_count(self) -> int:
        """How many entries there are."""
        return sum(len(run.hash_column) for run in self.runs)

    @property
    def entry_bytes(self) -> int:
        """How much memory the entries take."""
        return ENTRY_BYTES * self.entry_count

    @property
    def known(self) -> Ranges:
        """What of the scope has been scanned."""
        return subtract(self.scope, self.remaining)

    @property
    def remaining_bytes(self) -> int:
        """Bytes of log whose keys are not known yet."""
        return total_length(self.remaining)

    def offsets_of(self, key_hash: int) -> list[int]:
        """The offsets noted for a hash, in no particular order."""
        return [offset for run in self.runs for offset in run.offsets_of(key_hash)]

    def covering(self, scope: Sequence[Range]) -> TailIndex:
        """A tail of other ranges: what is known of them is kept, the rest of them remains to be scanned."""
        known = self.known
        runs = self.runs
        if subtract(known, scope):
            kept = intersect(known, scope)
            runs = tuple(run for run in (run.within(kept) for run in runs) if run is not None)
        skipped = tuple(part for part in self.skipped if intersect([part], scope))
        return TailIndex(runs, tuple(scope), subtract(scope, known), skipped, self.batches)

    def forgetting(self, ranges: Sequence[Range]) -> TailIndex:
        """A tail of the same ranges that knows nothing of some of them: they remain to be scanned."""
        return self.covering(subtract(self.scope, ranges)).covering(self.scope) if ranges else self

    def with_scanned(self, scanned: Scanned) -> TailIndex:
        """A tail that knows what a scan found, as far as it still remained to be scanned."""
        wanted = intersect(self.remaining, scanned.ranges)
        if not wanted:
            return self
        batches = _with_batches(self.batches, scanned.batches) if scanned.batches else self.batches
        runs = self.runs
        run = scanned.run() if scanned.hashes else None
        if run is not None and wanted != tuple(scanned.ranges):
            run = run.within(wanted)
        if run is not None:
            runs = _merge([*runs, run])
        skipped = (*self.skipped, *scanned.skipped)
        return TailIndex(runs, self.scope, subtract(self.remaining, wanted), skipped, batches)


@dataclass
class Scanned:
    """The result of a scan: entries of ``ranges``, ``skipped`` damage in them, and where their ``batches`` lie."""

    ranges: list[Range] = field(default_factory=list)
    hashes: list[ReadableBuffer] = field(default_factory=list)
    offsets: list[ReadableBuffer] = field(default_factory=list)
    skipped: list[Range] = field(default_factory=list)
    batches: list[Range] = field(default_factory=list)

    def run(self) -> EntryRun:
        """All entries sorted; there must be some."""
        return EntryRun.of(self.hashes, self.offsets)


def empty_tail(ranges: Iterable[Range] = (), batches: Ranges = ()) -> TailIndex:
    """A tail that knows nothing yet, has ``ranges`` to scan, and knows where ``batches`` lie."""
    return TailIndex(batches=batches).covering(tuple(ranges))


def extend_tail(tail: TailIndex, commit_log: CommitLog, budget: int) -> TailIndex:
    """Scan up to about ``budget`` bytes of what remains; a new tail. Waits for the disk."""
    while budget > 0 and tail.remaining:
        scanned = scan_ranges(tail.remaining, commit_log, min(budget, SCAN_STEP))
        budget -= total_length(scanned.ranges)
        tail = tail.with_scanned(scanned)
    return tail


def scan_ranges(ranges: Sequence[Range], commit_log: CommitLog, budget: int) -> Scanned:
    """Scan up to about ``budget`` bytes of some ranges, in their order. Waits for the disk."""
    scan = _KeyScan(commit_log)
    for start, stop in ranges:
        if budget <= 0:
            break
        part = min(stop, start + budget)
        reached = scan.run(start, part)
        scan.found.ranges.append((start, min(reached, stop)))
        budget -= part - start
    return scan.found


def merge_candidates(tail: TailIndex, key_hash: int, candidates: Offsets) -> TailIndex:
    """A tail for one lookup: what this one knows, and further offsets (in any order) proposed for a hash."""
    offsets = np.unique(candidates.astype(np.int64))
    if not offsets.size:
        return tail
    run = EntryRun.of([np.full(offsets.size, key_hash, np.int32).data], [offsets.data])
    return replace(tail, runs=(*tail.runs, run))


def _with_batches(known: Ranges, found: Sequence[Range]) -> Ranges:
    """Ranges with batches, and further ones that a scan found, which mostly lie behind them."""
    if known and found[0][0] >= known[-1][0]:
        joined = (*known[:-1], *coarse(merge([known[-1], *found])))
    else:
        joined = merge([*known, *found])
    return coarse(joined, MOST // 2) if len(joined) > MOST else joined


def _merge(runs: list[EntryRun]) -> tuple[EntryRun, ...]:
    """Merge the last runs until each is less than half as long as the one before it, or both are too long together."""
    while len(runs) > 1 and len(runs[-1].hash_column) * 2 >= len(runs[-2].hash_column):
        if len(runs[-1].hash_column) + len(runs[-2].hash_column) > MOST_MERGED:
            break
        last = runs.pop()
        runs[-1] = runs[-1].merged(last)
    return tuple(runs)


class _KeyScan(RecordScan):
    """One pass over ranges of the log; collects arrays."""

    def __init__(self, commit_log: CommitLog) -> None:
        super().__init__(commit_log)
        room = OUTPUT_ENTRIES + MAXIMUM_PIECES  # of whose memory no more is taken than entries are written
        self._hashes = memoryview(mmap.mmap(-1, 4 * room, mmap.MAP_PRIVATE)).cast("i")
        self._offsets = memoryview(mmap.mmap(-1, 8 * room, mmap.MAP_PRIVATE)).cast("q")
        self.found = Scanned(skipped=self.skipped)
        self._inner = 0

    def step(self, segment: Segment, position: int, limit: int) -> Stop:
        """Collect the entries of the records of a segment that start in [position, limit)."""
        region, readable, boundary = segment.file.region, segment.valid_length, segment.boundary
        base, found = segment.base_offset, self.found
        scan = scan_keys(region, position, limit, readable, base, boundary, self._hashes, self._offsets, self._inner)
        self._inner = scan.inner
        if scan.entries:
            found.hashes.append(self._hashes[: scan.entries].tobytes())
            found.offsets.append(self._offsets[: scan.entries].tobytes())
        if scan.first_batch >= 0:
            found.batches.append((base + scan.first_batch, base + scan.last_batch + 1))
        if scan.reason == AT_PACKED:
            return Stop(scan.position + self._unpack(segment, base + scan.position), is_full=True)
        return Stop(scan.position, scan.reason == AT_DAMAGE, scan.reason == OUTPUT_FULL)

    def _unpack(self, segment: Segment, physical_offset: int) -> int:
        """Collect the entries of the messages of a batch that is compressed as a whole; the size of its record."""
        batch = decode_message(segment.file.view[physical_offset - segment.base_offset :], check_crc=False)
        try:
            hashes = {index_hash(text) for each in batch.inner_messages() for text in _indexed_texts(each)}
        except StoreError:  # one that nobody can take apart
            hashes = set()
        self.found.hashes.append(array("i", sorted(hashes)))
        self.found.offsets.append(array("q", [physical_offset] * len(hashes)))
        return batch.total_size


def _indexed_texts(message: Message) -> Iterator[str]:
    """The texts whose hashes an index has for a message."""
    yield from (f"{message.topic}#{key}" for key in (*message.keys, message.unique_key) if key)
    if message.tags:
        yield f"{message.topic}#T#{message.tags}"


def lies_in_record(commit_log: CommitLog, physical_offset: int) -> bool:
    """Whether a place of the log where no record starts is inside one. Waits for the disk."""
    segment = commit_log.segment_of(physical_offset)
    return segment is not None and end_of_record_around(segment, physical_offset) > physical_offset
