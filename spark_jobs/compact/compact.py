"""Compact the index of a store: what is dead or double goes, and what a look-up reads comes to lie side by side.

    probe    what is there: the shapes of the index files
    split    one task an index file: its entries, by the cells of the log that they point to
    scan     in place of it with from_log: one task a segment
    merge    one task a segment: each entry once, with its record's store time; what is to be left out is dropped
    order    one task a group of segments whose times overlap, and only where the clock stepped back
    build    one task an index file

Entries are put in the order of store time. Every file holds a part of it without gaps, and in it the entries of a slot
side by side, so that a broker's rules for leaving a chain, or older files, early (store-format §4.1, §4.2) never make
it miss anything. What is made depends on the set of entries alone, not on the files that they come from.

Memory, measured with a broker's defaults and 20 million entries: a split holds two million entries at a time and the
slots of its file, 100 MB; a merge the entries of 32 MiB of log, some 50 bytes each, 185 MB for 3.7 million of them,
14 MB at four entries a record of 480 bytes, 800 MB if there were nothing but keys of one letter; a build one file, 20
bytes more an entry and a block, 850 MB; what orders entries is in :mod:`spark_jobs.compact._order_entries`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

from protocol.errors import StoreError
from spark_jobs.build.build_index_file import BuiltIndexFile, IndexHole
from spark_jobs.build.chosen_names import PLACE, choose_names, zone_of_names
from spark_jobs.build.exchange import Exchange
from spark_jobs.build.kept_index import IndexShapeWanted, choose_shape
from spark_jobs.compact import _split_index_file as splitting
from spark_jobs.compact._compact_tasks import (
    Completeness,
    build_tasks,
    merge_tasks,
    merged_tables,
    order_tasks,
    ordered_tables,
    place_tables,
    scanned_merge_tasks,
    split_tasks,
)
from spark_jobs.compact._complete_index import (
    BlockSpans,
    complete_files,
    find_holes,
    joint_tasks,
    look_at_joint,
    stretches_left_out,
    stretches_lost,
)
from spark_jobs.compact._merge_entries import MergeTask
from spark_jobs.compact._order_entries import OrderTask
from spark_jobs.compact._sent_blocks import merge_step, order_step, split_step
from spark_jobs.compact._timed_block import TimedTable
from spark_jobs.compact.compact_request import CompactRequest
from spark_jobs.run.engine import Engine
from spark_jobs.run.work_directory import WorkDirectory
from spark_jobs.scan.log_end import LogEnd, find_log_end
from spark_jobs.scan.scan_log import Probed, ScanOptions, probe_source, total
from spark_jobs.scan.scan_segment import ScanSummary
from spark_jobs.scan.source import StoreSource
from storage.amounts import counted
from storage.index.index_file import IndexHeader
from storage.layout.store_layout import INDEX

OUTSIDE: Final = ("below", "beyond", "nowhere")
LEFT: Final = ("no_record", "duplicates", "of_topics", "of_tags")
"""Why entries were dropped: no record is where they point, the entry is repeated, or the request left out its topic or
tags."""


@dataclass
class Compacted:
    """What a job built, before it is published.

    `segments` are summaries of a scan, and `log_end` what they say; neither is there where the index was read. `read`
    is the number of entries that there were, `dropped` how many went, and why. `holes` are where keys were missing
    before, `left_out` where topics went, and `tags` says whether each record's tag had its entry.
    """

    shape: IndexShapeWanted
    segments: list[ScanSummary] = field(default_factory=list)
    log_end: LogEnd | None = None
    last_header: IndexHeader | None = None
    end: int = -1
    index_files: list[BuiltIndexFile] = field(default_factory=list)
    read: int = 0
    dropped: dict[str, int] = field(default_factory=lambda: dict.fromkeys((*OUTSIDE, *LEFT), 0))
    holes: list[IndexHole] = field(default_factory=list)
    left_out: list[IndexHole] = field(default_factory=list)
    tags: bool = True
    notes: list[str] = field(default_factory=list)


class Compact:
    """One compaction of one store's index."""

    def __init__(
        self,
        request: CompactRequest,
        source: StoreSource,
        work: WorkDirectory,
        engine: Engine,
        exchange: Exchange,
    ) -> None:
        """Prepare a compaction; nothing is read yet."""
        self._request, self._source, self._work = request, source, work
        self._engine, self._exchange = engine, exchange

    def run(self) -> Compacted:
        """Compact, up to finished files in the work directory. Raises StoreError where an index file is not sound."""
        request, source = self._request, self._source
        if not (request.from_log or source.index_files):
            raise StoreError(source.layout.index, what=f"has no index file{splitting.HINT}")
        self._work.enter("probe")
        probed = probe_source(self._engine, source, index=True, slots=request.slots, queues_stay=True)
        shape = choose_shape(probed.index_files, profile=request.profile, slots=request.slots, capacity=request.entries)
        compacted = Compacted(shape)
        self.compact(probed, compacted)
        self._note_files(compacted)
        return compacted

    def compact(self, probed: Probed, compacted: Compacted) -> None:
        """Do all that comes after probing."""
        request = self._request
        tasks = self._scan(probed, compacted) if request.from_log else self._split(probed, compacted)
        merged = self._merge(tasks, compacted)
        tables = list(merged.values())
        groups = order_tasks(self._work, tables)
        if groups:
            tables = self._order(groups, {table.path: number for number, table in merged.items()})
        self._build(tables, probed, compacted, is_log_order=not groups)

    def _split(self, probed: Probed, compacted: Compacted) -> dict[int, MergeTask]:
        """Take the index files apart."""
        self._look_for_holes(probed, compacted)
        tasks = split_tasks(self._work, self._source, probed.index_files, compacted.shape)
        splits = self._exchange.make(split_step(), tasks, sum(max(task.entries, 0) for task in tasks))
        compacted.read = total(splits, "entries")
        for reason in OUTSIDE:
            compacted.dropped[reason] = total(splits, reason)
        compacted.last_header = IndexHeader(*splits[-1]["header"])
        if splits[-1]["end_is_known"]:
            compacted.end = compacted.last_header.end_physical_offset
        return merge_tasks(self._work, self._request, splits, self._source.segments)

    def _look_for_holes(self, probed: Probed, compacted: Compacted) -> None:
        """Find out what the index files lack between them, while that can be seen."""
        checks = probed.index_files
        compacted.tags = all(check.get("tags", False) for check in checks if "range" in check)
        source, tags = self._source, compacted.tags and not self._request.drop_tags
        tasks = joint_tasks(source.layout.index, source.segments, checks, tags=tags)
        answers = self._engine.run_tasks("joints", tasks, look_at_joint)
        compacted.holes = find_holes(checks, list(zip(tasks, answers, strict=True)))

    def _scan(self, probed: Probed, compacted: Compacted) -> dict[int, MergeTask]:
        """Read the log."""
        request = self._request
        options = ScanOptions(
            entries_from=0,
            checksums_from=probed.recovery_start,
            tags=compacted.shape.tags,
            last_base=probed.last_base,
        )
        compacted.tags = compacted.shape.tags
        compacted.segments = self._exchange.scan(self._source, options)
        log_end = find_log_end(compacted.segments, probed.recovery_start if request.is_for_store else None)
        compacted.log_end = log_end
        tasks = scanned_merge_tasks(
            self._work, request, compacted.segments, self._source.segments, log_end.end, self._exchange.ask
        )
        compacted.read = sum(piece.count for task in tasks.values() for piece in task.pieces)
        return tasks

    def _merge(self, tasks: Mapping[int, MergeTask], compacted: Compacted) -> dict[int, TimedTable]:
        entries = compacted.read - sum(compacted.dropped.values())
        step = merge_step(tasks, of_splits=not self._request.from_log)
        merges = self._exchange.make(step, list(tasks.values()), entries)
        for reason in LEFT:
            compacted.dropped[reason] = total(merges, reason)
        if not self._request.from_log:
            compacted.holes += stretches_lost(merges, self._source.segments)
        compacted.left_out = stretches_left_out(merges)
        largest = max((summary["largest"] for summary in merges), default=-1)
        self._note_end(largest, compacted)
        compacted.end = max(compacted.end, largest)
        return merged_tables(self._work, merges)

    def _note_end(self, largest: int, compacted: Compacted) -> None:
        """Note that the index claims to end where no record is; records below that place were never indexed."""
        header = compacted.last_header
        if header is not None and compacted.end < 0 and header.end_physical_offset > largest:
            compacted.notes.append(
                f"by its header the index ends at physical offset {header.end_physical_offset}, where there "
                f"is no record; the compacted one ends at {max(largest, 0)}"
            )

    def _order(self, groups: Sequence[OrderTask], merges: Mapping[str, int]) -> list[TimedTable]:
        """The tables by store time; `merges` are the numbers of the tasks that left them, by their paths."""
        step = order_step({merges[table.path]: group.number for group in groups for table in group.tables})
        return ordered_tables(self._work, self._exchange.make(step, groups, sum(group.entries for group in groups)))

    def _build(self, tables: Sequence[TimedTable], probed: Probed, compacted: Compacted, *, is_log_order: bool) -> None:
        self._work.enter(PLACE)
        placed = place_tables(tables, compacted.shape.capacity - 1)
        directory = self._work.staged / INDEX
        directory.mkdir(exist_ok=True)
        zone, ask = zone_of_names(self._request.zone, probed.index_files), self._exchange.ask
        names = choose_names(self._work, placed, zone, compacted.last_header, ask=ask)
        claims = Completeness(
            complete_files(placed, None if is_log_order else BlockSpans.of(tables, ask)),
            [*compacted.holes, *compacted.left_out],
            compacted.tags and not self._request.drop_tags,
        )
        files = [(file, directory / name) for file, name in zip(placed, names, strict=True)]
        tasks = build_tasks(self._work, compacted.shape, files, compacted.last_header, compacted.end, claims)
        built = self._exchange.build(tasks, sum(task.placed.entries for task in tasks))
        compacted.index_files = cast("list[BuiltIndexFile]", built)

    def _note_files(self, compacted: Compacted) -> None:
        """Note which of the files a server cannot use, since it needs every key of what they span, and why."""
        count = sum(not file["complete"] and file["entries"] > 0 for file in compacted.index_files)
        if not count:
            return
        if compacted.left_out:
            reason = "topics are left out"
        elif compacted.holes:
            hole = compacted.holes[0]
            reason = f"the old index may lack keys from physical offset {hole.first} on (--from-log adds them)"
        else:
            reason = "the clock was set back, and several files share a part of the log"
        files = f"{count} of {counted(len(compacted.index_files), 'file')} without every key of their records"
        compacted.notes.append(f"{files}: {reason}; there a RocketLens server scans the log instead")
