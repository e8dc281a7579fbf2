"""The task that reads one segment: what a broker's dispatch makes of it, as blocks of entries and of queue units."""

import dataclasses
import zlib
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np

from spark_jobs.places.remote_file import RemoteObject
from spark_jobs.run.attempt import Attempt, Notify, run_attempt
from spark_jobs.run.blocks import BlockWriter
from spark_jobs.scan.segment_walk import SegmentWalk, WalkSummary
from spark_jobs.scan.segment_window import SegmentWindow
from storage.build.dispatch_scan import BATCH, DispatchBlock, DispatchOptions, DispatchScan, Step
from storage.queue.batch_consume_queue import UNIT as BATCH_UNIT
from storage.queue.consume_queue import UNIT

BUNDLES_OF_A_BLOCK: Final = 64
"""Where queues are dealt out to more bundles, units of so many more blocks are gathered before they are."""

GATHERED_BYTES: Final = 32 * 1024 * 1024
"""Of units, at most."""

HOT_SHARE: Final = 32
"""A queue is named that has more than this part (1 in so many) of a segment's units."""

PHASE: Final = "scan"
ENTRIES: Final = "entries"
UNITS: Final = "units"
"""The kinds of blocks that a scan leaves."""


class ScanTask(msgspec.Struct, frozen=True):
    """What to read and what to make of it; `limit` is where the next segment starts, -1 without one.

    `boundary` is where the next one would start even if this file was cut, 0 where no other file says it; `ends_log`:
    nothing was written behind this segment, so that what follows damage in it may be left over.

    `remote` is how the segment was listed, if its path is a URL.

    `delays` in ms for each delay level; `bundles`: queues are dealt out to so many build tasks; 0: no units wanted.
    """

    work: str
    path: str
    base_offset: int
    limit: int
    entries: bool
    checksums: bool
    tags: bool
    bundles: int
    delays: tuple[int, ...]
    lmq: bool
    ext: bool
    batch_topics: tuple[bytes, ...]
    boundary: int = 0
    ends_log: bool = False
    remote: RemoteObject | None = None
    phase: str = PHASE

    @property
    def name(self) -> str:
        """The task's name."""
        return f"{self.phase}-{self.base_offset:020d}"


class ScanSummary(WalkSummary):
    """What a scan found in a segment; its blocks lie in the files of the attempt.

    Of blocks there are counts only. `entry_table` is a row as in :class:`spark_jobs.build.place_entries.EntryTable`
    without the path, empty without any block; `unit_table` is the position of the table of units, −1 without any,
    `unit_bundles` a bit for each bundle, set where it has a block, and `units` their number. `hot_queues` are topic,
    queue id and units of the queues that have many of them.
    """

    entry_table: list[int]
    unit_table: int
    unit_bundles: bytes
    units: int
    hot_queues: list[list[Any]]


def scan_segment(task: ScanTask) -> ScanSummary:
    """Read one segment; the summary, as left in the work directory."""

    def scan(attempt: Attempt, notify: Notify) -> ScanSummary:
        with (
            SegmentWindow(task.path, task.base_offset, task.remote) as window,
            BlockWriter(attempt.blocks(ENTRIES), task.path) as entries,
            BlockWriter(attempt.blocks(UNITS), task.path) as units,
        ):
            return SegmentScan(task, window, entries, units, notify).run()

    return run_attempt(task.work, task.name, scan)


class SegmentScan(SegmentWalk):
    """One pass over a segment, for what its records lead to."""

    def __init__(
        self, task: ScanTask, window: SegmentWindow, entries: BlockWriter, units: BlockWriter, notify: Notify
    ) -> None:
        """Scan what `window` shows into the two block files; `notify` is called with bytes and messages."""
        super().__init__(task, window, notify)
        self._scanned, self._entries, self._units = task, entries, units
        options = DispatchOptions(
            tags=task.tags,
            checksums=task.checksums,
            delays=task.delays,
            lmq=task.lmq,
            batch_topics=task.batch_topics,
            entries=task.entries,
            units=task.bundles > 0,
            ext=task.ext,
        )
        self._scan = DispatchScan(options)
        self._entry_blocks: list[list[int]] = []
        self._unit_blocks: list[list[int]] = [[] for _ in range(task.bundles)]
        self._gathered: list[DispatchBlock] = []
        self._most_gathered = -(-task.bundles // BUNDLES_OF_A_BLOCK)
        self._queues: Counter[tuple[bytes, int]] = Counter()

    def run(self) -> ScanSummary:
        """Read to the end; the summary."""
        self.walk()
        self._deal_units()
        units = self._queues.total()
        return {
            **self.summary(),
            "entry_table": self._leave_entry_table(),
            "unit_table": self._leave_unit_table(),
            "unit_bundles": np.packbits(np.array(list(map(bool, self._unit_blocks)), np.bool_)).tobytes(),
            "units": units,
            "hot_queues": [[*queue, count] for queue, count in self._queues.items() if count * HOT_SHARE > units],
        }

    def _run(self, position: int, available: int, limit: int) -> Step:
        """Dispatch."""
        window, start = self._window, self._window.base_offset + self._window.start
        return self._scan.run(window.region, position, available, start, self._boundary, limit)

    def _flush(self) -> None:
        """Hand on what has been gathered."""
        block = self._scan.take()
        if not block.records:
            return
        self._records += block.records
        self._last_timestamp = block.last_timestamp
        if self._scanned.entries:
            self._write_entries(block)
        if self._scanned.bundles:
            self._gathered.append(block)
            held = sum(each.units.nbytes for each in self._gathered)
            if len(self._gathered) >= self._most_gathered or held >= GATHERED_BYTES:
                self._deal_units()

    def _write_entries(self, block: DispatchBlock) -> None:
        columns: dict[str, np.ndarray] = {
            "offsets": block.record_offsets,
            "timestamps": block.record_timestamps,
            "counts": block.record_entries,
            "tagged": block.record_tagged,
            "hashes": block.hashes,
        }
        position = self._entries.write(block.first_offset, block.end_offset, columns)
        self._entry_blocks.append(
            [position, block.first_offset, block.end_offset, block.hashes.size, block.last_record]
        )

    def _deal_units(self) -> None:
        """Write a block for each bundle that has units among those that have been gathered."""
        if not self._gathered:
            return
        block, self._gathered = _joined(self._gathered), []
        if not len(block.runs):
            return
        self._count_queues(block)
        bundles = np.array([bundle_of(*queue, self._scanned.bundles) for queue in block.queues], np.int64)
        deal = bundles[block.runs[:, 0]]
        order = np.argsort(deal, kind="stable")
        for mine in np.split(order, np.flatnonzero(np.diff(deal[order])) + 1):
            columns, queues = _select_runs(block, block.runs[mine], whole=mine.size == len(block.runs))
            position = self._units.write(block.first_offset, block.end_offset, columns, queues=queues)
            self._unit_blocks[int(deal[mine[0]])].append(position)

    def _count_queues(self, block: DispatchBlock) -> None:
        """Add to the number of units of each queue."""
        numbers, inverse = np.unique(block.runs[:, 0], return_inverse=True)
        counts = np.bincount(inverse, weights=block.runs[:, 3])
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            self._queues[block.queues[number]] += int(count)

    def _leave_entry_table(self) -> list[int]:
        """Write the table of the blocks of entries; its position, and what the blocks have in all."""
        blocks = self._entry_blocks
        if not blocks:
            return []
        position = self._entries.write_list(blocks)
        return [position, blocks[0][1], blocks[-1][2], sum(block[3] for block in blocks), blocks[-1][4]]

    def _leave_unit_table(self) -> int:
        """Write the table of the blocks of units, bundle by bundle; its position, −1 without any block."""
        if not any(self._unit_blocks):
            return -1
        counts = [0, *(len(positions) for positions in self._unit_blocks)]
        positions = [position for positions in self._unit_blocks for position in positions]
        columns = {"starts": np.cumsum(counts, dtype=np.int64), "positions": np.array(positions, np.int64)}
        return self._units.write_table(columns)


def bundle_of(topic: bytes, queue_id: int, bundles: int) -> int:
    """Which of the build tasks makes a queue; the same in every process."""
    return zlib.crc32(b"%d@%b" % (queue_id, topic)) % bundles


def _joined(blocks: Sequence[DispatchBlock]) -> DispatchBlock:
    """One block of what the units of some blocks, in their order, are: its queues are numbered anew."""
    if len(blocks) == 1:
        return blocks[0]
    numbers: dict[tuple[bytes, int], int] = {}
    runs, position = [], 0
    for block in blocks:
        renumbered = np.array([numbers.setdefault(queue, len(numbers)) for queue in block.queues], np.int64)
        if len(block.runs):
            mine = block.runs.copy()
            mine[:, 0] = renumbered[mine[:, 0]]
            mine[:, 4] += position
            runs.append(mine)
        position += block.units.size
    return dataclasses.replace(
        blocks[-1],
        first_offset=blocks[0].first_offset,
        queues=list(numbers),
        runs=np.concatenate([blocks[0].runs[:0], *runs]),
        units=np.concatenate([block.units for block in blocks]),
        unit_timestamps=np.concatenate([block.unit_timestamps for block in blocks]),
    )


def _select_runs(
    block: DispatchBlock, runs: np.ndarray, *, whole: bool
) -> tuple[dict[str, np.ndarray], Sequence[tuple[bytes, int]]]:
    """Columns of some runs of a block, queues numbered anew, and those queues."""
    numbers, renumbered = np.unique(runs[:, 0], return_inverse=True)
    table = np.column_stack([renumbered, runs[:, 1], runs[:, 2], runs[:, 3]]).astype(np.int64)
    queues = [block.queues[number] for number in numbers.tolist()]
    columns = {"runs": table.reshape(-1)}
    if whole:
        return {**columns, "units": block.units, "timestamps": block.unit_timestamps}, queues
    starts = np.cumsum(block.runs[:, 3]) - block.runs[:, 3]
    chosen = np.searchsorted(block.runs[:, 4], runs[:, 4])
    sizes = runs[:, 3] * np.where(runs[:, 1] == BATCH, BATCH_UNIT.size, UNIT.size)
    columns["units"] = _slices(block.units, runs[:, 4], sizes)
    stamped = block.unit_timestamps.size > 0
    columns["timestamps"] = (
        _slices(block.unit_timestamps, starts[chosen], runs[:, 3]) if stamped else np.zeros(0, np.int64)
    )
    return columns, queues


def _slices(array: np.ndarray, starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    pieces = zip(starts.tolist(), sizes.tolist(), strict=True)
    return np.concatenate([array[start : start + size] for start, size in pieces])
