"""Convert the log of a DLedger store into a plain one, up to a finished `commitlog/` in the work directory.

    probe     what is there, and of what shape the index files are
    convert   one task a segment: its records, at their new places
    relate    what points to records of other segments: commits to half messages, the units of `timerlog/`

Behind it the index and the queues are rebuilt from the new log like those of any store.
"""

import dataclasses
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from protocol.errors import ConfigError, StoreError
from spark_jobs.build.chosen_names import zone_of_names
from spark_jobs.build.index_profiles import CLASSIC_PROFILE, TAGGED_PROFILE
from spark_jobs.build.kept_index import choose_shape
from spark_jobs.build.moved_log import MovedLog, MovedSegment
from spark_jobs.build.place_queues import log_extent
from spark_jobs.convert.convert_request import ConvertRequest
from spark_jobs.convert.convert_segment import (
    LINKS,
    PHASE,
    ConvertedSegment,
    ConvertTask,
    convert_segment,
    moves_path,
    take_segment,
)
from spark_jobs.convert.relate import PHASE as RELATE
from spark_jobs.convert.relate import LinkTask, Related, TimerTask, leave_moved, relate, take_timers
from spark_jobs.run.attempt import block_file, run_phase
from spark_jobs.run.engine import Engine
from spark_jobs.run.progress import JobProgress, Phase
from spark_jobs.run.work_directory import WorkDirectory
from spark_jobs.scan.log_end import LogEnd, find_log_end
from spark_jobs.scan.probe_store import SegmentPlace
from spark_jobs.scan.scan_log import Probed, probe_source, total
from spark_jobs.scan.source import StoreSource
from storage.files.mapped_file import list_segment_files
from storage.layout.dledger import is_ledger, uncommitted_from
from storage.layout.store_layout import COMMIT_LOG
from storage.layout.timer_log import TIMER_LOG, has_timers
from storage.log.segment_list import boundaries

DEFAULT_SEGMENT_SIZE: Final = 1 << 30
"""What a broker has without a line about it in its configuration."""


class ConvertDetails(msgspec.Struct, kw_only=True, rename="camel"):
    """The new log: its segments, their size, bytes of records, and the physical offset at which it ends.

    `half_messages` are commits of transactions that point to another segment, `timers` units of `timerlog/`; of both
    those are `lost` whose messages the log has no more.
    """

    segments: int
    segment_size: int
    bytes: int
    end: int
    half_messages: int
    timers: int
    lost: int


@dataclass
class Converted:
    """The summaries of the old segments, in order, where the old log ended, and the new log as a source."""

    segments: list[ConvertedSegment]
    log_end: LogEnd
    source: StoreSource
    rebuild: ConvertRequest
    moved: MovedLog
    details: ConvertDetails
    notes: list[str]

    @property
    def last_record(self) -> int:
        """The new physical offset of the last record; -1 without any."""
        return max((summary["last_record"] for summary in self.segments), default=-1)


class Convert:
    """One conversion of one store."""

    def __init__(
        self,
        request: ConvertRequest,
        source: StoreSource,
        work: WorkDirectory,
        engine: Engine,
        progress: JobProgress,
    ) -> None:
        """Prepare; nothing is read yet, and the source is checked (:func:`check_source`)."""
        self._request, self._source, self._work = request, source, work
        self._engine, self._progress = engine, progress
        self._log, self._timers = work.staged / COMMIT_LOG, work.staged / TIMER_LOG

    def run(self) -> Converted:
        """Convert the log."""
        self._work.enter("probe")
        request, source = self._request, self._source
        probed = probe_source(self._engine, source, index=True, slots=request.slots, queues_stay=False)
        self._log.mkdir(exist_ok=True)
        tasks = list(self._tasks(probed))
        amount = sum(place.size for place in source.segments)
        run = self._engine.run_tasks
        made = run_phase(run, self._work, self._progress, Phase(PHASE, amount, "bytes"), tasks, convert_segment)
        for task, done in zip(tasks, made, strict=True):
            take_segment(task, done)
        log_end = find_log_end(made, None)
        log = log_extent(source.segments[0].base_offset, log_end.end, log_end.damages)
        moved = MovedLog(tuple(MovedSegment(each["base"], moves_path(self._work, each)) for each in made), log)
        related = self._relate(tasks, made, moved)
        return Converted(
            segments=made,
            log_end=log_end,
            source=self._new_source(tasks),
            rebuild=self._rebuild_request(probed),
            moved=moved,
            details=_details(tasks, made, *related),
            notes=list(self._notes(tasks, log_end.end)),
        )

    def _tasks(self, probed: Probed) -> Iterator[ConvertTask]:
        """A task for each segment to which anything was written, or behind which anything was."""
        places = [place for place in self._source.segments if place.base_offset <= probed.last_base]
        files = [(place.base_offset, place.size) for place in self._source.segments]
        limits = [place.base_offset for place in self._source.segments[1:]] + [-1]
        for place, limit, boundary in zip(places, limits, boundaries(files), strict=False):
            is_last = place.base_offset >= probed.last_base
            yield ConvertTask(
                work=str(self._work.root),
                path=place.path,
                base_offset=place.base_offset,
                limit=limit,
                boundary=boundary if len(files) > 1 else 0,
                ends_log=is_last,
                out=str(self._log / f"{place.base_offset:020d}"),
                size=boundary - place.base_offset,
                closes=not is_last,
                modified_ns=os.stat(place.path).st_mtime_ns if place.remote is None else -1,
                remote=place.remote,
            )

    def _relate(
        self, tasks: list[ConvertTask], made: list[ConvertedSegment], moved: MovedLog
    ) -> tuple[list[Related], list[Related]]:
        """Let commits and timers point to the new places; what became of either."""
        path = leave_moved(self._work, moved)
        links = [
            LinkTask(
                task.work, task.base_offset, task.out, str(block_file(self._work, done, LINKS)), path, task.modified_ns
            )
            for task, done in zip(tasks, made, strict=True)
            if done["links"]
        ]
        timers = list(self._timer_tasks(path))
        amount = total(made, "links") + sum(os.path.getsize(task.path) for task in timers)
        run = self._engine.run_tasks
        all_tasks: list[LinkTask | TimerTask] = [*links, *timers]
        phase = Phase(RELATE, amount, "entries")
        related = run_phase(run, self._work, self._progress, phase, all_tasks, relate) if all_tasks else []
        for task, done_timers in zip(timers, related[len(links) :], strict=True):
            take_timers(task, done_timers)
        return related[: len(links)], related[len(links) :]

    def _timer_tasks(self, moved: str) -> Iterator[TimerTask]:
        root = self._source.layout.root
        if not has_timers(root):
            return
        self._timers.mkdir(exist_ok=True)
        for _, path in list_segment_files(root / TIMER_LOG)[0]:
            yield TimerTask(str(self._work.root), str(path), str(self._timers / path.name), moved)

    def _new_source(self, tasks: list[ConvertTask]) -> StoreSource:
        """The new log, beside the queues and the configuration of the store that it was made of."""
        layout = dataclasses.replace(self._source.layout, commit_log_directories=(self._log,), ledgers=())
        places = (SegmentPlace(task.base_offset, task.size, task.out) for task in tasks)
        return replace(
            self._source, layout=layout, segments=tuple(places), index_files=(), problems=(), tree=None, is_copied=False
        )

    def _rebuild_request(self, probed: Probed) -> ConvertRequest:
        """The request with the shape of the index files that there are, none of which stays."""
        request = self._request
        shape = choose_shape(probed.index_files, profile=request.profile, slots=request.slots, capacity=request.entries)
        profile = TAGGED_PROFILE if shape.tags else CLASSIC_PROFILE
        zone = zone_of_names(request.zone, probed.index_files)
        return replace(
            request, profile=profile, slots=shape.slots, entries=shape.capacity, zone=request.zone or _zone_text(zone)
        )

    def _notes(self, tasks: list[ConvertTask], log_end: int) -> Iterator[str]:
        """Sentences that an operator should read before a broker starts; the old log ends at `log_end`."""
        size = tasks[0].size
        if size != DEFAULT_SEGMENT_SIZE:
            yield f"the segments have {size} bytes: the broker needs mappedFileSizeCommitLog={size}"
        for ledger in self._source.layout.ledgers:
            start = uncommitted_from(ledger)
            if start is not None and start < log_end:
                yield (
                    f"messages from physical offset {start} of the old log on lie behind the committedIndex of its "
                    "DLedger group: they are in the new log, as if this member had become the leader"
                )


def check_source(source: StoreSource) -> None:
    """Raise ConfigError for a store whose log is plain already, StoreError for one that a broker is using."""
    root = source.layout.root
    if not any(is_ledger(Path(directory).parent.name) for directory in source.layout.commit_log_directories):
        raise ConfigError(f"{source.named(str(root))} has no log of DLedger's: it is a plain store already")
    if source.is_live:
        raise StoreError(root, what="is in use by a broker: stop it first, so that log and offsets belong together")


def _zone_text(zone: tzinfo | None) -> str | None:
    """A zone as --tz takes it: as an offset."""
    return None if zone is None else datetime.now(zone).isoformat()[-len("+00:00") :]


def _details(
    tasks: list[ConvertTask], made: list[ConvertedSegment], links: list[Related], timers: list[Related]
) -> ConvertDetails:
    used = [done for done in made if done["used"]]
    return ConvertDetails(
        segments=len(tasks),
        segment_size=tasks[0].size,
        bytes=total(made, "used"),
        end=used[-1]["base"] + used[-1]["used"] if used else tasks[0].base_offset,
        half_messages=total(links, "found"),
        timers=total(timers, "found"),
        lost=total(links, "lost") + total(timers, "lost"),
    )
