"""A search from its criteria to its last message: pieces of the log on all cores, their results in the log's order.

Kernels let other threads run while they search, so threads are enough as long as few records have to be decoded.
"""

import os
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from functools import partial

import numpy as np

from protocol.message import Message
from storage.ordered_threads import in_ordered_threads
from storage.patterns.mask import BoundedMask
from storage.search._in_tier import search_in_tier
from storage.search._remarks import Remarks
from storage.search.chunk import Chunk, Part, Searcher
from storage.search.criteria import Criteria
from storage.search.cursor import Cursor
from storage.search.matcher import Matcher
from storage.search.plan import Plan, make_plan
from storage.search.progress import ProgressReport
from storage.search.query import query_of
from storage.search.step import RecordsFound, Step
from storage.store.message_store import MessageStore
from storage.store.topic_catalog import refuse_absent

Stop = Callable[[], bool]
Parts = Generator[tuple[Chunk, Part], None, None]
SearchAll = Callable[[Searcher, Sequence[Chunk]], Parts]
"""Searches pieces, in whatever order, and gives what they hold in theirs."""


def search(
    store: MessageStore,
    criteria: Criteria,
    *,
    limit: int | None = None,
    cursor: str | None = None,
    should_stop: Stop = lambda: False,
    threads: int | None = None,
    exhaustive: bool = False,
    is_abandoned: Stop = lambda: False,
    mask: BoundedMask | None = None,
) -> Iterator[Step]:
    """Search a store for at most ``limit`` messages, from ``cursor`` on; a step for each piece of log.

    ``should_stop`` is asked often, from several threads; the search may be gone on with from where it stopped, which
    is behind at least one record that was worth a look. ``is_abandoned`` is asked also while a pattern is compiled or
    run; then PatternsStopped is raised. ``exhaustive`` trusts neither queue units nor clocks. ``mask`` is that of the
    criteria, where its count is wanted. Waits for the disk.
    Raises at once ConfigError and FilterSyntaxError for criteria or a cursor that cannot be.
    """
    matcher = Matcher(criteria, is_abandoned, mask)
    begin = Cursor(0) if cursor is None else Cursor.decode(cursor, criteria)
    started = time.monotonic()
    plan = make_plan(store, criteria, exhaustive=exhaustive)
    in_threads = partial(search_in_threads, threads=threads or os.cpu_count() or 1)

    def run(plan: Plan, limit: int | None, begin: Cursor) -> Iterator[Step]:
        return SearchRun(matcher, plan, limit, begin, should_stop, in_threads, started).steps()

    if store.queues.tier is not None:
        return search_in_tier(store, criteria, plan, run, limit, begin)
    return run(plan, limit, begin)


def search_records(
    store: MessageStore, topic: str | None, times: tuple[int, int], *, should_stop: Stop = lambda: False
) -> Iterator[Step]:
    """The records of a topic, or of all, that were stored between two times (ms), as they lie: batches are one each.

    As :func:`search`, which finds the same in the same order, but nothing is decoded. Not of tiered stores.
    """
    criteria = Criteria(topic=topic, begin_timestamp=times[0], end_timestamp=times[1])
    plan = make_plan(store, criteria)
    in_threads = partial(search_in_threads, threads=os.cpu_count() or 1)
    run = SearchRun(
        Matcher(criteria), plan, None, Cursor(0), should_stop, in_threads, time.monotonic(), takes_records=True
    )
    return of_a_topic(store, topic, run.steps())


def of_a_topic(store: MessageStore, topic: str | None, steps: Iterator[Step]) -> Iterator[Step]:
    """The steps of a search; raises NoSuchTopic at its end if nothing was found and the topic is nowhere."""
    found = 0
    for step in steps:
        found = step.progress.found
        yield step
    if topic and not found:
        refuse_absent(store, topic)


def search_in_threads(searcher: Searcher, chunks: Sequence[Chunk], *, threads: int) -> Parts:
    """Search pieces by several threads, a few ahead of the caller."""
    with closing(in_ordered_threads("search", searcher.run, chunks, min(threads, len(chunks) or 1))) as parts:
        yield from zip(chunks, parts, strict=True)


class SearchRun:
    """One search under way."""

    def __init__(
        self,
        matcher: Matcher,
        plan: Plan,
        limit: int | None,
        begin: Cursor,
        should_stop: Stop,
        search_all: SearchAll,
        started: float,
        *,
        takes_records: bool = False,
    ) -> None:
        self._criteria, self._host = matcher.criteria, matcher.born_host
        self._plan = plan
        self._begin = begin
        self._should_stop = should_stop
        self._search_all = search_all
        self._started = started
        self._is_over = threading.Event()
        self._left = limit
        self._searcher = Searcher(
            matcher, query_of(matcher), self._stops, None if limit is None else limit + begin.given, takes_records
        )
        self._records: RecordsFound | None = None
        self._remarks = Remarks()
        self._found = 0
        self._total = plan.total_bytes
        self._before = self._searched = 0

    def steps(self) -> Iterator[Step]:
        """Search; the last step is the one that says so."""
        chunks = [rest for chunk in self._plan.chunks if (rest := chunk.behind(self._begin.physical_offset))]
        self._before = self._searched = self._total - sum(chunk.size for chunk in chunks)
        previous: Chunk | None = None
        end: int | None = None
        parts = self._search_all(self._searcher, chunks)
        try:
            for chunk, part in parts:
                part = self._in_sequence(chunk, part, _expected_start(chunk, previous, end))
                previous, end = chunk, part.end
                messages, cursor = self._take(chunk, part)
                if cursor is None and chunk is chunks[-1]:
                    yield self._step(messages, chunk.size, None, is_last=True)
                    return
                is_last = cursor is not None
                cursor = cursor or Cursor(chunk.stop if part.end is None else part.end)
                size = min(max(cursor.physical_offset - chunk.start, 0), chunk.size) if is_last else chunk.size
                yield self._step(messages, size, cursor, is_last=is_last)
                if is_last:
                    return
            yield self._step([], 0, None, is_last=True)
        finally:
            self._is_over.set()
            parts.close()

    def _in_sequence(self, chunk: Chunk, part: Part, expected: int | None) -> Part:
        """A piece as it is if its first record starts where the one before ends, else searched again from there."""
        if chunk.listed is not None or expected == part.start:
            return part
        if expected is not None:
            return Part(expected, expected) if expected >= chunk.stop else self._searcher.run(chunk, expected)
        self._remarks.add_damage(chunk.start, part.start)
        return part

    def _take(self, chunk: Chunk, part: Part) -> tuple[list[Message], Cursor | None]:
        """Take the wanted messages of a piece, and the place to continue if no more are wanted."""
        self._remarks.add(part)
        if self._searcher.takes_records:
            offsets = np.fromiter((offset for offset, _ in part.found), np.int64, len(part.found))
            self._records = RecordsFound(chunk.segment, offsets)
            self._found += len(offsets)
        taken: list[Message] = []
        for offset, matching in part.found:
            given = self._begin.given if offset == self._begin.physical_offset else 0
            rest = matching[given:]
            if self._left is not None and len(taken) + len(rest) >= self._left:
                rest = rest[: self._left - len(taken)]
                return [*taken, *rest], Cursor(offset, given + len(rest))
            taken += rest
        if self._left is not None:
            self._left -= len(taken)
        if part.is_cut or self._should_stop():
            return taken, Cursor(chunk.stop if part.end is None else part.end)
        return taken, None

    def _step(self, messages: list[Message], size: int, cursor: Cursor | None, *, is_last: bool) -> Step:
        if self._host is not None:
            self._remarks.by_proxy += sum(self._host.is_proxy_of(message) for message in messages)
        self._found += len(messages)
        self._searched += size
        seconds = time.monotonic() - self._started
        records, self._records = self._records, None
        return Step(
            messages=tuple(messages),
            progress=ProgressReport(self._searched, self._total, self._found, seconds, self._before),
            cursor=None if cursor is None else cursor.encode(self._criteria),
            is_last=is_last,
            notes=(*self._plan.notes, *self._remarks.sentences()) if is_last else (),
            records=records,
        )

    def _stops(self) -> bool:
        return self._is_over.is_set() or self._should_stop()


def _expected_start(chunk: Chunk, previous: Chunk | None, end: int | None) -> int | None:
    """Return where the first record of a piece must start, None if only a search of the piece shows it."""
    if chunk.start == chunk.segment.base_offset:
        return chunk.start
    if previous is None or previous.stop != chunk.start or previous.listed is not None:
        return None
    return end
