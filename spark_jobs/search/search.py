"""A content search on Spark: segments are its partitions, and all else is as on one machine.

Segments are searched some at a time, as many as there are cores, twice: after each such wave there is something to
show, and to stop at. Only records that match come back; the driver decodes them once more.
"""

import contextlib
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from spark_jobs.run.session import run_tasks, spark_context
from storage.files.mapped_file import MappedFile
from storage.log.commit_log import Segment
from storage.search.chunk import Chunk, Part, Searcher
from storage.search.criteria import Criteria
from storage.search.cursor import Cursor
from storage.search.engine import SearchRun, Step
from storage.search.matcher import Matcher
from storage.search.plan import Plan, make_plan
from storage.search.query import query_of
from storage.store.message_store import MessageStore

if TYPE_CHECKING:
    from pyspark import SparkContext

WAVES_OF: Final = 2
"""Segments a core and wave."""


class SearchTask(msgspec.Struct, frozen=True):
    """Records that start at physical offsets [start, stop) of a segment, ``listed`` ones alone if there is a list."""

    path: str
    base_offset: int
    valid_length: int
    boundary: int
    start: int
    stop: int
    listed: list[int] | None
    criteria: Criteria
    maximum: int | None


def search_segment(task: SearchTask) -> dict[str, Any]:
    """Search one; what its :class:`Part` says, and the records that match, as bytes."""
    import numpy as np

    segment = Segment(task.base_offset, MappedFile.open(Path(task.path)), task.valid_length, task.boundary)
    matcher = Matcher(task.criteria)
    searcher = Searcher(matcher, query_of(matcher), lambda: False, task.maximum)
    listed = None if task.listed is None else np.array(task.listed, np.int64)
    part = searcher.run(Chunk(segment, task.start, task.stop, listed))
    view = segment.file.view
    places = [(offset, offset - task.base_offset) for offset, _ in part.found]
    records = [(offset, bytes(view[at : at + int.from_bytes(view[at : at + 4])])) for offset, at in places]
    return {
        "start": part.start,
        "end": part.end,
        "records": records,
        "damage": part.damage,
        "refused": part.refused,
        "unreadable": part.unreadable,
        "is_cut": part.is_cut,
    }


def search_on_spark(
    store: MessageStore,
    criteria: Criteria,
    *,
    master: str,
    settings: dict[str, str] | None = None,
    limit: int | None = None,
    cursor: str | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    exhaustive: bool = False,
) -> Iterator[Step]:
    """As :func:`storage.search.search`, by the workers of a Spark master, who see the log under the same paths.

    Raises SparkFailed where Spark does not start, TaskFailed where a segment cannot be read there.
    """
    matcher = Matcher(criteria)
    begin = Cursor(0) if cursor is None else Cursor.decode(cursor, criteria)
    started = time.monotonic()
    plan = make_plan(store, criteria, exhaustive=exhaustive)
    plan = Plan(tuple(_whole(plan.chunks)), plan.notes)
    return _steps(matcher, plan, limit, begin, should_stop, master, settings or {}, started)


def _steps(
    matcher: Matcher,
    plan: Plan,
    limit: int | None,
    begin: Cursor,
    should_stop: Callable[[], bool],
    master: str,
    settings: dict[str, str],
    started: float,
) -> Iterator[Step]:
    with contextlib.ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rocketlens-search-")))
        context = stack.enter_context(spark_context("search", master, work, settings, warm=__name__))
        run = SearchRun(matcher, plan, limit, begin, should_stop, partial(_search_all, context), started)
        yield from run.steps()


def _search_all(
    context: "SparkContext", searcher: Searcher, chunks: Sequence[Chunk]
) -> Generator[tuple[Chunk, Part], None, None]:
    """Search segments in waves; their parts in order."""
    at_once = WAVES_OF * context.defaultParallelism
    for first in range(0, len(chunks), at_once):
        wave = chunks[first : first + at_once]
        tasks = [_task(chunk, searcher) for chunk in wave]
        for chunk, answer in zip(wave, run_tasks(context, "search", tasks, search_segment), strict=True):
            yield chunk, _part(answer, searcher.matcher)


def _task(chunk: Chunk, searcher: Searcher) -> SearchTask:
    segment = chunk.segment
    return SearchTask(
        path=str(segment.file.path.absolute()),
        base_offset=segment.base_offset,
        valid_length=segment.valid_length,
        boundary=segment.boundary,
        start=chunk.start,
        stop=chunk.stop,
        listed=None if chunk.listed is None else chunk.listed.tolist(),
        criteria=searcher.matcher.criteria,
        maximum=searcher.maximum,
    )


def _part(answer: dict[str, Any], matcher: Matcher) -> Part:
    found = [(offset, matcher.matches_in(memoryview(record), offset)) for offset, record in answer.pop("records")]
    return Part(**answer, found=found, count=sum(len(messages) for _, messages in found))


def _whole(chunks: Sequence[Chunk]) -> Iterator[Chunk]:
    """Pieces of one segment as one, unless they are lists."""
    for _, pieces in groupby(chunks, lambda chunk: (chunk.segment.base_offset, chunk.listed is None)):
        each = list(pieces)
        if each[0].listed is not None:
            yield from each
        else:
            yield Chunk(each[0].segment, each[0].start, each[-1].stop)
