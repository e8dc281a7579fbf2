"""Count all messages of a log, segment by segment; by threads here, by Spark elsewhere, with the same counting."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeAlias

from storage.amounts import bytes_text, counted
from storage.columns.wanted import ALL_TIMES
from storage.log.commit_log import CommitLog
from storage.ordered_threads import in_ordered_threads
from storage.space.scan_space import SegmentPart, tally_segment
from storage.space.tally import Tally

TallyAll: TypeAlias = Callable[[Sequence[SegmentPart]], Iterable[Tally]]
"""Counts segments, in whatever order, and gives their tallies in theirs."""


def parts_of(commit_log: CommitLog, times: tuple[int, int] = ALL_TIMES) -> list[SegmentPart]:
    """The segments of a log, each up to where its valid records end; `times` are those of messages that count."""
    return [
        SegmentPart(
            str(segment.file.path.absolute()),
            segment.base_offset,
            segment.end - segment.base_offset,
            segment.boundary,
            times,
        )
        for segment in commit_log.segments
    ]


def measure(
    commit_log: CommitLog,
    tally_all: TallyAll | None = None,
    report: Callable[[int], None] = lambda _bytes: None,
    times: tuple[int, int] = ALL_TIMES,
) -> Tally:
    """Count all that was stored between two times, in ms; `report` gets the bytes that are counted, and may raise.

    That ends the counting, which waits for the disk.

    Raises StoreError where a segment cannot be read.
    """
    parts, whole, done = parts_of(commit_log, times), Tally(), 0
    report(0)
    for part, tally in zip(parts, (tally_all or in_threads)(parts), strict=True):
        whole.merge(tally)
        done += part.stop
        report(done)
    return whole


def in_threads(
    parts: Sequence[SegmentPart], threads: int | None = None, check: Callable[[], None] = lambda: None
) -> Iterator[Tally]:
    """Count segments by several threads, a few ahead of what is asked for; by default as many as there are cores.

    These threads call `check` often; what it raises ends the counting.
    """
    threads = min(threads or os.cpu_count() or 1, len(parts) or 1)
    yield from in_ordered_threads("space", partial(tally_segment, check=check), parts, threads)


def problems_of(commit_log: CommitLog, tally: Tally) -> list[str]:
    """Sentences about what of the log could not be counted; none where all of it was."""
    problems = list(commit_log.gaps())
    if tally.gone:
        where = ", ".join(f"{start} to {stop}" for start, stop in tally.gone)
        problems.append(f"segments were deleted before they were counted: physical offsets {where}")
    if tally.damaged_places:
        places = f"{bytes_text(tally.damaged_bytes)} in {counted(tally.damaged_places, 'place')}"
        where = ", ".join(f"{start} to {stop}" for start, stop in tally.damage)
        more = "" if len(tally.damage) == tally.damaged_places else ", and more"
        problems.append(f"{places} hold no intact record and are not counted: physical offsets {where}{more}")
    return problems
