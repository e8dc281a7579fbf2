"""Build one index file in memory from columns of entries: as a broker would have, or compact.

A broker puts an entry behind the others, wherever its slot's last entry lies, so that a look-up touches a page for each
entry of a slot. The compact form has the entries of a slot side by side; it is an index file like any other
(store-format §3.4, §3.5, §3.9).
"""

from dataclasses import astuple
from typing import Final

import numpy as np
import numpy.typing as npt

from storage.build._entry_columns import EntryColumns
from storage.files.direct_writer import aligned_memory
from storage.index.index_file import HEADER, IndexHeader
from storage.index.index_mark import write_mark
from storage.kernels.indexes import ENTRY_BYTES, INDEX_HEADER, SLOT_BYTES, IndexWriter, place_entries

__all__ = ["CompactFileBuilder", "EntryColumns", "IndexFileBuilder"]

Numbers = npt.NDArray[np.int64]
LATEST: Final = 2**63 - 1


class _IndexMemory:
    """A file of ``slots`` slots and ``entries`` entries, of which one is never used, in page-aligned memory.

    `memory` is the map, zero behind the ``size`` bytes of the file; `used` how many bytes there are up to the last that
    is not zero.
    """

    def __init__(self, slots: int, entries: int) -> None:
        if slots < 1 or entries < 1:
            raise ValueError(f"an index file of {slots} slots and {entries} entries holds nothing")
        self.slots, self.entries = slots, entries
        self.size = INDEX_HEADER + SLOT_BYTES * slots + ENTRY_BYTES * entries
        self.memory = aligned_memory(self.size)
        self.used = INDEX_HEADER

    @property
    def room(self) -> int:
        """How many entries can be put yet."""
        raise NotImplementedError

    def _stops(self, columns: EntryColumns, first_entry: int, count: int) -> Numbers:
        """Where the entries of each record end; it is checked here what a kernel takes for granted."""
        stops = np.cumsum(columns.record_entries, dtype=np.int64)
        held, records = len(columns.hashes), len(stops)
        if records != len(columns.record_offsets) or records != len(columns.record_timestamps):
            raise ValueError(f"columns are not all of length {records}")
        if held != (stops[-1] if records else 0):
            raise ValueError(f"{held} hashes for {stops[-1] if records else 0} entries of records")
        if not 0 <= first_entry <= first_entry + count <= held:
            raise ValueError(f"entries {first_entry} to {first_entry + count} of {held}")
        if count > self.room:
            raise ValueError(f"{count} entries for a file that has room for {self.room}")
        return stops

    def _write(self, header: IndexHeader) -> IndexHeader:
        HEADER.pack_into(self.memory, 0, *astuple(header))
        if header.index_count > 1:
            self.used = INDEX_HEADER + SLOT_BYTES * self.slots + ENTRY_BYTES * header.index_count
        return header


class IndexFileBuilder(_IndexMemory):
    """One file, byte for byte as a broker builds it."""

    def __init__(self, slots: int, entries: int, seed: IndexHeader | None = None) -> None:
        """Start an empty file; ``seed`` is the header of the file before it, None for the first one of all.

        ``entries`` is what a broker's configuration says (20,000,000): one more than a file ever holds.
        """
        super().__init__(slots, entries)
        ends = (max(seed.end_timestamp, 0), max(seed.end_physical_offset, 0)) if seed is not None else (0, 0)
        self._writer = IndexWriter(self.memory, slots, entries, *ends)

    @property
    def room(self) -> int:
        """How many entries can be put yet."""
        return self.entries - self._writer.index_count

    @property
    def entries_start(self) -> int:
        """Position in the file behind header and slots, which change up to the end."""
        return INDEX_HEADER + SLOT_BYTES * self.slots

    @property
    def settled(self) -> int:
        """Position behind the last entry: one that was put never changes."""
        return self.entries_start + ENTRY_BYTES * self._writer.index_count

    def put(self, columns: EntryColumns, first_entry: int, count: int) -> None:
        """Put ``count`` entries, from one on; those of a record may be in several files.

        Raises ValueError for more than there are, or than there is room for.
        """
        stops = self._stops(columns, first_entry, count)
        self._writer.put(
            columns.record_offsets.astype(np.int64) + columns.first_offset,
            np.ascontiguousarray(columns.record_timestamps, np.int64),
            stops,
            np.ascontiguousarray(columns.hashes, np.int32),
            first_entry,
            count,
        )

    def finish(self) -> IndexHeader:
        """Write the header, as a clean stop does; the file is what it will be."""
        written = self._writer
        return self._write(
            IndexHeader(
                written.begin_timestamp,
                written.end_timestamp,
                written.begin_physical_offset,
                written.end_physical_offset,
                written.slot_count,
                written.index_count,
            )
        )


class CompactFileBuilder(_IndexMemory):
    """One file in which the entries of a slot lie side by side, oldest first, and which says so in its mark.

    Besides the file it holds 20 bytes for each entry that was put, in memory for ``entries`` of them.
    """

    def __init__(self, slots: int, entries: int) -> None:
        """Start an empty file; ``entries`` as for :class:`IndexFileBuilder`."""
        super().__init__(slots, entries)
        self._count = 0
        self._hashes = np.empty(entries - 1, np.int32)
        self._offsets = np.empty(entries - 1, np.int64)
        self._timestamps = np.empty(entries - 1, np.int64)

    @property
    def room(self) -> int:
        """How many entries can be put yet."""
        return self.entries - 1 - self._count

    @property
    def span(self) -> tuple[int, int]:
        """The smallest and the largest physical offset that was put; something must have been."""
        offsets = self._offsets[: self._count]
        return int(offsets.min()), int(offsets.max())

    def put(self, columns: EntryColumns, first_entry: int, count: int) -> None:
        """As :meth:`IndexFileBuilder.put`. Entries that come first count as older."""
        self._stops(columns, first_entry, count)
        chosen, target = slice(first_entry, first_entry + count), slice(self._count, self._count + count)
        records = np.repeat(np.arange(len(columns.record_entries)), columns.record_entries)[chosen]
        self._hashes[target] = columns.hashes[chosen]
        self._offsets[target] = columns.record_offsets.astype(np.int64)[records] + columns.first_offset
        self._timestamps[target] = columns.record_timestamps[records]
        self._count += count

    def finish(self, end_physical_offset: int = 0, *, complete: bool = False, tags: bool = False) -> IndexHeader:
        """Place the entries and write the header, whose end is ``end_physical_offset`` where no entry lies beyond it.

        Begin and end are the smallest and the largest time and offset, so that no entry's time falls short of begin.
        Only a time above 0 is a begin: to a broker no entry of the file, those that it puts later included, would have
        a time else (§3.5). ``complete`` and ``tags`` are what the mark says (:mod:`storage.index.index_mark`).
        """
        count = self._count
        if not count:
            return self._write(IndexHeader(0, 0, 0, max(end_physical_offset, 0), 0, 1))
        offsets, timestamps = self._offsets[:count], self._timestamps[:count]
        begin = int(timestamps.min(where=timestamps > 0, initial=LATEST))
        begin = begin if begin < LATEST else int(timestamps.max())
        slots = place_entries(self.memory, self.slots, self._hashes, self._offsets, self._timestamps, count, begin)
        write_mark(self.memory, self.slots, count, complete=complete, tags=tags)
        return self._write(
            IndexHeader(
                begin,
                int(timestamps.max()),
                int(offsets.min()),
                max(int(offsets.max()), end_physical_offset),
                slots,
                count + 1,
            )
        )
