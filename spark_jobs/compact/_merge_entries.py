"""The task that merges all index entries of one segment's records: each once, with its record's store time.

A cell of the segment at a time: its entries are gathered from the blocks that splits of index files, or a scan of the
segment, have left. Entries that point at no record, or that the request leaves out, are dropped. The others are written
as blocks like those of a scan, so that placing and building go on as for a rebuild; but each block by rising store
time, which is what a look-up in a compacted file relies on.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from spark_jobs.build.place_entries import Piece, pieces_of_blocks
from spark_jobs.compact._entry_rows import EntryRows, pack_entries, sort_distinct, unpack_entries
from spark_jobs.compact._record_facts import RecordFacts, RecordReader
from spark_jobs.compact._timed_block import write_rows, write_timed_table
from spark_jobs.places.remote_file import RemoteObject
from spark_jobs.run.attempt import Attempt, AttemptRecord, Notify, run_attempt
from spark_jobs.run.blocks import Block, BlockWriter, read_block, read_list
from spark_jobs.scan.scan_segment import ENTRIES
from spark_jobs.scan.segment_window import SegmentWindow
from storage.kernels.index_entries import KEEP, LEFT_OUT, NO_RECORD

PHASE: Final = "merge"


class CellTable(msgspec.Struct, frozen=True, array_like=True):
    """The blocks that a split left in a file, by their table at a position of it.

    A row of the table is (position of a block, physical offset where its cell starts, entries, number of the segment
    that the cell is of), in the order of the log.
    """

    path: str
    position: int

    def rows(self, first: int, end: int) -> np.ndarray:
        """The rows of cells that start in [first, end)."""
        rows = read_list(Path(self.path), self.position)
        return rows[(rows[:, 1] >= first) & (rows[:, 1] < end)]


class MergeTask(msgspec.Struct, frozen=True):
    """A segment, `limit` being the physical offset where its records end, and its entries.

    They are in the `cells` that index files were split into, or in `pieces` of what a scan found. Entries of `topics`
    are dropped, and with `drop_tags` those of tags. `remote` is how the segment was listed, if its path is a URL.
    """

    work: str
    path: str
    base_offset: int
    limit: int
    cells: tuple[CellTable, ...] = ()
    pieces: tuple[Piece, ...] = ()
    topics: tuple[bytes, ...] = ()
    drop_tags: bool = False
    remote: RemoteObject | None = None

    @property
    def name(self) -> str:
        """The task's name."""
        return f"{PHASE}-{self.base_offset:020d}"


class MergeSummary(AttemptRecord):
    """What a merge left of a segment's entries.

    `entry_table` are the fields of the :class:`spark_jobs.compact._timed_block.TimedTable` of its blocks without the
    path, or nothing without any block; `largest` is the last record that has an entry, left out or not, −1 without one;
    `lost` are the first and the last physical offset of entries without a record, and `left_out` those of records of
    topics that were to go, or nothing without any; the last four numbers are entries that were dropped, and why.
    """

    entry_table: list[int]
    entries: int
    largest: int
    lost: list[int]
    left_out: list[int]
    bytes_read: int
    duplicates: int
    no_record: int
    of_topics: int
    of_tags: int


def merge_entries(task: MergeTask) -> MergeSummary:
    """Merge the entries of one segment; the summary, as left in the work directory."""

    def merge(attempt: Attempt, notify: Notify) -> MergeSummary:
        with (
            SegmentWindow(task.path, task.base_offset, task.remote) as window,
            BlockWriter(attempt.blocks(ENTRIES), task.path) as writer,
        ):
            return _Merge(task, window, writer).run(notify)

    return run_attempt(task.work, task.name, merge)


class _Gathered(msgspec.Struct):
    """Entries of a stretch of the log, packed and in any order, positions counted from `start`."""

    start: int
    packed: np.ndarray
    scanned: Block | None = None
    """Knows when its records were stored; they are known to be there."""


class _Merge:
    def __init__(self, task: MergeTask, window: SegmentWindow, writer: BlockWriter) -> None:
        self._task, self._window, self._writer = task, window, writer
        self._reader = RecordReader(window, task.limit - task.base_offset, task.topics, drop_tags=task.drop_tags)
        self._filters = bool(task.topics) or task.drop_tags
        self._dropped = dict.fromkeys(("duplicates", "no_record", "of_topics", "of_tags"), 0)
        self._blocks: list[list[int]] = []
        self._entries = 0
        self._largest = -1
        self._lost: list[int] = []
        self._left_out: list[int] = []

    def run(self, notify: Notify) -> MergeSummary:
        seen = 0
        for gathered in self._gather():
            seen += gathered.packed.size
            self._merge(gathered)
            notify(seen, 0)
        return {
            "entry_table": write_timed_table(self._writer, self._blocks),
            "entries": self._entries,
            "largest": self._largest,
            "lost": self._lost,
            "left_out": self._left_out,
            "bytes_read": self._window.bytes_read,
            "duplicates": self._dropped["duplicates"],
            "no_record": self._dropped["no_record"],
            "of_topics": self._dropped["of_topics"],
            "of_tags": self._dropped["of_tags"],
        }

    def _gather(self) -> Iterator[_Gathered]:
        for start, runs in self._cells():
            yield _Gathered(start, np.concatenate([_packed(block) for block in _read_runs(runs)]))
        for piece in pieces_of_blocks(self._task.pieces):
            block = piece.block.read()
            columns = block.columns
            positions = np.repeat(columns["offsets"], columns["counts"])
            chosen = slice(piece.skip, piece.skip + piece.count)
            yield _Gathered(piece.block.first, pack_entries(positions[chosen], columns["hashes"][chosen]), block)

    def _cells(self) -> Iterator[tuple[int, list[tuple[str, int]]]]:
        """Where each cell of the segment starts, and the files and positions of all its blocks."""
        task = self._task
        cells: dict[int, list[tuple[str, int]]] = {}
        for table in task.cells:
            for position, start, *_ in table.rows(task.base_offset, task.limit).tolist():
                cells.setdefault(start, []).append((table.path, position))
        yield from sorted(cells.items())

    def _merge(self, gathered: _Gathered) -> None:
        distinct = sort_distinct(gathered.packed)
        self._dropped["duplicates"] += gathered.packed.size - distinct.size
        positions, counts, hashes = unpack_entries(distinct)
        facts = self._facts(gathered, positions)
        rows = EntryRows(positions + gathered.start, facts.timestamps, counts, hashes)
        known = rows.offsets[facts.fates != NO_RECORD]
        if known.size:
            self._largest = int(known[-1])
        for fate, stretches in ((NO_RECORD, self._lost), (LEFT_OUT, self._left_out)):
            gone = rows.offsets[facts.fates == fate]
            if gone.size:
                stretches[:] = [stretches[0] if stretches else int(gone[0]), int(gone[-1])]
        rows = self._keep(rows, facts).narrow().by_time()
        if rows.offsets.size:
            self._write(rows)

    def _facts(self, gathered: _Gathered, positions: np.ndarray) -> RecordFacts:
        if gathered.scanned is not None and not self._filters:
            columns = gathered.scanned.columns
            timestamps = columns["timestamps"][np.searchsorted(columns["offsets"], positions)]
            return RecordFacts(np.full(positions.size, KEEP, np.uint8), timestamps, np.full(positions.size, -1))
        return self._reader.look(positions + (gathered.start - self._task.base_offset))

    def _keep(self, rows: EntryRows, facts: RecordFacts) -> EntryRows:
        """Drop and count the entries without a record, and those that are to be left out; returns the others."""
        if not self._filters and bool(np.all(facts.fates == KEEP)):
            return rows
        fates = np.repeat(facts.fates, rows.counts)
        tags = (fates == KEEP) & (np.repeat(facts.tags, rows.counts) == rows.hashes)
        self._dropped["no_record"] += int(np.count_nonzero(fates == NO_RECORD))
        self._dropped["of_topics"] += int(np.count_nonzero(fates == LEFT_OUT))
        self._dropped["of_tags"] += int(np.count_nonzero(tags))
        return rows.keep_entries((fates == KEEP) & ~tags)

    def _write(self, rows: EntryRows) -> None:
        self._blocks.append(write_rows(self._writer, rows))
        self._entries += rows.hashes.size


def _packed(block: Block) -> np.ndarray:
    return pack_entries(block.columns["positions"], block.columns["hashes"])


def _read_runs(runs: Iterable[tuple[str, int]]) -> Iterator[Block]:
    """Blocks at positions of several files, each of which is opened once."""
    with contextlib.ExitStack() as stack:
        opened: dict[str, int] = {}
        for path, position in runs:
            if path not in opened:
                opened[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                stack.callback(os.close, opened[path])
            yield read_block(Path(path), opened[path], position)[0]
