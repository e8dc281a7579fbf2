"""An index file beside the image that a rebuild makes of the same stretch of the log.

The image is built and compared block by block, and what was compared of it is forgotten: it takes the memory of its
slots and of one block.
"""

import mmap
from typing import Final, NamedTuple

import numpy as np

from storage.build.index_builder import EntryColumns, IndexFileBuilder
from storage.doctor.log.scanned_log import MOST_KEYS, ScannedLog
from storage.index.index_copy import IndexCopy, IndexCounts, counts_by_header
from storage.index.index_file import IndexHeader
from storage.kernels.indexes import ENTRY_BYTES

PAGE: Final = mmap.PAGESIZE


class IndexStretch(NamedTuple):
    """The keys that a file covers: ranks and physical offsets of the first and the last; whether some are of tags.

    `ordered`: its entries lie in the order of the log. `leaves_out`: a compaction left out keys that no entry repeats.
    """

    ranks: list[int]
    offsets: list[int]
    has_tags: bool
    ordered: bool = True
    leaves_out: bool = False


NO_STRETCH: Final = IndexStretch([-1, -1], [-1, -1], has_tags=False, ordered=False)


def rebuilt_stretch(
    copy: IndexCopy, slots: int, previous: tuple[int, int] | None, log: ScannedLog
) -> IndexStretch | None:
    """Find the range of the log from which a rebuild makes exactly this file, with or without tag keys; else None.

    `previous`: end timestamp (ms) and end physical offset in the header of the file before.
    """
    counts = counts_by_header(copy, slots)
    if counts is None:
        return None
    image = IndexImage(copy, counts, previous)
    return image.compare(log, tags=True) or image.compare(log, tags=False)


class IndexImage:
    """An index file, and the file that a rebuild would make of the keys behind its first entry."""

    def __init__(self, copy: IndexCopy, counts: IndexCounts, previous: tuple[int, int] | None) -> None:
        """Nothing is built yet."""
        self._copy, self._counts = copy, counts
        self._seed = None if previous is None else IndexHeader(previous[0], previous[0], previous[1], previous[1], 0, 0)
        offsets = copy.entries(counts.slots, counts.entries)["physical_offset"][1 : MOST_KEYS + 2]
        self._first_offset = int(offsets[0])
        # The first record may have more entries in the file before; here are its last ones.
        self._of_first_record = int((offsets != offsets[0]).argmax()) or counts.entries

    def compare(self, log: ScannedLog, *, tags: bool) -> IndexStretch | None:
        """Build the image as long as it agrees with the file; None where it does not."""
        builder = IndexFileBuilder(self._counts.slots, self._counts.capacity, self._seed)
        left, has_tags = self._counts.entries, False
        ends: list[tuple[int, int]] = []
        for keys in log.keys_from(self._first_offset):
            columns, places = keys.columns(tags=tags)
            skip = 0 if ends else columns.stop_of(self._first_offset) - self._of_first_record
            chosen = places[max(skip, 0) : max(skip, 0) + left]
            if skip < 0 or not self._put(builder, columns, skip, chosen.size):
                return None
            if chosen.size:
                ends = [*ends, *keys.take(chosen[[0, -1]])[["rank", "physical_offset"]].tolist()]
                first_tag, stop_tag = np.searchsorted(keys.tag_places(), [chosen[0], chosen[-1] + 1])
                has_tags |= tags and bool(first_tag < stop_tag)
                left -= chosen.size
            if not left:
                break
        builder.finish()
        behind = self._copy.first_data(builder.used, builder.size)
        if left or behind >= 0 or not self._copy.holds(builder.memory, 0, builder.entries_start + ENTRY_BYTES):
            return None
        ranks, offsets = zip(ends[0], ends[-1], strict=True)
        return IndexStretch(list(ranks), list(offsets), has_tags)

    def _put(self, builder: IndexFileBuilder, columns: EntryColumns, skip: int, count: int) -> bool:
        """Put entries, and forget them; whether the file has them, too."""
        start = builder.settled
        builder.put(columns, skip, count)
        if not self._copy.holds(builder.memory, start, builder.settled):
            return False
        first = -(-builder.entries_start // PAGE) * PAGE
        first, stop = max(first, start // PAGE * PAGE), builder.settled // PAGE * PAGE
        if first < stop:
            builder.memory.madvise(mmap.MADV_DONTNEED, first, stop - first)
        return True
