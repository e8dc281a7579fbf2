"""The end of a log that a broker goes on writing: which records have become whole since it was last looked at.

While nothing is written, a look is two short reads. They are no looks at the map: whoever cuts the file short would end
the process with SIGBUS, and so a file that became shorter is noticed and opened anew instead. A record counts once
something was appended behind it, or its queue has a unit of it, or its bytes, intact and without a zero byte in topic
and properties, are the same after a moment (store-format §6.7).

Behind the end of a log that was cut lie old bytes, and they may well be intact records. What differs from the bytes
that were seen there is new, and nothing else is; that something lies behind a record then proves nothing.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from protocol.errors import StoreError
from storage.commit_log import CommitLog, Segment
from storage.damaged_ranges import DamagedRange
from storage.kernels import follow as kernel
from storage.kernels.record import MINIMUM_SIZE, check_checksums, check_shape
from storage.kernels.scan import find_record_backwards
from storage.mapped_file import SEGMENT_NAME_DIGITS, MappedFile, list_segment_files
from storage.segment_end import EndSearch, code_at, last_store_timestamp

SETTLING_SECONDS: Final = 0.02
"""After so long without a change a record that is intact is whole."""
DAMAGED_SECONDS: Final = 1.0
"""After so long without a change bytes that are no intact record will not become one; they are looked at as seldom."""
STEP_BYTES: Final = 32 * 1024 * 1024
"""Bytes of log walked over in one look: some 20 ms."""
STALE_BYTES: Final = 16 * 1024 * 1024
"""Bytes remembered behind the end of a log that was cut: more than is written between two looks."""
LONGEST_RUN: Final = 4096
"""Records looked at one by one in one look."""
LOOK_BACK_BYTES: Final = 4 * 1024 * 1024
HEAD_BYTES: Final = 8
MARK_BYTES: Final = 64
NOTHING: Final = bytes(HEAD_BYTES)

IsDispatched = Callable[[memoryview, int], bool]
"""Whether the queue of a record, which starts at a physical offset, has a unit of it."""


class LogRewritten(Exception):
    """A record that was there was overwritten or cut off: nothing that is known of the log holds any more.

    ``cut_at`` is the physical offset of damage in whose place a broker has begun to write, None where nobody knows.
    """

    def __init__(self, cut_at: int | None = None) -> None:
        super().__init__(cut_at)
        self.cut_at = cut_at


class LogGrowth(NamedTuple):
    """The log as it has become; ``records`` are some of the new ones, one at least of each queue that has any.

    ``last`` is the physical offset of the last new record, −1 for none. ``more``: there may be more to walk over.
    """

    commit_log: CommitLog
    records: tuple[memoryview, ...]
    last: int
    more: bool


class _Place(NamedTuple):
    """Where a record starts, or the next one will."""

    base_offset: int
    file: MappedFile
    position: int

    @property
    def physical_offset(self) -> int:
        """The same as a physical offset."""
        return self.base_offset + self.position

    def peek(self, length: int) -> bytes:
        """What lies there now, up to the end of the segment's file; read and not mapped."""
        return self.file.peek(self.position, length)


class _Seen(NamedTuple):
    """Bytes at a physical offset, unchanged since a time, that may be a record that is being written."""

    physical_offset: int
    content: bytes
    since: float


class LogFollower:
    """Follows one log; to be used by one thread at a time, which may wait for the disk."""

    def __init__(self, directories: Sequence[Path]) -> None:
        self._directories = directories
        self._log: CommitLog | None = None
        self._place: _Place | None = None
        self._last_record: _Place | None = None
        self._mark = b""
        self._passed: _Place | None = None
        self._passed_bytes = b""
        self._stale: _Place | None = None
        self._stale_bytes = b""
        self._unsettled: _Seen | None = None
        self._damage: _Seen | None = None
        self._looked_at_damage = 0.0
        self._result = np.zeros(kernel.RESULTS, dtype=np.int64)

    def adopt(self, log: CommitLog) -> None:
        """Follow a log from here on; done by the first look at it otherwise."""
        if self._log is not None and _end_alike(log, self._log):
            self._log = log
            return
        self._log, self._unsettled, self._damage = log, None, None
        self._place = self._place_behind(log)
        self._stale = None
        # An intact record came since that log was opened; what is none may have old ones behind it.
        if self._place is not None and self._is_written(self._place) and not _is_intact(self._place):
            self._remember_stale(self._place)
        if self._passed is not None and self._passed.physical_offset == log.end:  # cut there: what was there is known
            self._stale, self._stale_bytes = self._passed, self._passed_bytes
        self._remember_passed(log)
        self._remember_last(log, _last_record(log))

    def is_quiet(self, log: CommitLog) -> bool:
        """Whether a look would find nothing, as far as that is seen at a glance; may be asked by any thread."""
        place = self._place
        return (
            log is self._log
            and place is not None
            and place.peek(HEAD_BYTES) == NOTHING
            and (self._is_mark_there() and self._is_passed_there())
        )

    def look(self, log: CommitLog, is_dispatched: IsDispatched, *, patient: bool = True) -> LogGrowth | None:
        """What came to a log since; None while nothing did. Raises LogRewritten.

        Without patience an intact record counts at once, as when a log is opened.
        """
        if log is not self._log:
            self.adopt(log)
        if not self._is_passed_there():
            raise LogRewritten(log.damage[0].start)
        if not self._is_mark_there():
            raise LogRewritten
        if self._place is None:
            self._place = self._place_behind(log)
        if self._place is None or not self._is_written(self._place):
            return None
        now = time.monotonic()
        if patient and self._is_damaged_as_before(now):
            return None
        growth = self._walk(log, self._place, _Judge(is_dispatched, now, patient))
        if growth is not None:
            self._take_over(growth)
        return growth

    @property
    def last_offset(self) -> int:
        """Physical offset of the last record, −1 where it is not known."""
        last = self._last_record
        return -1 if last is None else last.physical_offset

    # ------------------------------------------------------------------ where the end is

    def _is_mark_there(self) -> bool:
        """Whether the last record still begins as it did."""
        last = self._last_record
        return last is None or last.peek(MARK_BYTES) == self._mark

    def _is_passed_there(self) -> bool:
        """Whether damage that was passed over still begins as it did.

        A broker that starts on a damaged log cuts it there, whatever lies behind, and writes on at that place.
        """
        passed = self._passed
        return passed is None or passed.peek(MARK_BYTES) == self._passed_bytes[:MARK_BYTES]

    def _is_written(self, place: _Place) -> bool:
        """Whether anything stands where the next record will; the map may be looked at then. Raises LogRewritten."""
        head = place.peek(HEAD_BYTES)
        if head == NOTHING:
            return False
        if place.file.is_cut():
            raise LogRewritten
        return True

    def _take_over(self, growth: LogGrowth) -> None:
        """Follow the log that a look has made."""
        is_damage_new = self._log is None or growth.commit_log.damage != self._log.damage
        self._log = growth.commit_log
        self._place = self._place_behind(growth.commit_log)
        if self._place is not None and (self._stale is not None or growth.commit_log.torn_end is not None):
            self._remember_stale(self._place)
        if is_damage_new:
            self._remember_passed(growth.commit_log)
        if growth.last >= 0:
            self._remember_last(growth.commit_log, growth.last)

    def _place_behind(self, log: CommitLog) -> _Place | None:
        """Behind the last record, or where its segment is full at the start of the next; None while that is missing."""
        if not log.segments:
            return None
        last = log.segments[-1]
        place = _Place(last.base_offset, last.file, last.valid_length)
        return place if place.position < place.file.size else self._start_behind(place)

    def _start_behind(self, place: _Place) -> _Place | None:
        """The start of the segment behind a place's own, if its file is there at its full length."""
        base_offset = place.base_offset + place.file.size
        for path in self._paths_of(base_offset, place.file.path):
            try:
                file = MappedFile.open(path)
            except StoreError:  # it is about to come, or to go
                continue
            if file.size == place.file.size:
                return _Place(base_offset, file, 0)
        return None

    def _paths_of(self, base_offset: int, neighbour: Path) -> Iterator[Path]:
        """Where the segment of an offset may lie; its name is in the digits of its neighbour's."""
        for directory in self._directories:
            if neighbour.name.isascii():
                path = directory / f"{base_offset:0{SEGMENT_NAME_DIGITS}d}"
                if path.exists():
                    yield path
            else:
                yield from (path for base, path in list_segment_files(directory)[0] if base == base_offset)

    def _remember_last(self, log: CommitLog, physical_offset: int) -> None:
        """Remember the beginning of the last record, by which a log that was cut and written anew is known."""
        segment = log.segment_of(physical_offset)
        self._last_record, self._mark = None, b""
        if segment is not None:
            place = _Place(segment.base_offset, segment.file, physical_offset - segment.base_offset)
            self._last_record, self._mark = place, place.peek(MARK_BYTES)

    def _remember_passed(self, log: CommitLog) -> None:
        """Remember what lies from the first damage on that was passed over in the last segment."""
        self._passed, self._passed_bytes = None, b""
        segment = log.segment_of(log.damage[0].start) if log.damage else None
        if segment is not None and segment is log.segments[-1]:
            self._passed = _Place(segment.base_offset, segment.file, log.damage[0].start - segment.base_offset)
            self._passed_bytes = self._passed.peek(STALE_BYTES)

    def _remember_stale(self, place: _Place) -> None:
        """Remember what lies behind the end, as it was when that end was still far away; nothing does behind zeros."""
        known = self._stale
        if place.peek(HEAD_BYTES) == NOTHING or (known is not None and known.base_offset != place.base_offset):
            self._stale, self._stale_bytes = None, b""
            return
        kept = self._stale_bytes[place.position - known.position :] if known is not None else b""
        ahead = place._replace(position=place.position + len(kept))
        self._stale, self._stale_bytes = place, kept + ahead.peek(STALE_BYTES - len(kept))

    # ------------------------------------------------------------------ what is new

    def _walk(self, log: CommitLog, place: _Place, judge: "_Judge") -> LogGrowth | None:
        """Walk over what is whole, segment by segment."""
        walk = _Walk(log)
        limit = STEP_BYTES
        reason = kernel.AT_LIMIT
        while limit > 0 and reason in (kernel.AT_LIMIT, kernel.QUEUES_FULL):
            reason, position = self._step(walk, place, limit, judge)
            limit -= position - place.position
            place = place._replace(position=position)
            if reason == kernel.AT_BLANK and (following := self._start_behind(place)) is not None:
                walk.close(place)
                place, reason = following, kernel.AT_LIMIT
                if place.peek(HEAD_BYTES) == NOTHING:
                    break
        if reason == kernel.AT_DAMAGE and log.torn_end is None and not walk.records and self._lasts(judge):
            return LogGrowth(log.torn(), (), -1, False)
        return walk.growth(more=limit <= 0)

    def _step(self, walk: "_Walk", place: _Place, limit: int, judge: "_Judge") -> tuple[int, int]:
        """Walk over whole records of one segment; why that ended, and where."""
        if self._stale is not None and judge.patient:
            return self._step_over_new(walk, place, limit, judge)
        seen = np.zeros(kernel.SEEN, dtype=np.int64)
        reached = self._walk_intact(place, limit, seen)
        reason, last = int(self._result[kernel.REASON]), int(self._result[kernel.LAST])
        if reached == place.position:
            return self._step_over_damage(walk, place, judge) if reason == kernel.AT_DAMAGE else (reason, reached)
        is_followed = place.file.peek(reached, HEAD_BYTES) != NOTHING
        if not is_followed and not self._is_whole(place, last, reached, judge):
            reason, reached, last = kernel.AT_NOTHING, last, int(self._result[kernel.BEFORE_LAST])
        records = seen[kernel.TABLE_SIZE :][: self._result[kernel.QUEUES]] - 1
        walk.accept(place, reached, last, [int(position) for position in records if position < reached])
        return reason, reached

    def _walk_intact(self, place: _Place, limit: int, seen: npt.NDArray[np.int64]) -> int:
        """Where the intact records of a segment end that start before a limit; the kernel's result says more."""
        file, position = place.file, place.position
        bound = position + limit
        return int(
            kernel.walk_appended(file.address, position, bound, file.size, place.base_offset, seen, self._result)
        )

    def _is_whole(self, place: _Place, position: int, end: int, judge: "_Judge") -> bool:
        """Whether the intact record at a position of a segment, which nothing follows, is whole."""
        record, physical_offset = place.file.view[position:end], place.base_offset + position
        return (
            not judge.patient
            or judge.is_dispatched(record, physical_offset)
            or self._has_settled(place, position, end, judge.now)
        )

    def _has_settled(self, place: _Place, position: int, end: int, now: float) -> bool:
        """Whether the bytes of a record have been the same for long enough."""
        record, physical_offset = place.file.view[position:end], place.base_offset + position
        seen = self._unsettled
        if seen is None or seen.physical_offset != physical_offset or seen.content != record:
            self._unsettled = _Seen(physical_offset, bytes(record), now)
            return False
        is_sane = kernel.has_sane_texts(place.file.address + position)
        return now - seen.since >= (SETTLING_SECONDS if is_sane else DAMAGED_SECONDS)

    def _step_over_new(self, walk: "_Walk", place: _Place, limit: int, judge: "_Judge") -> tuple[int, int]:
        """The same behind a log that was cut: whole are the new records up to one that has been there for a moment."""
        run: list[tuple[int, int]] = []
        at, reason = place, kernel.AT_LIMIT
        while len(run) < LONGEST_RUN and at.position - place.position < limit:
            reached = self._walk_intact(at, 1, np.zeros(kernel.SEEN, dtype=np.int64))
            reason = int(self._result[kernel.REASON])
            if reached == at.position or not self._is_new(at, reached):
                break
            run.append((at.position, reached))
            at = at._replace(position=reached)
        if not run and reason == kernel.AT_DAMAGE:
            return self._step_over_damage(walk, place, judge)
        if not run:
            return (reason if reason == kernel.AT_BLANK else kernel.AT_NOTHING), place.position
        ends = dict(run)
        waiting = self._unsettled.physical_offset - place.base_offset if self._unsettled is not None else -1
        start = waiting if waiting in ends else run[-1][0]
        if not self._has_settled(place, start, ends[start], judge.now):
            return kernel.AT_NOTHING, place.position
        walk.accept(place, ends[start], start, [position for position, _ in run if position <= start])
        return kernel.AT_NOTHING, ends[start]

    def _is_new(self, place: _Place, end: int) -> bool:
        """Whether a record behind the end of a log that was cut is none that lay there before."""
        assert self._stale is not None
        if place.base_offset != self._stale.base_offset:
            return True
        start, stop = place.position - self._stale.position, end - self._stale.position
        return stop <= len(self._stale_bytes) and self._stale_bytes[start:stop] != place.file.view[place.position : end]

    # ------------------------------------------------------------------ damage

    def _is_damaged_as_before(self, now: float) -> bool:
        """Whether there is no need to look at damaged bytes again now."""
        damage, place = self._damage, self._place
        if damage is None or place is None or damage.physical_offset != place.physical_offset:
            return False
        lasts = now - damage.since >= DAMAGED_SECONDS
        return lasts and now - self._looked_at_damage < DAMAGED_SECONDS and place.peek(MARK_BYTES) == damage.content

    def _step_over_damage(self, walk: "_Walk", place: _Place, judge: "_Judge") -> tuple[int, int]:
        """Note bytes that are no intact record; where that lasts, go on with what counts behind them."""
        content = place.peek(MARK_BYTES)
        damage = self._damage
        self._looked_at_damage = judge.now
        if damage is None or (damage.physical_offset, damage.content) != (place.physical_offset, content):
            self._damage = _Seen(place.physical_offset, content, judge.now)
        if not self._lasts(judge):
            return kernel.AT_DAMAGE, place.position
        search = EndSearch(place.base_offset, place.file, walk.last_timestamp, walk.log.is_left_over)
        following = search.continuation(place.position)
        if following is None:
            return kernel.AT_DAMAGE, place.position
        walk.pass_over(place, following, code_at(place.base_offset, place.file, place.position))
        return kernel.AT_LIMIT, following

    def _lasts(self, judge: "_Judge") -> bool:
        """Whether the damage that was met will stay."""
        return self._damage is not None and (not judge.patient or judge.now - self._damage.since >= DAMAGED_SECONDS)


class _Judge(NamedTuple):
    """What one look decides by."""

    is_dispatched: IsDispatched
    now: float
    patient: bool


class _Walk:
    """What one look has found."""

    def __init__(self, log: CommitLog) -> None:
        self.log = log
        self._segments = list(log.segments)
        self._damage: list[DamagedRange] = []
        self._passed: list[Segment] = []
        self.records: list[memoryview] = []
        self._last = -1

    def accept(self, place: _Place, end: int, last: int, records: Sequence[int]) -> None:
        """Count the records of a segment up to a position; ``last`` is that of the last of them, −1 for none."""
        if end == place.position:
            return
        segment = Segment(place.base_offset, place.file, end)
        if self._segments[-1].base_offset == place.base_offset:
            self._segments[-1] = segment
        else:
            self._segments += [*self._passed, segment]
            self._passed = []
        self.records += [place.file.view[position:] for position in records]
        if last >= 0:
            self._last = place.base_offset + last

    def close(self, place: _Place) -> None:
        """Count the whole of a segment that has a BLANK; of one that has nothing else, if records follow."""
        segment = Segment(place.base_offset, place.file, place.file.size)
        if self._segments[-1].base_offset == place.base_offset:
            self._segments[-1] = segment
        else:
            self._passed.append(segment)

    def growth(self, *, more: bool) -> LogGrowth | None:
        """All of it, or None for nothing."""
        if self._segments[-1].end == self.log.end and len(self._segments) == len(self.log.segments):
            return None
        damage = tuple(each for each in self._damage if each.stop <= self._segments[-1].end)
        return LogGrowth(self.log.grown(self._segments, damage), tuple(self.records), self._last, more)

    def pass_over(self, place: _Place, following: int, code: int) -> None:
        """Leave out damage between a place and a position in its segment."""
        self._damage.append(DamagedRange(place.physical_offset, place.base_offset + following, code))

    def last_timestamp(self) -> int:
        """Store time (ms) of the last record of the segment before."""
        segment = self._segments[-1]
        return last_store_timestamp(segment.base_offset, segment.file)


def _is_intact(place: _Place) -> bool:
    """Whether a sound record starts at a place."""
    address, room = place.file.address + place.position, place.file.size - place.position
    size = int(check_shape(address, room, place.physical_offset))
    return size > 0 and int(check_checksums(address, size)) > 0


def _end_alike(left: CommitLog, right: CommitLog) -> bool:
    """Whether two logs end in the same place of the same file."""
    if not (left.segments and right.segments):
        return False
    return left.end == right.end and left.segments[-1].file is right.segments[-1].file


def _last_record(log: CommitLog) -> int:
    """Physical offset of the last record of a log, if it is near the end; else −1."""
    if not log.segments:
        return -1
    last = log.segments[-1]
    lowest = max(0, last.valid_length - LOOK_BACK_BYTES)
    position = max(last.valid_length - lowest - MINIMUM_SIZE + 1, 0)
    found = int(find_record_backwards(last.file.address + lowest, position, last.base_offset + lowest))
    return -1 if found < 0 else last.base_offset + lowest + found
