"""Which build task is sent which blocks of a scan, where Spark's shuffle takes them there.

A block of entries goes to the tasks of the index files that it has entries of. A block of units goes to the task of its
bundle; the runs of queues that are built in parts are taken out of it, and go to the tasks of their parts.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from spark_jobs.build.build_queues import BuiltPart
from spark_jobs.build.unit_blocks import queue_names
from spark_jobs.run.blocks import Block, pack_block, unpack_block
from spark_jobs.run.kept_rows import Row, Rows
from spark_jobs.scan.scanned_rows import RowHead, RowKind, pieces
from storage.build.dispatch_scan import BATCH
from storage.queue.batch_consume_queue import UNIT as BATCH_UNIT
from storage.queue.consume_queue import UNIT

_RUN_FIELDS: Final = 4


class Goal(msgspec.Struct, frozen=True, array_like=True):
    """What goes to the build task of a number: of a segment the entries [first, stop), or of a bundle units.

    Those are the units that segments of numbers [first, stop) have of a `part` of a queue; without one, those of all
    queues that are not built in parts.
    """

    task: int
    first: int
    stop: int
    part: BuiltPart | None = None


class Routes(msgspec.Struct, frozen=True):
    """Where everything goes: `entries` by the number of the segment, `units` by that of the bundle."""

    entries: Mapping[int, Sequence[Goal]]
    units: Mapping[int, Sequence[Goal]]

    def __call__(self, rows: Rows) -> Iterator[tuple[int, Row]]:
        """The rows of a segment, each behind the number of the task that gets it."""
        gathered = bytearray()
        for row in rows:
            head: RowHead = row.head
            if head.kind == RowKind.ENTRIES:
                for each in self.entries.get(head.segment, ()):
                    if each.first < head.first + head.entries and head.first < each.stop:
                        yield each.task, row
            elif head.kind == RowKind.UNITS and (goals := self.units.get(head.bundle)):
                if all(each.part is None for each in goals):
                    yield from ((each.task, row) for each in goals)
                    continue
                gathered += row.data
                if len(gathered) == row.size:
                    yield from _units(head, gathered, goals)
                    gathered = bytearray()


def _units(head: RowHead, packed: bytearray, goals: Sequence[Goal]) -> Iterator[tuple[int, Row]]:
    """A block of units, cut; without any run it still counts, and says which queues there are."""
    block = unpack_block(Path("a row of the exchange"), memoryview(packed))
    names = queue_names(block)
    runs = block.columns["runs"].reshape(-1, _RUN_FIELDS)
    apart = {(each.part.topic, each.part.queue_id) for each in goals if each.part is not None}
    facts = {name: fact for name, fact in block.header.items() if name != "checksum"}
    for each in goals:
        if each.first <= head.segment < each.stop:
            part = each.part
            own = [name not in apart if part is None else name == (part.topic, part.queue_id) for name in names]
            chosen = np.array(own, np.bool_)[runs[:, 0]]
            if part is not None:
                chosen &= (runs[:, 2] < part.stop) & (runs[:, 2] + runs[:, 3] > part.first)
            for row in pieces(head, b"".join(pack_block(facts, _runs(block, chosen)))):
                yield each.task, row


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
