"""Build one queue that has far more units than others by several tasks, each of which makes whole files of it.

Files of a plain queue have a fixed number of units, so queue offsets say in which file a unit belongs, if each is that
of the unit before it and one more. Then a queue may be cut where a file begins, and the files come out as one task
would make them. Whether that is so is looked at first: tasks read the units of the queue, each those of some segments.
A queue of which any unit is repeated, misnumbered, missing, or numbered anew from 0 on (its topic was made again) is
left to one task, as are queues of batches, and those with extensions, where each unit's place depends on all before it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

import msgspec

from protocol.system_topics import LIGHT_PREFIX
from spark_jobs.build.build_queues import BuiltPart
from spark_jobs.build.unit_blocks import UnitList, queue_runs, unit_count
from spark_jobs.scan.scan_segment import ScanSummary, bundle_of
from storage.build.queue_builder import LARGEST_QUEUE_OFFSET
from storage.build.queue_plan import QueuePlan, Verdict
from storage.layout.store_layout import CONSUME_QUEUE
from storage.queue.consume_queue import UNIT

LEAST_UNITS: Final = 1 << 23
"""The least that a part is worth a task for."""

SEGMENTS_AT_ONCE: Final = 32
"""How many segments one task looks at."""

QueueName: TypeAlias = tuple[bytes, int]


class SegmentExtent(NamedTuple):
    """The units of a queue in the segment of a number: of queue offsets [first, stop), one after the other."""

    segment: int
    first: int
    stop: int


class SurveyTask(msgspec.Struct, frozen=True):
    """Queues of a bundle to be looked at in some segments; units of records at or beyond `end` do not count."""

    bundle: int
    units: UnitList
    queues: tuple[QueueName, ...]
    end: int


Survey: TypeAlias = Callable[[Sequence[SurveyTask]], list[list[list[SegmentExtent] | None]]]
"""Has queues looked at by tasks; what :func:`survey_queues` says of each task."""


def survey_queues(task: SurveyTask) -> list[list[SegmentExtent] | None]:
    """The extents of each queue; None for one whose units do not follow one another."""
    found: dict[QueueName, list[SegmentExtent] | None] = {queue: [] for queue in task.queues}
    for number, file in enumerate(task.units.read(), task.units.start):
        for block in file.blocks(task.bundle, task.end):
            for run in queue_runs(block, task.end):
                extents = found.get(run.name)
                if extents is None:
                    continue
                stop = run.first + len(run.units) // UNIT.size
                follows = run.first == extents[-1].stop if extents else run.first >= 0
                if run.key.tree != CONSUME_QUEUE or not follows or stop > LARGEST_QUEUE_OFFSET:
                    found[run.name] = None
                elif extents and extents[-1].segment == number:
                    extents[-1] = extents[-1]._replace(stop=stop)
                else:
                    extents.append(SegmentExtent(number, run.first, stop))
    return list(found.values())


def join_extents(answers: Iterable[list[SegmentExtent] | None]) -> list[SegmentExtent] | None:
    """Join the extents of a queue in stretches of the log, in order; None if units do not follow one another."""
    extents: list[SegmentExtent] = []
    for answer in answers:
        if answer is None or (extents and answer and extents[-1].stop != answer[0].first):
            return None
        extents += answer
    return extents


def split_queues(
    survey: Survey, plan: QueuePlan, segments: Sequence[ScanSummary], units: UnitList, end: int, bundles: int
) -> dict[QueueName, list[tuple[BuiltPart, UnitList]]]:
    """The queues that are to be built in parts, and the parts of each, with the segments that have anything of them."""
    share = max(unit_count(segments) // bundles, LEAST_UNITS)
    by_bundle: dict[int, list[QueueName]] = {}
    for queue in _hot_queues(plan, segments, 2 * share):
        by_bundle.setdefault(bundle_of(*queue, bundles), []).append(queue)
    tasks = [
        SurveyTask(bundle, msgspec.structs.replace(units, start=start, stop=stop), tuple(queues), end)
        for bundle, queues in by_bundle.items()
        for start, stop in pairwise([*range(units.start, units.stop, SEGMENTS_AT_ONCE), units.stop])
    ]
    answers: dict[QueueName, list[list[SegmentExtent] | None]] = {}
    for task, answer in zip(tasks, survey(tasks), strict=True):
        for queue, extents in zip(task.queues, answer, strict=True):
            answers.setdefault(queue, []).append(extents)
    split: dict[QueueName, list[tuple[BuiltPart, UnitList]]] = {}
    for queues in by_bundle.values():
        number = 0
        for queue in queues:
            parts = list(_parts(queue, number, answers[queue], plan.file_sizes[CONSUME_QUEUE] // UNIT.size, share))
            if len(parts) > 1:
                split[queue] = [(part, msgspec.structs.replace(units, start=a, stop=b)) for part, a, b in parts]
                number += len(parts)
    return split


def _hot_queues(plan: QueuePlan, segments: Sequence[ScanSummary], least: int) -> list[QueueName]:
    """The queues of which scans found so many units that they should be split, and of the kind that can be."""
    counts: Counter[QueueName] = Counter()
    for summary in segments:
        for topic, queue_id, count in summary["hot_queues"]:
            counts[bytes(topic), int(queue_id)] += count
    return sorted(queue for queue, count in counts.items() if count >= least and _is_of_kind(plan, queue))


def _is_of_kind(plan: QueuePlan, queue: QueueName) -> bool:
    key = plan.key(*queue)
    if key is None or key.tree != CONSUME_QUEUE or plan.verdict(*queue) is not Verdict.BUILD:
        return False
    return not plan.ext or key.topic.startswith(LIGHT_PREFIX)


def _parts(
    queue: QueueName, number: int, answers: Sequence[list[SegmentExtent] | None], file_units: int, share: int
) -> Iterator[tuple[BuiltPart, int, int]]:
    """Parts of a queue, numbered from `number` on, and the segments [from, to) that have units of them."""
    extents = join_extents(answers)
    if not extents:
        return
    step, stop = max(share // file_units, 1) * file_units, extents[-1].stop
    starts = range(extents[0].first // file_units * file_units, stop, step)
    for first in starts:
        inside = [each.segment for each in extents if each.stop > first and each.first < first + step]
        part = BuiltPart(*queue, number, first, first + step, is_last=first == starts[-1])
        yield part, inside[0], inside[-1] + 1
        number += 1
