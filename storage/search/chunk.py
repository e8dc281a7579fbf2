"""Search of one piece of a segment: candidates by the kernel, then each of them decoded and decided.

Pieces are searched at the same time, though where the first record of one starts is only known once the piece before
it is through. So a piece starts at the first intact record in it, and says where; if the piece before ends elsewhere
(in a body there may stand what looks like a record) it is searched again from there.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from protocol.errors import StoreError
from protocol.message import Message
from storage.kernels.records import (
    ANY_TIME,
    AT_BLANK,
    AT_DAMAGE,
    AT_LIMIT,
    check_intact,
    find_recent,
)
from storage.kernels.select_records import SearchQuery, Selection, select_records
from storage.log.commit_log import Segment
from storage.patterns.processes import in_groups
from storage.search.matcher import Matcher, Unreadable

CANDIDATES: Final = 1024
"""Candidates that the kernel notes before they are looked at."""

Found = tuple[int, list[Message]]
"""A record's physical offset, and those of its messages that match."""


@dataclass(slots=True)
class Part:
    """The result of one piece of a search, ascending; physical offsets.

    The first record starts at ``start``; the walk ended at ``end``, or None: in damage that goes on behind the piece.
    ``damage`` are ranges without an intact record; ``refused`` are candidates that are not intact, ``unreadable`` those
    that cannot be decompressed, or with which a pattern does not come to an end. ``is_cut``: it was stopped, or enough
    was found, and goes on at ``end``.
    """

    start: int
    end: int | None
    found: list[Found] = field(default_factory=list)
    count: int = 0
    damage: list[tuple[int, int]] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    unreadable: list[int] = field(default_factory=list)
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class Chunk:
    """A range of one segment to search: records that start in [start, stop), or only at the ``listed`` offsets."""

    segment: Segment
    start: int
    stop: int
    listed: npt.NDArray[np.int64] | None = None

    @property
    def size(self) -> int:
        """Length of the range in bytes of log, also if only listed records of it are read."""
        return self.stop - self.start

    def behind(self, physical_offset: int) -> "Chunk | None":
        """Return the part from a physical offset on; None if the range ends before it."""
        if physical_offset <= self.start:
            return self
        if physical_offset >= self.stop:
            return None
        listed = None if self.listed is None else self.listed[np.searchsorted(self.listed, physical_offset) :]
        return replace(self, start=physical_offset, listed=listed)


@dataclass(frozen=True, slots=True)
class Searcher:
    """Looks through pieces for one search; used by several threads at once.

    It stops within a piece after ``maximum`` messages, or when ``should_stop``.
    """

    matcher: Matcher
    query: SearchQuery
    should_stop: Callable[[], bool]
    maximum: int | None = None
    takes_records: bool = False
    """Whether what the kernel chooses is taken as it lies, without a look at its messages."""
    deciding: threading.Lock = field(default_factory=threading.Lock)
    """Held by who decodes records: that is work for one thread at a time, and threads that take turns at every record
    wait for each other most of the time."""

    def run(self, chunk: Chunk, start: int | None = None) -> Part:
        """Search a piece from ``start``, where a record should start, else from the first intact record in it.

        At the start of a segment a record should start, too.
        """
        return replace(self, matcher=self.matcher.for_one_run())._run(chunk, start)

    def _run(self, chunk: Chunk, start: int | None) -> Part:
        if chunk.segment.file.is_cut():  # by somebody who truncated it: its pages must not be touched
            return Part(chunk.stop, None)
        if chunk.listed is not None:
            return self._run_listed(chunk, chunk.listed)
        if start is None and chunk.start == chunk.segment.base_offset:
            start = chunk.start
        elif start is None:
            start = first_intact(chunk.segment, chunk.start, chunk.stop)
        if start is None:
            return Part(chunk.stop, None)
        part = Part(start, start)
        while part.end is not None and part.end < chunk.stop and not part.is_cut:
            self._walk(chunk, part.end, part)
        return part

    def _walk(self, chunk: Chunk, start: int, part: Part) -> None:
        """Go from record to record, up to damage, enough candidates, or the end."""
        segment = chunk.segment
        base = segment.base_offset
        positions = np.empty(CANDIDATES, np.int64)
        selection = self._select(segment, start - base, chunk.stop - base, positions)
        with self.deciding:
            self._confirm(segment, (positions[: selection.found] + base).tolist(), part)
        if part.is_cut:
            return
        part.end = base + selection.position
        if selection.reason == AT_DAMAGE:
            following = first_intact(segment, part.end + 1, chunk.stop)
            part.damage.append((part.end, chunk.stop if following is None else following))
            part.end = following
        elif selection.reason == AT_BLANK:
            part.end = segment.end
        elif selection.reason == AT_LIMIT and part.end < chunk.stop:  # fewer bytes are left than any record has
            part.end = chunk.stop

    def _select(self, segment: Segment, position: int, stop: int, positions: npt.NDArray[np.int64]) -> Selection:
        return select_records(
            segment.file.region, position, stop, segment.valid_length, segment.base_offset, segment.boundary,
            self.query, positions,
        )  # fmt: skip

    def _run_listed(self, chunk: Chunk, listed: npt.NDArray[np.int64]) -> Part:
        part = Part(chunk.start, chunk.start)
        with self.deciding:
            self._confirm(chunk.segment, self._worth_a_look(chunk.segment, listed), part)
        if not part.is_cut:
            part.end = chunk.stop
        return part

    def _worth_a_look(self, segment: Segment, listed: npt.NDArray[np.int64]) -> Iterator[int]:
        """The offsets, of those listed, of records that the kernel does not rule out, or that have no sound shape."""
        positions = np.empty(1, np.int64)
        for offset in listed.tolist():
            position = offset - segment.base_offset
            selection = self._select(segment, position, position + 1, positions)
            if selection.found or selection.reason == AT_DAMAGE:
                yield offset

    def _confirm(self, segment: Segment, offsets: Iterable[int], part: Part) -> None:
        """Decide about candidates; ``part.end`` is where to go on if it is cut.

        About the first of them in any case: else one that takes longer than there is time would never be passed.
        """
        if self.takes_records:
            return self._take_records(segment, offsets, part)
        is_begun = False
        for group in self._groups(segment, offsets):
            if self._cuts(part, group[0], is_begun=is_begun):
                return
            for offset in self._left(segment, group):
                if self._cuts(part, offset, is_begun=is_begun):
                    return
                self._look_at(segment, offset, part)
                is_begun = True
            is_begun = True

    def _take_records(self, segment: Segment, offsets: Iterable[int], part: Part) -> None:
        """Note candidates that are intact."""
        region, base, limit = segment.file.region, segment.base_offset, segment.valid_length
        for offset in offsets:
            if check_intact(region, offset - base, limit, offset) < 0:
                part.refused.append(offset)
            else:
                part.found.append((offset, []))

    def _cuts(self, part: Part, offset: int, *, is_begun: bool) -> bool:
        """Whether a candidate is left to another time; noted in the part."""
        part.end = offset
        is_enough = self.maximum is not None and part.count >= self.maximum
        part.is_cut = is_enough or (is_begun and self.should_stop())
        return part.is_cut

    def _groups(self, segment: Segment, offsets: Iterable[int]) -> Iterator[list[int]]:
        """Candidates whose bodies are looked at together; each alone, where the matcher has nothing to gain from it."""
        if not self.matcher.decides_by_body:
            return ([offset] for offset in offsets)
        return in_groups(offsets, lambda offset: len(_record_at(segment, offset)))

    def _left(self, segment: Segment, group: list[int]) -> Iterator[int]:
        """Filter candidates by their bodies."""
        if not self.matcher.decides_by_body:
            return iter(group)
        ruled_out = self.matcher.ruled_out([_record_at(segment, offset) for offset in group])
        return (offset for offset, is_out in zip(group, ruled_out, strict=True) if not is_out)

    def _look_at(self, segment: Segment, offset: int, part: Part) -> None:
        """Decide about one record of sound shape."""
        position = offset - segment.base_offset
        size = check_intact(segment.file.region, position, segment.valid_length, offset)
        if size < 0:
            part.refused.append(offset)
            return
        try:
            messages = self.matcher.matches_in(segment.file.view[position : position + size], offset)
        except Unreadable:
            part.unreadable.append(offset)
            return
        except StoreError:
            part.refused.append(offset)
            return
        if messages:
            part.found.append((offset, messages))
            part.count += len(messages)


def _record_at(segment: Segment, offset: int) -> memoryview:
    """The bytes of a record of sound shape, or of what a unit takes for one."""
    view, position = segment.file.view, offset - segment.base_offset
    return view[position : position + int.from_bytes(view[position : position + 4])]


def first_intact(segment: Segment, start: int, stop: int) -> int | None:
    """Physical offset of the first intact record that starts in [start, stop), or None."""
    base, limit = segment.base_offset, stop - segment.base_offset
    if start >= stop:
        return None
    found = find_recent(segment.file.region, start - base, limit, segment.valid_length, base, ANY_TIME)
    return base + found if found < limit else None
