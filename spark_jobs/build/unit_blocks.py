"""The units that scans found, as the tasks that build or check queues read them: blocks, and in these runs of queues.

The driver leaves one list of the files of all segments (:class:`UnitList`) in the work directory. Each task reads it,
and finds the blocks of its bundle by the table at the end of each file. So what the driver holds, and what a task is
sent, does not grow with the number of blocks.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from spark_jobs.run.attempt import block_file
from spark_jobs.run.blocks import Block, BlockWriter, read_block, read_block_at
from spark_jobs.run.work_directory import WorkDirectory, write_whole
from spark_jobs.scan.scan_segment import UNITS, ScanSummary
from storage.build.dispatch_scan import BATCH, PLAIN
from storage.build.queue_plan import QueueKey, directory_name
from storage.build.queue_units import units_before
from storage.layout.store_layout import BATCH_CONSUME_QUEUE, CONSUME_QUEUE
from storage.queue.batch_consume_queue import UNIT as BATCH_UNIT
from storage.queue.consume_queue import UNIT

_NAME = "units.msgpack"


class ScannedUnits(msgspec.Struct, frozen=True, array_like=True):
    """The units of a segment: the file of their blocks, and where in it their table is."""

    path: str
    table: int

    def positions(self, bundle: int) -> list[int]:
        """Where the blocks of a bundle are, in the order of the log."""
        table = read_block_at(Path(self.path), self.table).columns
        start, stop = table["starts"][bundle : bundle + 2].tolist()
        positions: list[int] = table["positions"][start:stop].tolist()
        return positions

    def blocks(self, bundle: int, end: int) -> Iterator[Block]:
        """Blocks of a bundle, one in memory at a time, without those that begin at or beyond a physical offset."""
        positions = self.positions(bundle)
        if not positions:
            return
        path = Path(self.path)
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            for position in positions:
                block, _ = read_block(path, descriptor, position)
                if block.header["range"][0] < end:
                    yield block
        finally:
            os.close(descriptor)


class UnitList(msgspec.Struct, frozen=True, array_like=True):
    """The segments of numbers [start, stop) of a list of all that have units, which lies in a file."""

    path: str
    start: int
    stop: int

    @classmethod
    def leave(cls, work: WorkDirectory, segments: Iterable[ScanSummary]) -> "UnitList":
        """Make the list of what scans found in segments."""
        files = [
            ScannedUnits(str(block_file(work, summary, UNITS)), summary["unit_table"])
            for summary in segments
            if summary["unit_table"] >= 0
        ]
        return cls._leave(work, files)

    @classmethod
    def of_bundle(cls, work: WorkDirectory, writer: BlockWriter, bundle: int, positions: Sequence[int]) -> "UnitList":
        """Make the list of one file, which has blocks of one bundle alone: at these positions, in the log's order."""
        starts = np.zeros(bundle + 2, np.int64)
        starts[bundle + 1] = len(positions)
        table = writer.write_table({"starts": starts, "positions": np.array(positions, np.int64)})
        return cls._leave(work, [ScannedUnits(str(writer.path), table)])

    @classmethod
    def _leave(cls, work: WorkDirectory, files: Sequence[ScannedUnits]) -> "UnitList":
        write_whole(work.root / _NAME, msgspec.msgpack.encode(files))
        return cls(str(work.root / _NAME), 0, len(files))

    def read(self) -> list[ScannedUnits]:
        """The files, in the order of the log."""
        return msgspec.msgpack.decode(Path(self.path).read_bytes(), type=list[ScannedUnits])[self.start : self.stop]

    def blocks(self, bundle: int, end: int) -> Iterator[Block]:
        """Blocks of a bundle in all of them, one in memory at a time."""
        for file in self.read():
            yield from file.blocks(bundle, end)


def used_bundles(segments: Sequence[ScanSummary]) -> list[int]:
    """The numbers of the bundles that have any units."""
    used = np.zeros(max((len(summary["unit_bundles"]) for summary in segments), default=0), np.uint8)
    for summary in segments:
        mine = np.frombuffer(summary["unit_bundles"], np.uint8)
        used[: mine.size] |= mine
    numbers: list[int] = np.flatnonzero(np.unpackbits(used)).tolist()
    return numbers


def has_bundle(unit_bundles: bytes, bundle: int) -> bool:
    """Whether a summary's bits of bundles have the one of a number."""
    return bundle // 8 < len(unit_bundles) and bool(unit_bundles[bundle // 8] & 0x80 >> bundle % 8)


def unit_count(segments: Iterable[ScanSummary]) -> int:
    """Units that a scan found."""
    return sum(summary["units"] for summary in segments)


def queue_names(block: Block) -> list[tuple[bytes, int]]:
    """Topic as stored and queue id of the queues of a block."""
    return [(bytes(topic), int(queue_id)) for topic, queue_id in block.header["queues"]]


class QueueRun(NamedTuple):
    """Messages of one queue as the log has them: their units, of consecutive queue offsets but for batches.

    `timestamps` (ms) of units that lead to extensions, if they were asked for.
    """

    name: tuple[bytes, int]
    key: QueueKey
    first: int
    units: memoryview
    timestamps: npt.NDArray[np.int64] | None

    def between(self, start: int, stop: int) -> "QueueRun":
        """The units of queue offsets [start, stop), of a plain queue."""
        count = len(self.units) // UNIT.size
        skip, end = (min(max(offset - self.first, 0), count) for offset in (start, stop))
        if (skip, end) == (0, count):
            return self
        stamps = None if self.timestamps is None else self.timestamps[skip:end]
        units = self.units[skip * UNIT.size : end * UNIT.size]
        return self._replace(first=self.first + skip, units=units, timestamps=stamps)


def queue_runs(block: Block, end: int) -> Iterator[QueueRun]:
    """The runs of a block, without units of records at or beyond `end`, and queues that can have no directory."""
    names = queue_names(block)
    units, timestamps = block.columns["units"].data, block.columns["timestamps"]
    is_cut = block.header["range"][1] > end
    position = number = 0
    for queue, kind, first, count in block.columns["runs"].reshape(-1, 4).tolist():
        unit_size = BATCH_UNIT.size if kind == BATCH else UNIT.size
        run = units[position : position + count * unit_size]
        run = units_before(run, unit_size, end) if is_cut else run
        topic = directory_name(names[queue][0])
        if topic is not None and len(run):
            key = QueueKey(BATCH_CONSUME_QUEUE if kind == BATCH else CONSUME_QUEUE, topic, names[queue][1])
            # The units of light queues lead to no extension, though the store has one.
            stamped = timestamps.size and kind == PLAIN
            stamps = timestamps[number : number + len(run) // unit_size] if stamped else None
            yield QueueRun(names[queue], key, first, run, stamps)
        position, number = position + count * unit_size, number + count
