"""Make a log of a damaged one over which every broker's recovery walks, up to a finished `commitlog/`.

    scan      what a rebuild reads of the log says which ranges hold no sound record
    fill      some of these are filled from copies (:mod:`spark_jobs.convert._fill_holes`)
    mend      one task a segment: a copy with fillers in these ranges, at the old physical offsets
    relate    timers that point to lost messages point nowhere

Nothing is moved: offsets in queues, in ids of messages and in the checkpoint stay valid.
"""

import os
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from spark_jobs.build.moved_log import MovedLog
from spark_jobs.build.rebuild import Rebuilt
from spark_jobs.convert._fill_holes import HoleFilling
from spark_jobs.convert._fillings import Fillings
from spark_jobs.convert._log_gaps import Gaps, find_gaps, first_file
from spark_jobs.convert._losses import Losses, find_losses
from spark_jobs.convert._mend_segment import PHASE, MendedSegment, MendTask, mend_segment, store_time
from spark_jobs.convert._relate import PHASE as RELATE
from spark_jobs.convert._relate import Related, leave_moved, relate, timer_tasks
from spark_jobs.convert.new_log import MendDetails, NewLog
from spark_jobs.convert.rescue_request import RescueRequest
from spark_jobs.run.attempt import RunTasks, run_phase, take_made
from spark_jobs.run.progress import JobProgress, Phase
from spark_jobs.run.work_directory import WorkDirectory
from spark_jobs.scan.scan_log import total
from spark_jobs.scan.segment_walk import WalkSummary
from spark_jobs.scan.source import StoreSource
from storage.amounts import counted
from storage.layout.store_layout import COMMIT_LOG


class Mend:
    """One mending of one log, of which a scan is done."""

    def __init__(
        self, request: RescueRequest, source: StoreSource, work: WorkDirectory, run: RunTasks, progress: JobProgress
    ) -> None:
        """Prepare; nothing is read or written yet."""
        self._request, self._source, self._work = request, source, work
        self._run, self._progress = run, progress
        self._log = work.staged / COMMIT_LOG

    def run(self, rebuilt: Rebuilt, rebuild: RescueRequest) -> NewLog:
        """Write the log; `rebuild` is the request by which it was read. `rebuilt` gets what copies fill."""
        fillings = self._fill(rebuilt)
        gaps = find_gaps(self._request, self._source, rebuilt.segments, rebuilt.log_end)
        losses = find_losses(self._source.layout.root, gaps.log, first_file(self._source))
        for sentence in losses.sentences():
            self._progress.note(sentence)
        self._log.mkdir(exist_ok=True)
        tasks = list(self._tasks(gaps, rebuilt.segments))
        phase = Phase(PHASE, sum(task.size for task in tasks), "bytes")
        made = run_phase(self._run, self._work, self._progress, phase, tasks, mend_segment)
        for task, done in zip(tasks, made, strict=True):
            take_made(task.work, done, task.out)
        moved = MovedLog((), gaps.log)
        details = _details(gaps, losses, fillings, made, self._move_timers(moved))
        return NewLog(
            segments=rebuilt.segments,
            log_end=rebuilt.log_end,
            source=replace(self._source, index_files=(), problems=()),
            rebuild=rebuild,
            moved=moved,
            details=details,
            checkpoint=self._checkpoint(rebuilt.segments, gaps.log.end),
            notes=list(_notes(details)),
        )

    def _fill(self, rebuilt: Rebuilt) -> Fillings:
        """Fill holes from copies, if any are given."""
        if not self._request.fill_from:
            return Fillings()
        filling = HoleFilling(self._request, self._source, self._work, self._run, self._progress)
        fillings = filling.look(rebuilt)
        for sentence in fillings.sentences():
            self._progress.note(sentence)
        self._source = filling.fill(rebuilt)
        return fillings

    def _tasks(self, gaps: Gaps, summaries: Sequence[WalkSummary]) -> Iterator[MendTask]:
        """A task for each segment up to the one in which the log ends, also for those that are missing."""
        log, size = gaps.log, gaps.size
        places = {place.base_offset: place for place in self._source.segments}
        by_base = {summary["base"]: summary for summary in summaries}
        near, modified = self._first_time(gaps, summaries), 0
        last = gaps.base_of(max(log.end - 1, log.minimum))
        for base in range(log.minimum, last + 1, size):
            place = places.get(base)
            modified = os.stat(place.path).st_mtime_ns if place is not None else modified
            near = (by_base[base]["last_timestamp"] if base in by_base else 0) or near
            stop = base + size
            fills = tuple((max(one, base), min(other, stop)) for one, other in log.lost if one < stop and base < other)
            unlisted = gaps.unlisted.get(base, -1)
            is_sound = place is not None and place.size == size and not fills and unlisted < 0
            yield MendTask(
                work=str(self._work.root),
                path="" if place is None else place.path,
                base_offset=base,
                out=str(self._log / f"{base:020d}"),
                size=size,
                fills=fills,
                end=min(log.end, stop),
                unlisted=unlisted,
                near=near,
                modified_ns=modified,
                links=self._request.link and is_sound and base < last,
            )

    def _first_time(self, gaps: Gaps, summaries: Sequence[WalkSummary]) -> int:
        """A store time for fillers in front of all records: that of the first."""
        first = gaps.log.minimum
        for start, stop in gaps.log.lost:
            first = stop if start <= first < stop else first
        place = next((each for each in self._source.segments if 0 <= first - each.base_offset < gaps.size), None)
        found = 0
        if place is not None:
            with open(place.path, "rb") as file:
                found = store_time(file.fileno(), first - place.base_offset)
        return found or next((each["last_timestamp"] for each in summaries if each["last_timestamp"]), 1)

    def _move_timers(self, moved: MovedLog) -> list[Related]:
        """Copy the timer's files; what points to a lost message points nowhere."""
        tasks = list(timer_tasks(self._source.layout.root, self._work, leave_moved(self._work, moved)))
        if not tasks:
            return []
        phase = Phase(RELATE, sum(os.path.getsize(task.path) for task in tasks), "entries")
        related = run_phase(self._run, self._work, self._progress, phase, tasks, relate)
        for task, done in zip(tasks, related, strict=True):
            take_made(task.work, done, task.out)
        return related

    def _checkpoint(self, summaries: Sequence[WalkSummary], end: int) -> dict[str, int]:
        """All of the log is flushed and in the queues; an offset that says something lies in the log."""
        latest = max((summary["last_timestamp"] for summary in summaries), default=0)
        changes = {"physic_msg_timestamp": latest, "logics_msg_timestamp": latest}
        before = self._source.checkpoint
        if before is not None:
            changes["confirm_physical_offset"] = min(max(before.confirm_physical_offset, 0), end)
            changes["logics_physical_offset"] = end if before.logics_physical_offset else 0
            changes["master_flushed_offset"] = min(max(before.master_flushed_offset, 0), end)
        return changes


def _details(
    gaps: Gaps, losses: Losses, fillings: Fillings, made: Sequence[MendedSegment], timers: Sequence[Related]
) -> MendDetails:
    return MendDetails(
        segments=len(made),
        segment_size=gaps.size,
        linked=sum(done["linked"] for done in made),
        end=gaps.log.end,
        filled_bytes=total(made, "filled"),
        filled_places=total(made, "places"),
        unfilled=[offset for done in made for offset in done["left"]],
        losses=losses,
        fillings=fillings,
        timers=total(timers, "found"),
        lost_timers=total(timers, "lost"),
    )


def _notes(details: MendDetails) -> Iterator[str]:
    """Sentences that an operator should read before a broker starts."""
    if details.unfilled:
        yield (
            f"in {counted(len(details.unfilled), 'place')}, the first at physical offset {details.unfilled[0]}, no "
            "message fits in the place of damage: a recovery that reads there ends the log"
        )
    if details.lost_timers:
        led = counted(details.lost_timers, "timer leads", "timers lead")
        yield f"{led} to lost messages, and will deliver nothing"
