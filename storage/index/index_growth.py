"""An index file that a broker goes on filling: what the entries put since it was last looked at cover.

Looked at are those entries and the records they belong to, nothing else. The header's count is the last thing that a
broker changes for an entry but for the two end fields (store-format §3.4), so entries up to it are whole.
"""

from bisect import bisect_left
from dataclasses import replace

from storage.index.index_coverage import find_new_gaps
from storage.index.index_file import IndexFile
from storage.index.index_shape import IndexShape
from storage.kernels.indexes import check_growth
from storage.log.commit_log import CommitLog


def grown_shape(index_file: IndexFile, commit_log: CommitLog, has_tags: bool) -> IndexShape | None:
    """The file's shape as it is now, as far as the log reaches; the same where no entry came to it.

    None where new entries do not hold together with those before; then the whole file is to be examined. For a file
    that has entries, and whose offsets never fall, or a compacted one.
    """
    shape = index_file.shape
    entries = _entries_below(index_file, commit_log.end)
    if entries <= shape.entries:
        return shape
    if index_file.entry(shape.entries + 1).physical_offset < shape.maximum:
        return None
    if check_growth(index_file.file.region, shape.slots, shape.entries, entries, index_file.capacity):
        return None
    maximum = index_file.entry(entries).physical_offset
    grown = index_file.grown(replace(shape, entries=entries, maximum=maximum))
    return replace(grown.shape, gaps=find_new_gaps(grown, shape, commit_log, has_tags))


def _entries_below(index_file: IndexFile, end: int) -> int:
    """How many of the entries that the header counts belong to records that start before ``end``."""
    counted = min(index_file.header.index_count - 1, index_file.capacity)
    if counted <= index_file.shape.entries:
        return index_file.shape.entries
    new = range(index_file.shape.entries + 1, counted + 1)
    return index_file.shape.entries + bisect_left(new, end, key=lambda number: index_file.entry(number).physical_offset)
