"""The first half of every bulk job: probe the store, then scan all its segments, a task each."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from spark_jobs.run.engine import Engine
from spark_jobs.scan.probe_store import IndexFileFacts, ProbeTask, StoreHeads, probe
from spark_jobs.scan.scan_segment import ScanTask
from spark_jobs.scan.source import StoreSource
from storage.log.segment_list import boundaries
from storage.recovery.start_place import SPARED, SegmentHead, StartFacts, recovery_start


class Probed(msgspec.Struct, frozen=True):
    """Answers about a store. `first_entries`: of the log without and with tag entries, as (hash, physical offset).

    `index_files` are what :func:`spark_jobs.scan.probe_store.check_index_file` says of each; `recovery_start` is
    the physical offset where a broker would begin to read its log again; `last_base` is that of the last segment to
    which anything was written.
    """

    first_entries: tuple[tuple[int, int] | None, tuple[int, int] | None]
    index_files: tuple[IndexFileFacts, ...]
    recovery_start: int
    last_base: int


class ScanOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to make of the log. Entries are made of records at or above `entries_from`, units of all or of none.

    `checksums_from`: bodies are checked in segments that start there or later; `last_base`: that of the last segment
    to which anything was written, None for the last one that there is. The others as in `ScanTask`.
    """

    entries_from: int | None
    checksums_from: int
    tags: bool
    bundles: int = 0
    delays: tuple[int, ...] = ()
    lmq: bool = False
    ext: bool = False
    batch_topics: tuple[bytes, ...] = ()
    last_base: int | None = None


def probe_source(engine: Engine, source: StoreSource, *, index: bool, slots: int | None, queues_stay: bool) -> Probed:
    """Ask the small questions.

    `queues_stay`: the queues are not rebuilt, so a recovery will find those that are there.
    """
    tasks = [
        ProbeTask(source.segments, heads=True),
        ProbeTask(source.segments, queues=str(source.layout.root)),
    ]
    names = source.index_files if index else ()
    tasks += [
        ProbeTask(source.segments, index_file=str(source.layout.index / name), slots=slots or 0) for name in names
    ]
    answers = engine.run_tasks("probe", tasks, probe)
    store, end = cast("StoreHeads", answers[0]), cast("int", answers[1])
    facts = StartFacts(source.has_crashed, source.checkpoint, end if queues_stay else source.end)
    start = recovery_start([SegmentHead(*head) for head in store.heads], facts, SPARED)
    return Probed(store.first_entries, tuple(cast("list[IndexFileFacts]", answers[2:])), start, store.last_base)


def scan_tasks(work: Path, source: StoreSource, options: ScanOptions) -> list[ScanTask]:
    """One task a segment."""
    limits = [place.base_offset for place in source.segments[1:]] + [-1]
    bases = boundaries([(place.base_offset, place.size) for place in source.segments])
    last_base = source.segments[-1].base_offset if options.last_base is None else options.last_base
    return [
        ScanTask(
            work=str(work),
            path=place.path,
            base_offset=place.base_offset,
            limit=limit,
            entries=options.entries_from is not None and place.base_offset + place.size > options.entries_from,
            checksums=place.base_offset >= options.checksums_from,
            tags=options.tags,
            bundles=options.bundles,
            delays=options.delays,
            lmq=options.lmq,
            ext=options.ext,
            batch_topics=options.batch_topics,
            boundary=boundary if len(bases) > 1 else 0,
            ends_log=place.base_offset >= last_base,
            remote=place.remote,
        )
        for place, limit, boundary in zip(source.segments, limits, bases, strict=True)
    ]


def total(summaries: Sequence[Mapping[str, Any]], field: str) -> Any:
    """The sum of a number over all summaries."""
    return sum(summary[field] for summary in summaries)
