"""A content search by tasks of an engine: each has a segment, and all else is as in one process.

Segments are searched some at a time, as many as there are cores, twice: after each such wave there is something to
show, and to stop at. Only records that match come back; the driver decodes them once more. A task whose records take
too much room comes back before its segment is through, and the next wave goes on there: however many messages match,
the driver holds a few hundred megabytes of them.
"""

import contextlib
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from spark_jobs.run.engine import Engine, EngineOptions, opened_engine
from spark_jobs.search._searched_segment import RECORD_BYTES, SearchedSegment, SegmentCopy, opened_segment
from spark_jobs.search._waves import in_waves
from spark_jobs.search.searched_store import SearchedStore
from storage.log.log_window import LONGEST_RECORD
from storage.search.chunk import Chunk, Part, Searcher
from storage.search.criteria import Criteria
from storage.search.cursor import Cursor
from storage.search.engine import SearchRun, of_a_topic
from storage.search.matcher import Matcher
from storage.search.plan import make_plan
from storage.search.query import query_of
from storage.search.step import Step


class SearchTask(msgspec.Struct, frozen=True):
    """Pieces of a segment to search, each a :class:`Chunk`'s start, stop and list, ascending.

    The first record of the first piece starts at `begin`, None where only searching the piece can show it. The task
    is over after `most` bytes of records, or `maximum` messages, None for no limit.
    """

    segment: SearchedSegment
    pieces: list[tuple[int, int, list[int] | None]]
    begin: int | None
    criteria: Criteria
    maximum: int | None
    most: int


class FoundPart(NamedTuple):
    """What a piece holds up to physical offset `stop`, without what was found; and the records that match.

    Records are bytes, by physical offset.
    """

    stop: int
    part: Part
    records: list[tuple[int, bytes]]


def search_segment(task: SearchTask) -> list[FoundPart]:
    """Search pieces in their order, all of them or, where that is enough, the first ones."""
    matcher = Matcher(task.criteria)
    searcher = Searcher(matcher, query_of(matcher), lambda: False, task.maximum)
    found: list[FoundPart] = []
    left, count = task.most, 0
    begin = task.begin
    with opened_segment(task.segment) as copy:
        for start, stop, listed in task.pieces:
            chunk = Chunk(copy.segment, start, stop, None if listed is None else np.array(listed, np.int64))
            part = _search(searcher, copy, chunk, begin if not found or start == found[-1].stop else None)
            begin = None if listed is not None else part.end
            found.append(_taken(copy, chunk, part, left, task.most))
            left -= sum(len(record) for _, record in found[-1].records)
            count += part.count
            if (
                part.is_cut
                or left <= 0
                or found[-1].stop < stop
                or (task.maximum is not None and count >= task.maximum)
            ):
                break
    return found


def _taken(copy: SegmentCopy, chunk: Chunk, part: Part, left: int, most: int) -> FoundPart:
    """A piece as it comes back: cut before a record with which more than `left` bytes of `most` would be taken.

    Where nothing was taken yet, a longer record is.
    """
    view, base = copy.segment.file.view, copy.segment.base_offset
    records: list[tuple[int, bytes]] = []
    for offset, _ in part.found:
        at = offset - base
        size = int.from_bytes(view[at : at + 4])
        if size > left < most:
            cut = replace(
                part,
                end=offset,
                damage=[each for each in part.damage if each[0] < offset],
                refused=[each for each in part.refused if each < offset],
                unreadable=[each for each in part.unreadable if each < offset],
                is_cut=False,
            )
            return FoundPart(offset, replace(cut, found=[], count=0), records)
        records.append((offset, bytes(view[at : at + size])))
        left -= size
    return FoundPart(chunk.stop, replace(part, found=[], count=0), records)


def _search(searcher: Searcher, copy: SegmentCopy, chunk: Chunk, begin: int | None) -> Part:
    """Search one piece, of which all that is looked at is there."""
    base = chunk.segment.base_offset
    if chunk.listed is not None:
        copy.show_records((chunk.listed - base).tolist())
        return searcher.run(chunk)
    if begin is not None and begin >= chunk.stop:
        return Part(begin, begin)
    start = chunk.start if begin is None else begin
    shown = chunk.stop + RECORD_BYTES
    copy.show(start - base, shown - base)
    part = searcher.run(chunk, begin)
    is_sure = part.end is not None and part.end <= shown and not (part.damage or part.refused or part.unreadable)
    if is_sure or copy.is_whole or shown >= chunk.segment.end:
        return part
    copy.show(start - base, chunk.stop + LONGEST_RECORD - base)
    return searcher.run(chunk, begin)


def search_by_tasks(
    searched: SearchedStore,
    criteria: Criteria,
    *,
    engine: EngineOptions,
    notify: Callable[[str], None] | None = None,
    limit: int | None = None,
    cursor: str | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    exhaustive: bool = False,
) -> Iterator[Step]:
    """As :func:`storage.search.search`, by the tasks of an engine.

    They see the log under the same paths, or behind the same URL. `notify` gets the lines for the person who waits for
    a cluster's executors. Raises SparkFailed where Spark does not start, TaskFailed where a segment cannot be read, and
    NoSuchTopic as there.
    """
    matcher = Matcher(criteria)
    begin = Cursor(0) if cursor is None else Cursor.decode(cursor, criteria)
    started = time.monotonic()
    plan = make_plan(searched.store, criteria, exhaustive=exhaustive, access=searched.access)

    def steps() -> Iterator[Step]:
        with engine_for("search", engine, notify) as opened:
            search_all = partial(_search_all, opened, searched)
            yield from SearchRun(matcher, plan, limit, begin, should_stop, search_all, started).steps()

    return of_a_topic(searched.store, criteria.topic, steps())


@contextlib.contextmanager
def engine_for(
    name: str, options: EngineOptions, notify: Callable[[str], None] | None, tasks: str = __name__
) -> Iterator[Engine]:
    """An engine for a command that leaves nothing behind; raises SparkFailed where it does not start."""
    with (
        tempfile.TemporaryDirectory(prefix=f"rocketlens-{name}-") as work,
        opened_engine(name, options, Path(work), tasks=tasks, notify=notify) as engine,
    ):
        yield engine


@dataclass
class _SegmentStretch:
    """Pieces of one segment that are still to be searched, the first of which begins with a record at `begin`."""

    searched: SearchedStore
    searcher: Searcher
    pieces: list[Chunk]
    begin: int | None = None
    held: list[tuple[Chunk, Part]] = field(default_factory=list)

    @property
    def is_done(self) -> bool:
        """Whether no piece is left."""
        return not self.pieces

    def task(self, most: int) -> SearchTask:
        """The pieces that are left."""
        return SearchTask(
            segment=self.searched.searched_segment(self.pieces[0].segment),
            pieces=[
                (each.start, each.stop, None if each.listed is None else each.listed.tolist()) for each in self.pieces
            ],
            begin=self.begin,
            criteria=self.searcher.matcher.criteria,
            maximum=self.searcher.maximum,
            most=most,
        )

    def take(self, answer: Sequence[FoundPart]) -> None:
        """Hold parts with their messages."""
        for stop, part, records in answer:
            chunk = self.pieces.pop(0)
            rest = chunk.behind(stop)
            self.begin = None if chunk.listed is not None else part.end
            if rest is not None:
                self.pieces.insert(0, rest)
                chunk = replace(chunk, stop=stop)
            elif not (self.pieces and self.pieces[0].start == chunk.stop):
                self.begin = None
            self.held.append((chunk, _whole_part(part, records, self.searcher.matcher)))


def _search_all(
    engine: Engine, searched: SearchedStore, searcher: Searcher, chunks: Sequence[Chunk]
) -> Generator[tuple[Chunk, Part], None, None]:
    """Search segments in waves; their parts in order."""
    by_segment = groupby(chunks, lambda chunk: chunk.segment.base_offset)
    stretches = [_SegmentStretch(searched, searcher, list(pieces)) for _, pieces in by_segment]
    yield from in_waves(engine, "search", stretches, search_segment)


def _whole_part(part: Part, records: Sequence[tuple[int, bytes]], matcher: Matcher) -> Part:
    """Add the messages of the records that match to what came back."""
    found = [(offset, matcher.matches_in(memoryview(record), offset)) for offset, record in records]
    return replace(part, found=found, count=sum(len(messages) for _, messages in found))
