"""Entries for what the index files do not cover: scanned from the log by a kernel, kept in memory, answered like files.

A broker's index lags, loses its last file in every crash, and may be missing altogether; a file whose counts cannot
be found out counts as missing. The ranges of physical offsets that no sound file covers are scanned here. An entry
takes 12 bytes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from storage.commit_log import CommitLog, Segment
from storage.kernels.scan import AT_DAMAGE, MAXIMUM_PIECES, OUTPUT_FULL, find_record, scan_keys

OUTPUT_ENTRIES = 1 << 20
Range = tuple[int, int]
"""Physical offsets [from, to) at which scanned records start."""


@dataclass(frozen=True, slots=True)
class TailIndex:
    """Scanned entries, sorted by (hash, physical offset): ``hashes`` int32, ``offsets`` int64, of one length.

    ``skipped`` are ranges of damaged bytes that the scan stepped over; ``remaining`` what is still to be scanned.
    """

    hashes: np.ndarray
    offsets: np.ndarray
    skipped: tuple[Range, ...] = ()
    remaining: tuple[Range, ...] = ()

    @property
    def remaining_bytes(self) -> int:
        """Bytes of log whose keys are not known yet."""
        return sum(stop - start for start, stop in self.remaining)


def empty_tail(ranges: Iterable[Range] = ()) -> TailIndex:
    """A tail that knows nothing yet and has ``ranges`` to scan."""
    return TailIndex(np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int64), (), tuple(ranges))


def extend_tail(tail: TailIndex, commit_log: CommitLog, budget: int) -> TailIndex:
    """Scan up to about ``budget`` bytes of what remains; a new tail. Waits for the disk."""
    scan = _Scan(commit_log)
    remaining = list(tail.remaining)
    while remaining and budget > 0:
        start, stop = remaining.pop(0)
        part = min(stop, start + budget)
        reached = scan.run(start, part)
        budget -= part - start
        if reached < stop:
            remaining.insert(0, (reached, stop))
    hashes = np.concatenate([tail.hashes, *scan.hashes])
    offsets = np.concatenate([tail.offsets, *scan.offsets])
    order = np.lexsort((offsets, hashes))
    return TailIndex(hashes[order], offsets[order], (*tail.skipped, *scan.skipped), tuple(remaining))


def merge_candidates(tail: TailIndex, key_hash: int, candidates: np.ndarray) -> TailIndex:
    """A tail for one lookup: what this one knows of a hash, and further proposed offsets (int64, any order)."""
    low, high = np.searchsorted(tail.hashes, [key_hash, key_hash + 1])
    offsets = np.unique(np.concatenate([tail.offsets[low:high], candidates.astype(np.int64)]))
    return TailIndex(np.full(offsets.size, key_hash, dtype=np.int32), offsets, tail.skipped, tail.remaining)


class _Scan:
    """One pass over ranges of the log; collects arrays."""

    def __init__(self, commit_log: CommitLog) -> None:
        self._log = commit_log
        self._hashes = np.empty(OUTPUT_ENTRIES + MAXIMUM_PIECES, dtype=np.int32)
        self._offsets = np.empty(OUTPUT_ENTRIES + MAXIMUM_PIECES, dtype=np.int64)
        self._result = np.zeros(4, dtype=np.int64)
        self.hashes: list[np.ndarray] = []
        self.offsets: list[np.ndarray] = []
        self.skipped: list[Range] = []

    def run(self, start: int, stop: int) -> int:
        """Scan records that start in [start, stop); where the first record behind them starts (≥ stop)."""
        at = start
        for segment in _overlapping(self._log.segments, start, stop):
            at = max(at, segment.base_offset)
            at = self._run_segment(segment, at, stop)
        return max(at, stop)

    def _resynchronise(self, segment: Segment, at: int) -> int:
        """First intact record at or behind an offset where none starts."""
        position = find_record(
            segment.file.address, at - segment.base_offset, segment.valid_length, segment.base_offset
        )
        return segment.base_offset + int(position)

    def _run_segment(self, segment: Segment, at: int, stop: int) -> int:
        """Scan one segment from a record's start; where the scan stands at the segment's end or ``stop``."""
        base, address = segment.base_offset, segment.file.address
        while at < stop and at < segment.end:
            position = at - base
            limit = min(segment.valid_length, stop - base)
            reached = base + int(
                scan_keys(
                    address, position, limit, segment.valid_length, base, self._hashes, self._offsets, self._result
                )
            )
            self._collect()
            if self._result[0] == OUTPUT_FULL:
                at = reached
            elif self._result[0] == AT_DAMAGE and reached < stop:
                at = self._resynchronise(segment, reached + 1)
                self.skipped.append((reached, at))
            else:
                return max(reached, stop) if reached >= stop else segment.end
        return at

    def _collect(self) -> None:
        count = int(self._result[1])
        if count:
            self.hashes.append(self._hashes[:count].copy())
            self.offsets.append(self._offsets[:count].copy())


def _overlapping(segments: Sequence[Segment], start: int, stop: int) -> list[Segment]:
    return [segment for segment in segments if segment.base_offset < stop and segment.end > start]
