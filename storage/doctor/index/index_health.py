"""Numbers of each index file: how full it is, how long its chains are, how many entries point beyond the log."""

from dataclasses import dataclass

import numpy as np

from storage.doctor._opened_store import OpenedStore
from storage.index.index_file import ENTRY, ENTRY_DTYPE, IndexFile, end_of_entries

ENTRIES_AT_ONCE = 4_000_000
MOST_MEASURED = 8
"""Files whose entries are all counted, the newest ones; soundness is checked of every file."""


@dataclass(frozen=True, slots=True)
class IndexFileHealth:
    """Numbers of one sound file; `beyond_log` and `longest_chain` are −1 where they were not counted."""

    path: str
    slots: int
    entries: int
    capacity: int
    begin_timestamp: int
    end_timestamp: int
    first_physical_offset: int
    last_physical_offset: int
    beyond_log: int
    expired: int
    longest_chain: int
    used_slots: int


def measure_index_files(store: OpenedStore) -> list[IndexFileHealth]:
    """Numbers of all sound files, in name order."""
    newest = {file.index.name for file in store.index.files[-MOST_MEASURED:]}
    return [_measure(store, file.index, counted=file.index.name in newest) for file in store.index.files]


def _measure(store: OpenedStore, index: IndexFile, *, counted: bool) -> IndexFileHealth:
    shape, header = index.shape, index.header
    beyond = expired = longest = used = -1
    if counted:
        beyond, expired, longest, used = _count(store, index)
    return IndexFileHealth(
        path=str(index.file.path),
        slots=shape.slots,
        entries=shape.entries,
        capacity=index.capacity,
        begin_timestamp=header.begin_timestamp,
        end_timestamp=header.end_timestamp,
        first_physical_offset=shape.minimum if shape.compacted else index.entry(1).physical_offset,
        last_physical_offset=shape.maximum if shape.compacted else index.entry(shape.entries).physical_offset,
        beyond_log=beyond,
        expired=expired,
        longest_chain=longest,
        used_slots=used,
    )


def _count(store: OpenedStore, index: IndexFile) -> tuple[int, int, int, int]:
    """Entries beyond the log, entries before it, the longest chain, and slots in use."""
    shape = index.shape
    first = end_of_entries(shape) - ENTRY.size * shape.entries
    beyond = expired = 0
    chains = np.zeros(shape.slots, dtype=np.int32)
    for start in range(0, shape.entries, ENTRIES_AT_ONCE):
        count = min(ENTRIES_AT_ONCE, shape.entries - start)
        entries = np.frombuffer(index.file.view, ENTRY_DTYPE, count, first + ENTRY.size * start)
        offsets = entries["physical_offset"].astype(np.int64)
        beyond += int((offsets >= store.commit_log.end).sum())
        expired += int((offsets < store.commit_log.minimum).sum())
        chains += np.bincount(entries["key_hash"] % shape.slots, minlength=shape.slots).astype(np.int32)
    return beyond, expired, int(chains.max()), int(np.count_nonzero(chains))
