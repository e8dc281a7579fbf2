"""The task that takes one index file apart: its entries, checked, in packed blocks by the cell of the log they are of.

The file is read by blocks from front to back, once: its slots, then its entries, whose pointers must be what their
hashes make of them, and the slots too in the end. So a file that was torn is noticed before anything is made of it.
Behind a broker that runs, the newest file grows meanwhile: what its header counted at first is read, and its slots may
be ahead of that.
"""

import mmap
import os
from collections.abc import Iterator
from dataclasses import astuple
from operator import itemgetter
from pathlib import Path
from typing import Final, Self

import msgspec
import numpy as np

from protocol.errors import StoreError, TruncatedFile
from spark_jobs.compact._log_cells import CELL_BYTES, cut_log
from spark_jobs.compact._record_facts import has_record
from spark_jobs.run.attempt import Attempt, AttemptRecord, Notify, run_attempt
from spark_jobs.run.blocks import BlockWriter
from spark_jobs.scan.probe_store import SegmentPlace
from spark_jobs.scan.scan_segment import ENTRIES
from storage.files.direct_writer import aligned_memory
from storage.files.mapped_file import open_read_only
from storage.index.index_file import HEADER, IndexHeader
from storage.kernels.index_entries import check_entries, check_slots, deal_entries
from storage.kernels.indexes import ENTRY_BYTES, INDEX_HEADER, SLOT_BYTES

PHASE: Final = "split"
ENTRIES_AT_ONCE: Final = 2_000_000
UNKNOWN: Final = -1
HINT: Final = "; --from-log builds the index from the log instead"


class SplitTask(msgspec.Struct, frozen=True):
    """An index file, its slots, its entries (UNKNOWN: as its header says), and the segments of the log.

    `is_growing`: a broker may be writing to it. `is_last`: say whether there is a record where its header ends.
    """

    work: str
    number: int
    path: str
    slots: int
    entries: int
    segments: tuple[SegmentPlace, ...]
    is_growing: bool = False
    is_last: bool = False
    cell_bytes: int = CELL_BYTES
    entries_at_once: int = ENTRIES_AT_ONCE

    @property
    def name(self) -> str:
        """The task's name."""
        return f"{PHASE}-{self.number:08d}"


class SplitSummary(AttemptRecord):
    """What a split made of an index file.

    `cell_table` is the position of the table of its blocks (:class:`spark_jobs.compact._merge_entries.CellTable`), −1
    without any; `segments` has a bit, the first one the highest, for each segment of which there are entries. `below`,
    `beyond` and `nowhere` are the entries below the log's minimum, behind its end, and in a hole of it. `end_is_known`:
    the record is there that its header ends with, or has expired.
    """

    header: list[int]
    end_is_known: bool
    entries: int
    below: int
    beyond: int
    nowhere: int
    cell_table: int
    segments: bytes


def split_index_file(task: SplitTask) -> SplitSummary:
    """Split one file; the summary, as left in the work directory. Raises StoreError where the file is not sound."""

    def split(attempt: Attempt, notify: Notify) -> SplitSummary:
        with (
            IndexFileReader(Path(task.path), task.slots) as file,
            BlockWriter(attempt.blocks(ENTRIES), task.path) as writer,
        ):
            return _Split(task, file, writer).run(notify)

    return run_attempt(task.work, task.name, split)


class IndexFileReader:
    """Header, entries and slots of an index file, read in this order; raises StoreError where they end early."""

    def __init__(self, path: Path, slots: int) -> None:
        """Open the file and read its header; `capacity` is how many entries it has room for."""
        self.path, self.slots = path, slots
        self._descriptor = open_read_only(path)
        try:
            self.header = IndexHeader(*HEADER.unpack(self._read(0, aligned_memory(INDEX_HEADER), INDEX_HEADER)))
            size = os.fstat(self._descriptor).st_size
        except BaseException:
            os.close(self._descriptor)
            raise
        self.capacity = max((size - INDEX_HEADER - SLOT_BYTES * slots) // ENTRY_BYTES - 1, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def entries(self, count: int, at_once: int) -> Iterator[tuple[int, int, memoryview]]:
        """Entries 1 to `count` as (number of the first, how many, bytes); the bytes are gone with the next step."""
        first = INDEX_HEADER + SLOT_BYTES * self.slots
        memory = aligned_memory(ENTRY_BYTES * min(at_once, count))
        for number in range(1, count + 1, at_once):
            size = min(at_once, count + 1 - number)
            yield number, size, self._read(first + ENTRY_BYTES * number, memory, ENTRY_BYTES * size)

    def slot_bytes(self) -> memoryview:
        """The slots as they are now."""
        size = SLOT_BYTES * self.slots
        return self._read(INDEX_HEADER, aligned_memory(size), size)

    def _read(self, position: int, memory: mmap.mmap, size: int) -> memoryview:
        view, done = memoryview(memory)[:size], 0
        while done < size:
            try:
                count = os.preadv(self._descriptor, [view[done:]], position + done)
            except OSError as error:
                raise StoreError(self.path, what=f"cannot be read at {position}: {error.strerror}") from error
            if not count:
                raise TruncatedFile(self.path, expected=position + size, found=position + done)
            done += count
        return view


class _Split:
    """One pass over the entries of a file."""

    def __init__(self, task: SplitTask, file: IndexFileReader, writer: BlockWriter) -> None:
        self._task, self._file, self._writer = task, file, writer
        self._log = cut_log(task.segments, task.cell_bytes)
        self._heads = np.zeros(task.slots, dtype=np.int32)
        self._below = self._beyond = self._nowhere = 0
        self._cells: list[tuple[int, int, int, int]] = []

    def run(self, notify: Notify) -> SplitSummary:
        task, file = self._task, self._file
        count = task.entries if task.entries != UNKNOWN else max(file.header.index_count - 1, 0)
        if count > file.capacity:
            raise self._unsound(f"{count} entries, but space for {file.capacity}")
        for number, size, data in file.entries(count, task.entries_at_once):
            self._deal(number, data)
            notify(number + size - 1, 0)
        self._check_slots(count)
        return {
            "header": list(astuple(file.header)),
            "end_is_known": task.is_last and self._is_end_known(),
            "entries": count,
            "below": self._below,
            "beyond": self._beyond,
            "nowhere": self._nowhere,
            # In the order of the log, and for one cell in that of the file.
            "cell_table": self._writer.write_list(sorted(self._cells, key=itemgetter(1))) if self._cells else -1,
            "segments": self._segments(),
        }

    def _segments(self) -> bytes:
        """A bit for each segment."""
        has_entries = np.zeros(len(self._task.segments), np.bool_)
        has_entries[[segment for *_, segment in self._cells]] = True
        return np.packbits(has_entries).tobytes()

    def _deal(self, number: int, entries: memoryview) -> None:
        """Check some entries and write a block for each cell that any of them is of."""
        bad = check_entries(entries, number, self._heads)
        if bad:
            raise self._unsound(f"its entry {bad}")
        log = self._log
        dealt = deal_entries(entries, log.starts, log.ends)
        self._below += dealt.below
        self._beyond += dealt.beyond
        self._nowhere += dealt.nowhere
        first = 0
        for cell in np.flatnonzero(dealt.counts).tolist():
            stop = first + int(dealt.counts[cell])
            columns = {"hashes": dealt.hashes[first:stop], "positions": dealt.positions[first:stop]}
            block = self._writer.write(int(log.starts[cell]), int(log.ends[cell]), columns)
            self._cells.append((block, int(log.starts[cell]), stop - first, int(log.segments[cell])))
            first = stop

    def _check_slots(self, count: int) -> None:
        if not count:
            return  # the slots of a file without entries are nothing that anybody believes
        newest = count if self._task.is_growing else -1
        bad = check_slots(self._file.slot_bytes(), self._heads, newest)
        if bad >= 0:
            raise self._unsound(f"its slot {bad}")

    def _unsound(self, found: str) -> StoreError:
        expected = f"slots and pointers that follow from its hashes and {self._task.slots} slots{HINT}"
        return StoreError(self._file.path, expected=expected, found=found)

    def _is_end_known(self) -> bool:
        """Whether what the header says of the last entry's record may be true: it is there, or has expired."""
        end, segments = self._file.header.end_physical_offset, self._task.segments
        return 0 <= end < segments[0].base_offset or has_record(segments, end)
