"""Scanned entries on their way from memory into an index file of our own.

Entries in memory lie in runs sorted by hash. They are taken out in the order of the log, a stretch at a time, and put
into a file by the kernel that builds a broker's, which is written while it grows: what this takes in memory does not
depend on how many there are.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from storage.build._entry_columns import EntryColumns
from storage.build.index_builder import IndexFileBuilder
from storage.files.direct_writer import GrowingFile
from storage.index.tail_index import EntryRun, TailIndex
from storage.log.commit_log import CommitLog
from storage.ranges import Ranges, intersect, lie_within, merge, subtract

ENTRIES_AT_ONCE: Final = 1 << 20
LONGEST_STRETCH: Final = 1 << 32
"""Offsets of a stretch count from its first one in 32 bits."""

Offsets = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.int32]


def choose_ranges(tail: TailIndex, commit_log: CommitLog, stop: int, entries: int) -> Ranges:
    """The lowest ranges below ``stop`` whose keys are known, and fit one file of so many entries, less one.

    They end behind the first byte of a record that has keys. Where no record could be read they have nothing: what is
    damaged or missing today may be mended tomorrow.
    """
    there = [(segment.base_offset, segment.end) for segment in commit_log.segments]
    known = intersect(subtract(tail.known, merge(tail.skipped)), merge(there))
    low, high = 0, stop
    if _count_below(tail, stop) < entries:
        low = stop
    while high - low > 1:
        middle = (low + high) // 2
        if _count_below(tail, middle) < entries:
            low = middle
        else:
            high = middle
    known = intersect(known, [(0, low)])
    return intersect(known, [(0, _last_of(tail, known) + 1)])


def write_index_file(path: Path, tail: TailIndex, ranges: Ranges, slots: int, entries: int) -> None:
    """Make an index file of the entries of some ranges, which must fit it; on the disk when this returns.

    Raises OSError.
    """
    builder = IndexFileBuilder(slots, entries)
    with GrowingFile(path, builder.memory, builder.entries_start, forget=True) as file:
        for start, stop in ranges:
            for offsets, hashes in _stretches(tail.runs, start, stop):
                builder.put(_columns(offsets, hashes), 0, hashes.size)
                file.settle(builder.settled)
        builder.finish()
        file.finish(builder.used, builder.size)


def _count_below(tail: TailIndex, physical_offset: int) -> int:
    return sum(
        run.offsets.size if run.last < physical_offset else int(np.count_nonzero(run.offsets < physical_offset))
        for run in tail.runs
        if run.first < physical_offset
    )


def _last_of(tail: TailIndex, ranges: Ranges) -> int:
    """The highest physical offset of an entry in some ranges, −1 without one."""
    inside = (run.offsets[lie_within(run.offsets, ranges)] for run in tail.runs)
    return max((int(offsets.max()) for offsets in inside if offsets.size), default=-1)


def _stretches(runs: Sequence[EntryRun], start: int, stop: int) -> Iterator[tuple[Offsets, Hashes]]:
    """Offsets and hashes of the records that start in [start, stop), in the order of the log, some at a time."""
    runs = [run for run in runs if run.last >= start and run.first < stop]
    inside = [(run.offsets >= start) & (run.offsets < stop) for run in runs]
    count = sum(int(np.count_nonzero(each)) for each in inside)
    if stop - start > LONGEST_STRETCH or (count > ENTRIES_AT_ONCE and stop - start > 1):
        middle = (start + stop) // 2
        del inside
        yield from _stretches(runs, start, middle)
        yield from _stretches(runs, middle, stop)
    elif count:
        offsets = np.concatenate([run.offsets[each] for run, each in zip(runs, inside, strict=True)])
        hashes = np.concatenate([run.hashes[each] for run, each in zip(runs, inside, strict=True)])
        order = np.argsort(offsets, kind="stable")
        yield offsets[order], hashes[order]


def _columns(offsets: Offsets, hashes: Hashes) -> EntryColumns:
    """Entries in the order of the log, grouped by their records; of times nothing is known."""
    starts = np.flatnonzero(np.diff(offsets, prepend=-1))
    counts = np.diff(starts, append=offsets.size)
    records = offsets[starts]
    return EntryColumns(
        int(records[0]),
        (records - records[0]).astype(np.uint32),
        np.zeros(records.size, np.int64),
        counts.astype(np.uint16),
        hashes,
    )
