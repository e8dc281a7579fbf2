"""Choose the parts of the log that a search has to read, and in which pieces: by index, by queues, by time, or all."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from protocol.system_topics import LIGHT_PREFIX
from storage.amounts import counted
from storage.files.mapped_file import LARGEST_OFFSET
from storage.log.commit_log import CommitLog, Segment
from storage.search._by_index import offsets_by_index
from storage.search._by_queue import (
    HasUnit,
    Offsets,
    OffsetsInQueue,
    dispatched_to,
    has_unit,
    offsets_by_queue,
    offsets_in_queue,
    required_tags,
)
from storage.search._by_time import FindRecord, offsets_of_times, record_from
from storage.search.chunk import Chunk
from storage.search.criteria import EARLIEST, Criteria
from storage.store.message_store import MessageStore
from storage.store.topic_catalog import absence_of_topic

CHUNK_BYTES: Final = 8 << 20
"""Bytes of log searched at once: some milliseconds, after which progress is reported."""

LISTED_AT_ONCE: Final = 2048
"""Records of a list that are looked at at once."""

COST_OF_RECORD: Final = 4096
"""Bytes of log that are scanned while one record of a list is fetched: it lies anywhere, mostly alone in its page."""


@dataclass(frozen=True, slots=True)
class RecordAccess:
    """How a plan looks at single records and units: in the store's own files, or where a copy of them has holes."""

    find_record: FindRecord = record_from
    has_unit: HasUnit = has_unit
    in_queue: OffsetsInQueue = offsets_in_queue


@dataclass(frozen=True, slots=True)
class Plan:
    """Pieces of the log to search, ascending; ``notes``, sentences, say how they were chosen, and what is not there."""

    chunks: Sequence[Chunk]
    notes: tuple[str, ...] = ()

    @property
    def total_bytes(self) -> int:
        """Bytes of log to go through."""
        return sum(chunk.size for chunk in self.chunks)


def make_plan(
    store: MessageStore, criteria: Criteria, *, exhaustive: bool = False, access: RecordAccess | None = None
) -> Plan:
    """Choose what to look at; if ``exhaustive``, all of the log. Waits for the disk.

    ``access`` is for a store that is not all there.
    """
    log = store.commit_log
    lacking = log.gaps()
    if criteria.topic is not None:
        lacking += absence_of_topic(store, criteria.topic)
    lacking += tuple(store.config.notes_of_topics(None if criteria.topic is None else [criteria.topic]))
    if exhaustive:
        return Plan(list(chunks_of(log, log.minimum, log.end)), lacking)
    chunks, notes = _narrowed(store, criteria, access or RecordAccess())
    return Plan(chunks, (*notes, *lacking))


def _narrowed(store: MessageStore, criteria: Criteria, access: RecordAccess) -> tuple[list[Chunk], list[str]]:
    snapshot, log = store.snapshot, store.commit_log
    by_index = offsets_by_index(store, criteria)
    if by_index is not None:
        return list(listed(log, by_index, log.minimum, log.end)), [
            f"{counted(by_index.size, 'record was', 'records were')} found by the index"
        ]
    start, stop, notes = log.minimum, log.end, []
    if criteria.begin_timestamp > EARLIEST or criteria.end_timestamp < LARGEST_OFFSET:
        start, stop = offsets_of_times(log, criteria.begin_timestamp, criteria.end_timestamp, access.find_record)
    if (start, stop) != (log.minimum, log.end):
        notes = [f"{start} to {stop} of the log were stored in that time, plus or minus an hour, if clocks were right"]
    if criteria.topic is not None and (covered := min(dispatched_to(snapshot, access.has_unit), stop)) > start:
        by_queue = offsets_by_queue(snapshot, criteria.topic, required_tags(criteria), start, covered, access.in_queue)
        # What is in a light queue only its units say.
        choose = listed if criteria.topic.startswith(LIGHT_PREFIX) else listed_or_scanned
        chunks = [] if by_queue is None else list(choose(log, by_queue, start, covered))
        if by_queue is not None and any(chunk.listed is not None for chunk in chunks):
            note = f"{counted(by_queue.size, 'record')} up to {covered} found by the queues of {criteria.topic}"
            is_mixed = any(chunk.listed is None for chunk in chunks)
            notes.append(f"{note}; segments that are full of them are scanned" if is_mixed else note)
            return [*chunks, *chunks_of(log, covered, stop)], notes
    return list(chunks_of(log, start, stop)), notes


def chunks_of(commit_log: CommitLog, start: int, stop: int) -> Iterator[Chunk]:
    """All pieces of the log between two physical offsets, ascending, none over a segment's end."""
    for segment in commit_log.segments:
        yield from _pieces(segment, max(start, segment.base_offset), min(stop, segment.end))


def _pieces(segment: Segment, start: int, stop: int) -> Iterator[Chunk]:
    while start < stop:
        end = min(start - start % CHUNK_BYTES + CHUNK_BYTES, stop)
        yield Chunk(segment, start, end)
        start = end


def listed(commit_log: CommitLog, offsets: Offsets, start: int, stop: int) -> Iterator[Chunk]:
    """Pieces that hold the records at some physical offsets, ascending, and together all from ``start`` to ``stop``."""
    for segment, inside, first, last in _by_segment(commit_log, offsets, start, stop):
        yield from _listed_in(segment, inside, first, last)


def listed_or_scanned(commit_log: CommitLog, offsets: Offsets, start: int, stop: int) -> Iterator[Chunk]:
    """Pieces as :func:`listed` gives them, but a segment that holds very many of the records is scanned: less work."""
    for segment, inside, first, last in _by_segment(commit_log, offsets, start, stop):
        if inside.size * COST_OF_RECORD < last - first:
            yield from _listed_in(segment, inside, first, last)
            continue
        begin, latest = int(inside[0]), int(inside[-1])
        end = min(latest - latest % CHUNK_BYTES + CHUNK_BYTES, last)  # where another record is met behind a damaged one
        yield from _listed_in(segment, inside[:0], first, begin)
        yield from _pieces(segment, begin, end)
        yield from _listed_in(segment, inside[:0], end, last)


def _by_segment(
    commit_log: CommitLog, offsets: Offsets, start: int, stop: int
) -> Iterator[tuple[Segment, Offsets, int, int]]:
    """Each segment in [start, stop) with those offsets that lie in it, and the part of it that lies in the range."""
    for segment in commit_log.segments:
        first, last = max(start, segment.base_offset), min(stop, segment.end)
        if first < last:
            yield segment, offsets[np.searchsorted(offsets, first) : np.searchsorted(offsets, last)], first, last


def _listed_in(segment: Segment, inside: Offsets, first: int, last: int) -> Iterator[Chunk]:
    """Records of one segment, which together are all from ``first`` to ``last``."""
    for number in range(0, max(inside.size, 1), LISTED_AT_ONCE):
        behind = number + LISTED_AT_ONCE
        end = int(inside[behind]) if behind < inside.size else last
        if first < end:
            yield Chunk(segment, first, end, inside[number:behind])
        first = end
