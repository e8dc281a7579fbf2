"""Which build task is sent which blocks of a scan, where Spark's shuffle takes them there.

A block of entries goes to the tasks of the index files that it has entries of. A block of units goes to the task of its
bundle; the runs of queues that are built in parts are taken out of it, and go to the tasks of their parts.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from spark_jobs.build.build_queues import QueuePart
from spark_jobs.build.unit_blocks import queue_names
from spark_jobs.run.blocks import Block, pack_block, unpack_block
from spark_jobs.run.kept_rows import Row, Rows
from spark_jobs.scan.scanned_rows import RowHead, RowKind, pieces
from storage.build.dispatch_scan import BATCH
from storage.queue.batch_consume_queue import UNIT as BATCH_UNIT
from storage.queue.consume_queue import UNIT

_RUN_FIELDS: Final = 4


class EntryRange(msgspec.Struct, frozen=True, array_like=True):
    """Entries [first, stop) of a segment go to the build task of a number."""

    task: int
    first: int
    stop: int


class PartRoute(msgspec.Struct, frozen=True, array_like=True):
    """What segments of numbers [start, stop) have of a part of a queue goes to the build task of a number."""

    task: int
    part: QueuePart
    start: int
    stop: int


class BundleRoute(msgspec.Struct, frozen=True):
    """Units of a bundle go to the build task of a number, but for those of queues that are built in parts."""

    task: int
    parts: tuple[PartRoute, ...] = ()


class Routes(msgspec.Struct, frozen=True):
    """Where everything goes: `entries` by the number of the segment, `bundles` by that of the bundle."""

    entries: Mapping[int, tuple[EntryRange, ...]]
    bundles: Mapping[int, BundleRoute]

    def __call__(self, rows: Rows) -> Iterator[tuple[int, Row]]:
        """The rows of a segment, each behind the number of the task that gets it."""
        gathered = bytearray()
        for row in rows:
            head: RowHead = row.head
            if head.kind == RowKind.ENTRIES:
                for each in self.entries.get(head.segment, ()):
                    if each.first < head.first + head.entries and head.first < each.stop:
                        yield each.task, row
            elif head.kind == RowKind.UNITS and (route := self.bundles.get(head.bundle)) is not None:
                if not route.parts:
                    yield route.task, row
                    continue
                gathered += row.data
                if len(gathered) == row.size:
                    yield from _units(head, gathered, route)
                    gathered = bytearray()


def _units(head: RowHead, packed: bytearray, route: BundleRoute) -> Iterator[tuple[int, Row]]:
    """A block of units, cut; without any run it still counts, and says which queues there are."""
    block = unpack_block(Path("a row of the exchange"), memoryview(packed))
    names = queue_names(block)
    runs = block.columns["runs"].reshape(-1, _RUN_FIELDS)
    apart = {(each.part.topic, each.part.queue_id) for each in route.parts}
    is_apart = np.array([name in apart for name in names], np.bool_)[runs[:, 0]]
    cut = [(route.task, ~is_apart)]
    for each in route.parts:
        if each.start <= head.segment < each.stop:
            part = each.part
            is_of = np.array([name == (part.topic, part.queue_id) for name in names], np.bool_)[runs[:, 0]]
            chosen = is_of & (runs[:, 2] < part.stop) & (runs[:, 2] + runs[:, 3] > part.first)
            cut.append((each.task, chosen))
    facts = {name: fact for name, fact in block.header.items() if name != "checksum"}
    for task, chosen in cut:
        for row in pieces(head, b"".join(pack_block(facts, _runs(block, chosen)))):
            yield task, row


def _runs(block: Block, chosen: np.ndarray) -> dict[str, np.ndarray]:
    """The columns of a block with some of its runs."""
    columns = block.columns
    runs = columns["runs"].reshape(-1, _RUN_FIELDS)
    counts, times = runs[:, 3], columns["timestamps"]
    sizes = counts * np.where(runs[:, 1] == BATCH, BATCH_UNIT.size, UNIT.size)
    return {
        "runs": runs[chosen].reshape(-1),
        "units": columns["units"][np.repeat(chosen, sizes)],
        "timestamps": times[np.repeat(chosen, counts)] if times.size else times,
    }
