"""Which build task is sent which blocks of a scan, where Spark's shuffle takes them there.

A block of entries goes to the tasks of the index files that it has entries of, cut at records where a file begins or
ends inside it. A block of units goes to the task of its bundle; the runs of queues that are built in parts are taken
out of it, and go to the tasks of their parts.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from spark_jobs.build.build_index_file import columns_of, is_cut_off
from spark_jobs.build.build_queues import QueuePart
from spark_jobs.build.unit_blocks import queue_names
from spark_jobs.run.blocks import Block, pack_block, unpack_block
from spark_jobs.run.kept_rows import Row, Rows
from spark_jobs.scan.scanned_rows import RowHead, RowKind, block_of
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
        """The rows of a segment, cut where they must be, each behind the number of the task that gets it."""
        for row in rows:
            head = RowHead.of(row)
            if head.kind == RowKind.ENTRIES:
                yield from _entries(row, head, self.entries.get(head.segment, ()))
            elif head.kind == RowKind.UNITS and head.bundle in self.bundles:
                yield from _units(row, head, self.bundles[head.bundle])


def _entries(row: Row, head: RowHead, ranges: tuple[EntryRange, ...]) -> Iterator[tuple[int, Row]]:
    for each in ranges:
        skip, stop = max(each.first - head.first, 0), min(each.stop - head.first, head.entries)
        if skip < stop:
            yield each.task, row if stop - skip == head.entries else _cut_entries(row, head, skip, stop)


def _cut_entries(row: Row, head: RowHead, skip: int, stop: int) -> Row:
    """The records of a block that have any of the entries [skip, stop), with all of their entries."""
    block = _block(row)
    counts = block.columns["counts"].astype(np.int64)
    ends = np.cumsum(counts)
    first, last = (int(np.searchsorted(ends, skip, side="right")), int(np.searchsorted(ends, stop)) + 1)
    start, end = int(ends[first] - counts[first]), int(ends[last - 1])
    columns = {
        name: column[start:end] if name == "hashes" else column[first:last] for name, column in block.columns.items()
    }
    is_whole = is_cut_off(columns_of(head.base, block), skip, stop - skip)
    return _packed(head._replace(first=head.first + start, entries=end - start), block, columns, is_cut_off=is_whole)


def _units(row: Row, head: RowHead, route: BundleRoute) -> Iterator[tuple[int, Row]]:
    if not route.parts:
        yield route.task, row
        return
    block = _block(row)
    names = queue_names(block)
    runs = block.columns["runs"].reshape(-1, _RUN_FIELDS)
    apart = {(each.part.topic, each.part.queue_id) for each in route.parts}
    is_apart = np.array([name in apart for name in names], np.bool_)[runs[:, 0]]
    # Without any run it still says which queues there are.
    yield route.task, _packed(head, block, _runs(block, ~is_apart))
    for each in route.parts:
        if each.start <= head.segment < each.stop:
            part = each.part
            is_of = np.array([name == (part.topic, part.queue_id) for name in names], np.bool_)[runs[:, 0]]
            chosen = is_of & (runs[:, 2] < part.stop) & (runs[:, 2] + runs[:, 3] > part.first)
            if chosen.any():
                yield each.task, _packed(head, block, _runs(block, chosen))


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


def _block(row: Row) -> Block:
    return unpack_block(Path("a row of the exchange"), block_of(row))


def _packed(head: RowHead, block: Block, columns: dict[str, np.ndarray], **more: object) -> Row:
    """A row with other columns than those of the block that it is made of; `more` is added to its header."""
    facts = {name: fact for name, fact in block.header.items() if name != "checksum"} | more
    return b"".join([head.pack(), *pack_block(facts, columns)])
