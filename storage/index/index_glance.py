"""A first look at an index file: may queries use it before all of it has been checked?

Checking a file means reading it, and a large store has hundreds of gigabytes of index. So a start looks at a few
entries of most files: at the front, where pointers follow from hashes, at the end, whose slots must lead there, and at
those that are compared with the log. What it finds holds until the file has been checked; answers say so.
"""

from collections.abc import Sequence

from storage.files.mapped_file import MappedFile
from storage.index._index_shape import IndexShape
from storage.index.index_file import (
    DEFAULT_SLOTS,
    IndexFile,
    IndexHeader,
    candidate_slot_counts,
    last_data_position,
    read_header,
)
from storage.index.index_mark import mark_of
from storage.index.index_probe import probe_index_file
from storage.kernels.indexes import ENTRY_BYTES, INDEX_HEADER, SLOT_BYTES
from storage.log.commit_log import CommitLog

LOOKED_AT = 256
"""Entries at the front and at the end."""


def glance(
    file: MappedFile, commit_log: CommitLog, hints: Sequence[int], vouched: tuple[int, int] | None
) -> tuple[IndexFile, bool] | None:
    """The file in the shape that it seems to have, and whether it seems to keep tags; None where nothing is sure.

    Its gaps are not known. Waits for the disk.
    """
    header = read_header(file)
    likely = [*((vouched[0],) if vouched else ()), *hints, DEFAULT_SLOTS]
    for slots in candidate_slot_counts(last_data_position(file), header.index_count, likely):
        index = _with_slots(file, header, slots)
        if index is None or not (_begins_well(index) and _ends_well(index)):
            continue
        probe = probe_index_file(index, commit_log)
        mark = mark_of(file, slots)
        return (index, probe.has_tags and (mark is None or mark.has_tags)) if probe.fits else None
    return None


def checking_cost(file: MappedFile) -> int:
    """Estimate the bytes that a check of the file reads, by its header."""
    return min(
        file.size, INDEX_HEADER + ENTRY_BYTES * max(read_header(file).index_count, 0) + SLOT_BYTES * DEFAULT_SLOTS
    )


def _with_slots(file: MappedFile, header: IndexHeader, slots: int) -> IndexFile | None:
    """The file if it has so many slots and what its header counts; None if that is impossible."""
    entries = header.index_count - 1
    if entries < 1 or INDEX_HEADER + SLOT_BYTES * slots + ENTRY_BYTES * (entries + 1) > file.size:
        return None
    mark = mark_of(file, slots)
    if mark is not None and (not mark.is_complete or mark.entries > entries):
        return None
    index = IndexFile(file, IndexShape(slots, entries, 0, 0, mark is None, ()))
    minimum, maximum = index.entry(1).physical_offset, index.entry(entries).physical_offset
    gaps: tuple[tuple[int, int], ...] = ()
    compacted = mark.entries if mark is not None else 0
    if mark is not None:
        # They lie slot by slot; the header has the smallest and, but for what was left out behind it, the largest.
        minimum = header.begin_physical_offset
        later = entries > mark.entries
        maximum = index.entry(entries).physical_offset if later else header.end_physical_offset
        gaps = ((minimum, index.entry(mark.entries + 1).physical_offset),) if later else ()
    if not 0 <= minimum <= maximum:
        return None
    return IndexFile(file, IndexShape(slots, entries, minimum, maximum, mark is None, gaps, compacted))


def _begins_well(index: IndexFile) -> bool:
    """Whether the pointers of the first entries follow from their hashes."""
    slots, heads = index.shape.slots, dict[int, int]()
    for number in range(1, min(index.shape.entries, LOOKED_AT) + 1):
        entry = index.entry(number)
        if entry.key_hash < 0 or entry.previous != heads.get(entry.key_hash % slots, 0):
            return False
        heads[entry.key_hash % slots] = number
    return True


def _ends_well(index: IndexFile) -> bool:
    """Whether the slots of the last entries lead to them, or behind them, and what they point to is of their slot."""
    slots, entries = index.shape.slots, index.shape.entries
    first = max(entries - LOOKED_AT, 1)
    newest = {index.entry(number).key_hash % slots: number for number in range(first, entries + 1)}
    for number in range(first, entries + 1):
        entry = index.entry(number)
        if entry.key_hash < 0 or not 0 <= entry.previous < number:
            return False
        if entry.previous and index.entry(entry.previous).key_hash % slots != entry.key_hash % slots:
            return False
    return all(number <= index.slot(slot) <= index.capacity for slot, number in newest.items())
