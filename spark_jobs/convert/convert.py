"""Convert the log of a DLedger store into a plain one, up to a finished `commitlog/` in the work directory.

    probe     what is there, and of what shape the index files are
    convert   one task a segment: its records, at their new places
    relate    what points to records of other segments: commits to half messages, the units of `timerlog/`

Behind it the index and the queues are rebuilt from the new log like those of any store.
"""

import dataclasses
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from protocol.errors import ConfigError, StoreError
from spark_jobs.build.moved_log import MovedLog, MovedSegment
from spark_jobs.build.place_queues import log_extent
from spark_jobs.convert._convert_segment import (
    LINKS,
    PHASE,
    ConvertedSegment,
    ConvertTask,
    convert_segment,
    moves_path,
)
from spark_jobs.convert._log_gaps import first_file
from spark_jobs.convert._losses import Losses, find_losses
from spark_jobs.convert._relate import PHASE as RELATE
from spark_jobs.convert._relate import LinkTask, Related, TimerTask, leave_moved, relate, timer_tasks
from spark_jobs.convert.convert_request import ConvertRequest
from spark_jobs.convert.new_log import ConvertDetails, NewLog, settled_request
from spark_jobs.run.attempt import block_file, run_phase, take_made
from spark_jobs.run.engine import Engine
from spark_jobs.run.progress import JobProgress, Phase
from spark_jobs.run.work_directory import WorkDirectory
from spark_jobs.scan.log_end import find_log_end
from spark_jobs.scan.probe_store import SegmentPlace
from spark_jobs.scan.scan_log import Probed, probe_source, total
from spark_jobs.scan.source import StoreSource
from storage.build.existing_queue import ReadableLog
from storage.build.queue_plan import LARGEST_FILE
from storage.layout.closed_parts import refuse_closed
from storage.layout.dledger import is_ledger, uncommitted_from
from storage.layout.store_layout import COMMIT_LOG
from storage.log.segment_list import boundaries

DEFAULT_SEGMENT_SIZE: Final = 1 << 30
"""What a broker has without a line about it in its configuration."""


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
        self._log = work.staged / COMMIT_LOG

    def run(self) -> NewLog:
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
            take_made(task.work, done, task.out)
        log_end = find_log_end(made, None)
        log = log_extent(source.segments[0].base_offset, log_end.end, log_end.damages)
        moved = MovedLog(tuple(MovedSegment(each["base"], moves_path(self._work, each)) for each in made), log)
        related = self._relate(tasks, made, moved)
        details = _details(tasks, made, *related, self._losses(log))
        return NewLog(
            segments=made,
            log_end=log_end,
            source=self._new_source(tasks),
            rebuild=settled_request(request, probed),
            moved=moved,
            details=details,
            checkpoint=self._checkpoint(made, details.end),
            notes=list(self._notes(tasks, log_end.end)),
        )

    def _losses(self, log: ReadableLog) -> Losses:
        """Name the losses; for a store behind a URL there are no queues here that show them."""
        if self._source.tree is not None:
            return Losses(0, (), ())
        losses = find_losses(self._source.layout.root, log, first_file(self._source))
        for sentence in losses.sentences():
            self._progress.note(sentence)
        return losses

    def _tasks(self, probed: Probed) -> Iterator[ConvertTask]:
        """A task for each segment to which anything was written, or behind which anything was."""
        places = [place for place in self._source.segments if place.base_offset <= probed.last_base]
        files = [(place.base_offset, place.size) for place in self._source.segments]
        limits = [place.base_offset for place in self._source.segments[1:]] + [-1]
        for place, limit, boundary in zip(places, limits, boundaries(files), strict=False):
            if boundary - place.base_offset > LARGEST_FILE:
                what = f"claims to be {place.size:,} bytes long, more than a broker can map"
                raise StoreError(place.path, what=what)
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
        timers = list(timer_tasks(self._source.layout.root, self._work, path))
        amount = total(made, "links") + sum(os.path.getsize(task.path) for task in timers)
        run = self._engine.run_tasks
        all_tasks: list[LinkTask | TimerTask] = [*links, *timers]
        phase = Phase(RELATE, amount, "entries")
        related = run_phase(run, self._work, self._progress, phase, all_tasks, relate) if all_tasks else []
        for task, done_timers in zip(timers, related[len(links) :], strict=True):
            take_made(task.work, done_timers, task.out)
        return related[: len(links)], related[len(links) :]

    def _new_source(self, tasks: list[ConvertTask]) -> StoreSource:
        """The new log, beside the queues and the configuration of the store that it was made of."""
        layout = dataclasses.replace(self._source.layout, commit_log_directories=(self._log,), ledgers=())
        places = (SegmentPlace(task.base_offset, task.size, task.out) for task in tasks)
        return replace(
            self._source, layout=layout, segments=tuple(places), index_files=(), problems=(), tree=None, is_copied=False
        )

    def _checkpoint(self, made: list[ConvertedSegment], end: int) -> dict[str, int]:
        """The new log's offsets where the checkpoint has any: 0 says nothing."""
        checkpoint = self._source.checkpoint
        if checkpoint is None:
            return {}
        last_record = max((summary["last_record"] for summary in made), default=0)
        return {
            "master_flushed_offset": 0,
            "confirm_physical_offset": max(last_record, 0) if checkpoint.confirm_physical_offset else 0,
            "logics_physical_offset": end if checkpoint.logics_physical_offset else 0,
        }

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


def has_ledger(source: StoreSource) -> bool:
    """Whether the log of a store is DLedger's, at least in part."""
    return any(is_ledger(Path(directory).parent.name) for directory in source.layout.commit_log_directories)


def check_source(source: StoreSource) -> None:
    """Raise ConfigError for a store whose log is plain already, StoreError for one that a broker is using."""
    if not has_ledger(source):
        raise ConfigError(
            f"{source.named(str(source.layout.root))} has no log of DLedger's: it is a plain store already"
        )
    check_stopped(source)


def check_log_open(source: StoreSource) -> None:
    """Raise StoreError for a store of whose log a part cannot be opened: it is not lost."""
    _check_open(source, log_only=True)


def _check_open(source: StoreSource, *, log_only: bool = False) -> None:
    layout = source.layout
    command = shlex.join(["rocketlens", "doctor", str(layout.root)])
    refuse_closed(layout.root, layout.commit_log_directories, command, log_only=log_only)


def check_stopped(source: StoreSource) -> None:
    """Raise StoreError for a store that a broker is using, or of which a part cannot be opened: it is not lost."""
    _check_open(source)
    if source.is_live:
        raise StoreError(
            source.layout.root, what="is in use by a broker: stop it first, so that log and offsets belong together"
        )


def _details(
    tasks: list[ConvertTask],
    made: list[ConvertedSegment],
    links: list[Related],
    timers: list[Related],
    losses: Losses,
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
        losses=losses,
    )
