"""Compactions and rebuilds of queues by themselves: the same tasks, one after the other in this process."""

import contextlib
import shutil
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import msgspec

from compact_oracle import Mark, take_mark
from loop_engine import LoopEngine
from queue_runs import files_under
from spark_jobs.build.build_queues import build_queues, join_parts, take_queues
from spark_jobs.build.exchange import FileExchange
from spark_jobs.build.place_queues import (
    carry_queues,
    log_extent,
    queue_details,
    queue_notes,
    queue_tasks,
    staged_trees,
)
from spark_jobs.build.split_queues import survey_queues
from spark_jobs.compact import _compact_tasks, compact
from spark_jobs.compact.compact import Compact, Compacted
from spark_jobs.compact.compact_request import CompactRequest
from spark_jobs.run.progress import Silence
from spark_jobs.run.work_directory import WorkDirectory
from spark_jobs.scan.scan_segment import ScanTask, scan_segment
from spark_jobs.scan.source import find_source
from storage.build.queue_plan import QueueOptions, QueuePlan
from storage.files.own_directories import HeldDirectory
from storage.layout.delay_levels import DEFAULT_DELAY_LEVELS, parse_delay_levels


@dataclass(frozen=True)
class Outcome:
    """What was done, the bytes of the files that came out, in order, and the directory in which they are.

    `marks` are what the files say of themselves, and `files` their bytes without that.
    """

    compacted: Compacted
    files: list[bytes]
    marks: list[Mark | None]
    directory: Path

    def replace(self, index: Path) -> None:
        shutil.rmtree(index)
        shutil.copytree(self.directory, index)


def compact_store(store, work, *, engine=None, **options):
    request = CompactRequest(store=str(store), out=str(work / "out"), **options)
    with closing(WorkDirectory.open(work, {"request": request.identity()})) as directory:
        source, engine = find_source(store, ()), engine or LoopEngine()
        compacted = Compact(request, source, directory, engine, FileExchange(engine, directory, Silence())).run()
    paths = sorted((directory.staged / "index").iterdir())
    assert [path.name for path in paths] == [file["name"] for file in compacted.index_files]
    files, marks = zip(*(take_mark(path.read_bytes(), compacted.shape.slots) for path in paths), strict=True)
    assert [mark.entries if mark else 0 for mark in marks] == [file["entries"] for file in compacted.index_files]
    return Outcome(compacted, list(files), list(marks), directory.staged / "index")


def compact_in_place(writer, work, **options):
    outcome = compact_store(writer.root, work, **options)
    outcome.replace(writer.root / "index")
    return outcome


@contextmanager
def small_steps(cell_bytes, entries_at_once):
    """Cut log and index files into stretches of this size, so that small stores have many of them."""
    split_tasks = _compact_tasks.split_tasks

    def small(*arguments):
        tasks = split_tasks(*arguments)
        return [msgspec.structs.replace(task, cell_bytes=cell_bytes, entries_at_once=entries_at_once) for task in tasks]

    with mock.patch.object(compact, "split_tasks", small):
        yield


def survey_here(tasks):
    return [survey_queues(task) for task in tasks]


class Rebuilt:
    def __init__(self, store, work, *, end=None, damages=(), bundles=3, in_place=False, **options) -> None:
        self.work = left_in(work) or WorkDirectory.open(work, {"store": str(store)})
        self.plan = QueuePlan.of(store, QueueOptions(**options))
        paths = sorted((store / "commitlog").iterdir())
        self.segments = [scan_segment(self._scan_task(path, bundles)) for path in paths]
        end = max(summary["end"] for summary in self.segments) if end is None else end
        self.log = log_extent(self.segments[0]["base"], end, damages)
        self.tasks = queue_tasks(survey_here, self.plan, self.work, self.segments, self.log, bundles)
        built = [build_queues(task) for task in self.tasks]
        for bundle in built:
            take_queues(self.work, bundle)
        self.bundles = join_parts(built)
        self.carried = carry_queues(self.plan, self.work, self.bundles, self.log, in_place=in_place)
        self.trees = staged_trees(self.plan, self.work)
        self.details = queue_details(self.plan, self.bundles, self.carried)
        self.notes = queue_notes(self.plan, self.details)

    def _scan_task(self, path: Path, bundles: int) -> ScanTask:
        topics = tuple(sorted(topic.encode() for topic in self.plan.batch_topics))
        return ScanTask(
            work=str(self.work.root), path=str(path), base_offset=int(path.name), limit=-1, entries=False,
            checksums=False, tags=True, bundles=bundles, delays=parse_delay_levels(DEFAULT_DELAY_LEVELS),
            lmq=self.plan.lmq, ext=self.plan.ext, batch_topics=topics,
        )  # fmt: skip

    @property
    def files(self) -> dict[str, bytes]:
        return files_under(self.work.staged)


def left_in(base: Path) -> WorkDirectory | None:
    with contextlib.suppress(FileNotFoundError):
        return WorkDirectory.left_in(HeldDirectory.own(base, make=False))
    return None
