"""Fill holes of a log from copies of its store, before it is mended.

compare   one task a segment with holes: what of the copies fits into them (:mod:`spark_jobs.convert._find_bytes`)
fill      one task a segment that gets any of it: the old bytes, and those that fit
rescan    these segments are read once more; for all that follows they take the place of the old ones
"""

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from spark_jobs.build.rebuild import Rebuilt
from spark_jobs.build.unit_blocks import UnitList
from spark_jobs.convert._fillings import FilledHole, Fillings, OpenHole
from spark_jobs.convert._find_bytes import PHASE as COMPARE
from spark_jobs.convert._find_bytes import FindTask, Hole, LogCopy, find_bytes
from spark_jobs.convert._log_gaps import Gaps, find_gaps
from spark_jobs.convert._mend_segment import MendTask, TakenRange, mend_segment
from spark_jobs.convert.log_copies import find_copies
from spark_jobs.convert.rescue_request import RescueRequest
from spark_jobs.run.attempt import RunTasks, run_phase
from spark_jobs.run.progress import JobProgress, Phase
from spark_jobs.run.work_directory import WorkDirectory
from spark_jobs.scan.log_end import find_log_end
from spark_jobs.scan.probe_store import SegmentPlace
from spark_jobs.scan.scan_log import scan_tasks
from spark_jobs.scan.scan_segment import ScanSummary, scan_segment
from spark_jobs.scan.source import StoreSource
from storage.layout.store_layout import COMMIT_LOG
from storage.log.log_window import LONGEST_RECORD

FILL: Final = "fill"
RESCAN: Final = "rescan"


class HoleFilling:
    """The filling of one log, of which a scan is done."""

    def __init__(
        self, request: RescueRequest, source: StoreSource, work: WorkDirectory, run: RunTasks, progress: JobProgress
    ) -> None:
        """Prepare; nothing is read or written yet."""
        self._request, self._source, self._work = request, source, work
        self._run, self._progress = run, progress
        self._taken: list[TakenRange] = []

    def look(self, read: Rebuilt) -> Fillings:
        """Take from the copies what fits; it lies in the work directory."""
        gaps = find_gaps(self._request, self._source, read.segments, read.log_end)
        copies = find_copies(self._request)
        tasks = list(self._tasks(read, gaps, copies)) if copies else []
        phase = Phase(COMPARE, sum(hole.stop - hole.start for task in tasks for hole in task.holes), "bytes")
        made = run_phase(self._run, self._work, self._progress, phase, tasks, find_bytes)
        filled, left = list[FilledHole](), list[OpenHole]()
        for task, done in zip(tasks, made, strict=True):
            path = str(self._work.partial / done["attempt"])
            for start, stop, number, messages in done["found"]:
                filled.append(FilledHole(start, stop - start, messages, copies[number].path))
                self._taken.append(TakenRange(start, stop, path, task.base_offset))
            left += [OpenHole(start, stop - start, tuple(reasons)) for start, stop, reasons in done["refused"]]
        return Fillings(tuple(filled), tuple(left), read.log_end.more_damages)

    def fill(self, read: Rebuilt) -> StoreSource:
        """Make the segments that get anything; the log with them in the place of the old ones, as `read` is then."""
        if not self._taken:
            return self._source
        gaps = find_gaps(self._request, self._source, read.segments, read.log_end)
        tasks = list(self._fill_tasks(gaps))
        phase = Phase(FILL, sum(task.size for task in tasks), "bytes")
        made = run_phase(self._run, self._work, self._progress, phase, tasks, mend_segment)
        places = {place.base_offset: place for place in self._source.segments}
        names = {place.base_offset: place.path for place in self._source.segments}
        for task, done in zip(tasks, made, strict=True):
            base = task.base_offset
            places[base] = SegmentPlace(base, task.size, str(self._work.partial / done["attempt"]))
            names.setdefault(base, str(self._source.layout.root / COMMIT_LOG / f"{base:020d}"))
        source = replace(self._source, segments=tuple(places[base] for base in sorted(places)))
        again = {task.base_offset for task in tasks}
        scans = [
            replace(task, phase=RESCAN)
            for task in scan_tasks(self._work.root, source, read.options)
            if task.base_offset in again
        ]
        phase = Phase(RESCAN, phase.total, "bytes")
        scanned = run_phase(self._run, self._work, self._progress, phase, scans, scan_segment)
        by_base: dict[int, ScanSummary] = {summary["base"]: summary for summary in read.segments}
        for summary in scanned:
            summary["path"] = names[summary["base"]]
            by_base[summary["base"]] = summary
        read.segments = [by_base[base] for base in sorted(by_base)]
        read.log_end = find_log_end(read.segments, None)
        return source

    def _tasks(self, read: Rebuilt, gaps: Gaps, copies: Sequence[LogCopy]) -> Iterator[FindTask]:
        """A task for each segment in which holes start."""
        by_base: dict[int, list[Hole]] = defaultdict(list)
        for start, stop in gaps.log.lost:
            by_base[gaps.base_of(start)].append(Hole(start, stop, _front_of(start, read.segments)))
        units = UnitList.leave(self._work, read.segments)
        bases = [summary["base"] for summary in read.segments if summary["unit_table"] >= 0]
        options = read.options
        for base, holes in by_base.items():
            lowest, highest = holes[0].start - gaps.size - LONGEST_RECORD, holes[-1].stop + LONGEST_RECORD
            yield FindTask(
                work=str(self._work.root),
                base_offset=base,
                minimum=gaps.log.minimum,
                size=gaps.size,
                holes=tuple(holes),
                places=_between(self._source.segments, lowest, highest),
                copies=tuple(LogCopy(copy.path, _between(copy.places, lowest, highest)) for copy in copies),
                before=replace(units, stop=sum(each <= base for each in bases)),
                behind=replace(units, start=sum(each < base for each in bases)),
                bundles=options.bundles,
                delays=options.delays,
                lmq=options.lmq,
                batch_topics=options.batch_topics,
            )

    def _fill_tasks(self, gaps: Gaps) -> Iterator[MendTask]:
        """A task for each segment that gets anything."""
        by_base: dict[int, list[TakenRange]] = defaultdict(list)
        for taken in self._taken:
            for base in range(gaps.base_of(taken.start), taken.stop, gaps.size):
                by_base[base].append(taken)
        for base, ranges in sorted(by_base.items()):
            beside = max((each for each in self._source.segments if each.base_offset <= base), key=_base_of)
            is_there = beside.base_offset == base
            yield MendTask(
                work=str(self._work.root),
                path=beside.path if is_there else "",
                base_offset=base,
                out="",
                size=gaps.size,
                fills=(),
                end=min(gaps.log.end, base + gaps.size),
                unlisted=-1,
                near=0,
                modified_ns=os.stat(beside.path).st_mtime_ns,
                links=False,
                taken=tuple(ranges),
                phase=FILL,
            )


def _between(places: Sequence[SegmentPlace], start: int, stop: int) -> tuple[SegmentPlace, ...]:
    """The segments that have a byte of [start, stop)."""
    return tuple(each for each in places if each.base_offset < stop and start < each.base_offset + each.size)


def _base_of(place: SegmentPlace) -> int:
    return place.base_offset


def _front_of(start: int, summaries: Sequence[ScanSummary]) -> int:
    """Where the records in front of a hole end, −1 where there are none; a BLANK may stand between."""
    for summary in summaries:
        if summary["base"] < start <= summary["base"] + summary["size"]:
            return min(start, summary["end"])
    return -1
