"""What of a store has to be looked at for a search, and in which pieces."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from storage.commit_log import CommitLog, Segment
from storage.message_store import MessageStore
from storage.search.chunk import Chunk
from storage.search.matcher import Matcher

CHUNK_BYTES: Final = 8 << 20
"""Bytes of log searched at once: some milliseconds, after which progress is told."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Pieces of the log to search, ascending; ``notes`` say by what they were chosen, as sentences."""

    chunks: Sequence[Chunk]
    notes: tuple[str, ...] = ()

    @property
    def total_bytes(self) -> int:
        """Bytes of log to go through."""
        return sum(chunk.size for chunk in self.chunks)


def chunks_of(commit_log: CommitLog, start: int, stop: int) -> Iterator[Chunk]:
    """All pieces of the log between two physical offsets, ascending, none over a segment's end."""
    for segment in commit_log.segments:
        yield from _pieces(segment, max(start, segment.base_offset), min(stop, segment.end))


def _pieces(segment: Segment, start: int, stop: int) -> Iterator[Chunk]:
    while start < stop:
        end = min(start - start % CHUNK_BYTES + CHUNK_BYTES, stop)
        yield Chunk(segment, start, end)
        start = end


def make_plan(store: MessageStore, matcher: Matcher, *, exhaustive: bool) -> Plan:
    """Choose how to search."""
    log = store.commit_log
    return Plan(tuple(chunks_of(log, log.minimum, log.end)))
