"""Which records the index may know some hashes for: each file is read once, from its first entry to its last."""

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from storage.files.mapped_file import MappedFile
from storage.index.index_file import ENTRY_DTYPE
from storage.index.tail_index import EntryRun, Hashes, Offsets
from storage.kernels.indexes import ENTRY_BYTES, INDEX_HEADER, SLOT_BYTES
from storage.store.snapshot import Snapshot

ENTRIES_AT_ONCE: Final = 1 << 18
"""Entries whose columns fit a processor's cache."""

FEWEST_MARKS: Final = 1 << 16
MOST_MARKS: Final = 1 << 27
MARKS_A_HASH: Final = 32


class WantedHashes:
    """Hashes to be recognised among very many: first by one bit of memory each, then by a search for the few left."""

    def __init__(self, hashes: Hashes) -> None:
        """``hashes`` are sorted, each once."""
        self._hashes = hashes
        size = FEWEST_MARKS
        while size < min(MARKS_A_HASH * hashes.size, MOST_MARKS):
            size *= 2
        self._mask = np.int32(size - 1)
        self._marks = np.zeros(size, np.bool_)
        self._marks[hashes & self._mask] = True

    def numbers_in(self, hashes: npt.NDArray[np.int32]) -> npt.NDArray[np.intp]:
        """The places of wanted hashes in an array."""
        maybe = np.flatnonzero(self._marks[hashes & self._mask])
        some = hashes[maybe]
        places = np.minimum(np.searchsorted(self._hashes, some), max(self._hashes.size - 1, 0))
        return maybe[self._hashes[places] == some] if self._hashes.size else maybe[:0]

    def offsets_in_run(self, run: EntryRun) -> Offsets:
        """Physical offsets of the wanted ones among scanned entries, which are sorted by hash."""
        starts = np.searchsorted(run.hashes, self._hashes)
        counts = np.searchsorted(run.hashes, self._hashes, "right") - starts
        starts, counts = starts[counts > 0], counts[counts > 0]
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        found: Offsets = run.offsets[np.repeat(starts, counts) + within]
        return found


def offsets_of_hashes(snapshot: Snapshot, hashes: Hashes) -> Iterator[tuple[Offsets, int]]:
    """Physical offsets that stand beside wanted hashes, and bytes of index gone over for them. Waits for the disk."""
    wanted = WantedHashes(hashes)
    for file in snapshot.index.all_files:
        shape = file.index.shape
        yield from offsets_in_file(file.index.file, shape.slots, shape.entries, wanted)
    for run in snapshot.tail.runs:
        yield wanted.offsets_in_run(run), run.hashes.nbytes + run.offsets.nbytes


def index_bytes(snapshot: Snapshot) -> int:
    """Bytes of entries that :func:`offsets_of_hashes` goes over."""
    entries = sum(file.index.shape.entries for file in snapshot.index.all_files)
    return ENTRY_BYTES * entries + sum(run.hashes.nbytes + run.offsets.nbytes for run in snapshot.tail.runs)


def offsets_in_file(file: MappedFile, slots: int, entries: int, wanted: WantedHashes) -> Iterator[tuple[Offsets, int]]:
    """Physical offsets that stand beside wanted hashes in a sound index file, and bytes gone over. Waits."""
    first = INDEX_HEADER + SLOT_BYTES * slots + ENTRY_BYTES  # entry 0 is none
    for number in range(0, entries, ENTRIES_AT_ONCE):
        count = min(ENTRIES_AT_ONCE, entries - number)
        rows = np.frombuffer(file.view, ENTRY_DTYPE, count, first + ENTRY_BYTES * number)
        found = wanted.numbers_in(rows["key_hash"].astype(np.int32))
        yield rows["physical_offset"][found].astype(np.int64), count * ENTRY_BYTES
