"""A rebuild of a store's queues without Spark: its tasks called one after the other, as Spark calls them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from left_work import left_in
from queue_runs import files_under
from spark_jobs.build.build_queues import build_queues, join_parts, take_queues
from spark_jobs.build.place_queues import (
    carry_queues,
    log_extent,
    queue_details,
    queue_notes,
    queue_tasks,
    staged_trees,
)
from spark_jobs.build.split_queues import SegmentExtent, SurveyTask, survey_queues
from spark_jobs.run.report import Damage
from spark_jobs.run.work_directory import WorkDirectory
from spark_jobs.scan.scan_segment import ScanTask, scan_segment
from storage.build.queue_plan import QueueOptions, QueuePlan
from storage.layout.delay_levels import DEFAULT_DELAY_LEVELS, parse_delay_levels


def survey_here(tasks: Sequence[SurveyTask]) -> list[list[list[SegmentExtent] | None]]:
    """Look at queues in this process."""
    return [survey_queues(task) for task in tasks]


class Rebuilt:
    """What a rebuild of a store's queues left in its work directory."""

    def __init__(
        self,
        store: Path,
        work: Path,
        *,
        end: int | None = None,
        damages: tuple[Damage, ...] = (),
        in_place: bool = False,
        bundles: int = 3,
        **options: Any,
    ) -> None:
        left = left_in(work)
        self.work = left or WorkDirectory.open(work, {"store": str(store)})
        self.plan = QueuePlan.of(store, QueueOptions(**options))
        self.segments = [
            scan_segment(self._scan_task(path, bundles)) for path in sorted((store / "commitlog").iterdir())
        ]
        self.log = log_extent(self.segments[0]["base"], self._end() if end is None else end, damages)
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
        return ScanTask(
            work=str(self.work.root),
            path=str(path),
            base_offset=int(path.name),
            limit=-1,
            entries=False,
            checksums=False,
            tags=True,
            bundles=bundles,
            delays=parse_delay_levels(DEFAULT_DELAY_LEVELS),
            lmq=self.plan.lmq,
            ext=self.plan.ext,
            batch_topics=tuple(sorted(topic.encode() for topic in self.plan.batch_topics)),
        )

    def _end(self) -> int:
        end: int = max(summary["end"] for summary in self.segments)
        return end

    @property
    def files(self) -> dict[str, bytes]:
        return files_under(self.work.staged)
