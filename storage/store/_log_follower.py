"""The end of a log that a broker goes on writing: which records have become whole since it was last looked at.

While nothing is written, a look is two short reads. They do not read the map: where the file was cut short, that would
end the process with SIGBUS. So a file that became shorter is noticed and opened anew instead. A record counts once
something was appended behind it, or its queue has a unit of it, or its bytes, intact and without a zero byte in topic
and properties, are the same after a moment (store-format §6.7).

Behind the end of a log that was cut lie old bytes, and they may well be intact records. What differs from the bytes
that were seen there is new, and nothing else is; that something lies behind a record then proves nothing.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from storage.kernels import records as kernel
from storage.kernels.records import ENTRY_HEAD, MINIMUM_SIZE, find_record_backwards
from storage.kernels.store_view import stay_alike
from storage.log.commit_log import CommitLog
from storage.log.log_place import HEAD_BYTES, NOTHING, RecordPlace, Watched, place_behind, start_behind
from storage.log.segment_end import EndSearch, code_at
from storage.store._log_growth import LogGrowth, NewRecords
from storage.store._old_bytes import OldBytes

SETTLING_SECONDS: Final = 0.02
"""After so long without a change a record that is intact is whole."""
DAMAGED_SECONDS: Final = 1.0
"""After so long without a change bytes that are no intact record will not become one; they are looked at as seldom."""
STEP_BYTES: Final = 32 * 1024 * 1024
"""Bytes of log walked over in one look: some 20 ms."""
LOOK_AHEAD_BYTES: Final = 64 * 1024 * 1024
"""Bytes around the last written one in which records are looked for again behind damage, once all was searched."""
LONGEST_RUN: Final = 4096
"""Records looked at one by one in one look."""
ONE_RECORD: Final = ENTRY_HEAD + 1
"""A limit before which one record starts, behind the head of an entry or without one; two never do."""
LOOK_BACK_BYTES: Final = 4 * 1024 * 1024
MARK_BYTES: Final = 64

IsDispatched = Callable[[memoryview, int], bool]
"""Whether the queue of a record, which starts at a physical offset, has a unit of it."""


class LogRewritten(Exception):
    """A record that was there was overwritten or cut off, so that the log has to be opened anew.

    ``cut_at`` is the physical offset of damage in whose place a broker has begun to write, None where it is unknown.
    """

    def __init__(self, cut_at: int | None = None) -> None:
        super().__init__(cut_at)
        self.cut_at = cut_at


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
        self._place: RecordPlace | None = None
        self._last_record: RecordPlace | None = None
        self._mark = b""
        self._passed: OldBytes | None = None
        self._old: OldBytes | None = None
        self._unsettled: _Seen | None = None
        self._damage: _Seen | None = None
        self._looked_at_damage = 0.0
        self._searched_to = 0

    def adopt(self, log: CommitLog) -> None:
        """Follow a log from here on; done by the first look at it otherwise."""
        if self._log is not None and _ends_match(log, self._log):
            self._log = log
            return
        self._log, self._unsettled, self._damage = log, None, None
        self._place = place = place_behind(log, self._directories)
        # An intact record came since that log was opened; what is none may have old ones behind it.
        is_written = place is not None and not (place.has_nothing() or place.file.is_cut())
        has_old = place is not None and is_written and (log.stale_from is not None or not place.is_intact())
        self._old = OldBytes.behind(place) if place is not None and has_old else None
        if self._passed is not None and self._passed.physical_offset == log.end:  # cut there: what was there is known
            self._old = self._passed
        self._passed = _passed_over(log)
        self._remember_last(log, _last_record(log))

    def watched(self, log: CommitLog) -> list[Watched]:
        """The places that stay alike while a look would find nothing; may be asked by any thread.

        None where the end of that log is not known.
        """
        place = self._place
        if log is not self._log or place is None:
            return []
        return [place.watched(HEAD_BYTES, NOTHING), *self._known()]

    def look(self, log: CommitLog, is_dispatched: IsDispatched, *, patient: bool = True) -> LogGrowth | None:
        """Find what came to a log since; None while nothing did. Raises LogRewritten.

        Without patience an intact record counts at once, as when a log is opened.
        """
        if log is not self._log:
            self.adopt(log)
        if self._passed is not None and not stay_alike([self._passed.watched()], 0, 1):
            # A broker that starts on a damaged log cuts it there, whatever lies behind, and writes on at that place.
            raise LogRewritten(log.damage[0].start)
        if not stay_alike(self._known(), 0, 1):
            raise LogRewritten
        if self._place is None:
            self._place = place_behind(log, self._directories)
        if self._place is None or not self._is_written(self._place):
            return None
        now = time.monotonic()
        if patient and self._is_damaged_as_before(now):
            return None
        growth = self._walk(log, self._place, _GrowthCheck(is_dispatched, now, patient))
        if growth is not None:
            self._take_over(growth)
        return growth

    @property
    def last_offset(self) -> int:
        """Physical offset of the last record, −1 where it is not known."""
        last = self._last_record
        return -1 if last is None else last.physical_offset

    # ------------------------------------------------------------------ where the end is

    def _known(self) -> list[Watched]:
        """What stays as it is unless the log is cut: the last record's beginning, and that of damage passed over."""
        last, passed = self._last_record, self._passed
        known = [] if last is None else [last.watched(MARK_BYTES, self._mark)]
        return known if passed is None else [*known, passed.watched()]

    def _is_written(self, place: RecordPlace) -> bool:
        """Whether anything stands where the next record will; the map may be looked at then. Raises LogRewritten."""
        if place.has_nothing():
            return False
        if place.file.is_cut():
            raise LogRewritten
        return True

    def _take_over(self, growth: LogGrowth) -> None:
        """Follow the log that a look has made."""
        is_damage_new = self._log is None or growth.commit_log.damage != self._log.damage
        self._log = growth.commit_log
        self._place = place_behind(growth.commit_log, self._directories)
        if self._place is not None and (self._old is not None or growth.commit_log.torn_end is not None):
            self._old = OldBytes.behind(self._place, self._old)
        if is_damage_new:
            self._passed = _passed_over(growth.commit_log)
        if growth.last >= 0:
            self._remember_last(growth.commit_log, growth.last)

    def _remember_last(self, log: CommitLog, physical_offset: int) -> None:
        """Remember the beginning of the last record, by which a log that was cut and written anew is known."""
        self._last_record = RecordPlace.of(log, physical_offset)
        self._mark = b"" if self._last_record is None else self._last_record.peek(MARK_BYTES)

    # ------------------------------------------------------------------ what is new

    def _walk(self, log: CommitLog, place: RecordPlace, check: "_GrowthCheck") -> LogGrowth | None:
        """Walk over complete records, segment by segment."""
        finds = NewRecords(log)
        limit = STEP_BYTES
        reason = kernel.AT_LIMIT
        while limit > 0 and reason in (kernel.AT_LIMIT, kernel.QUEUES_FULL):
            reason, position = self._step(finds, place, limit, check)
            limit -= position - place.position
            place = place._replace(position=position)
            if reason == kernel.AT_BLANK and (following := start_behind(place, self._directories)) is not None:
                finds.close(place)
                place, reason = following, kernel.AT_LIMIT
                if place.has_nothing():
                    break
        if reason == kernel.AT_DAMAGE and log.torn_end is None and not finds.records and self._lasts(check):
            return LogGrowth(log.torn(), (), -1, False)
        return finds.growth(more=limit <= 0)

    def _step(self, finds: NewRecords, place: RecordPlace, limit: int, check: "_GrowthCheck") -> tuple[int, int]:
        """Walk over whole records of one segment; why that ended, and where."""
        if self._old is not None and (check.patient or finds.log.stale_from is not None):
            return self._step_over_new(finds, self._old, place, limit, check)
        walk = self._walk_intact(place, limit)
        reached, reason, last = walk.position, walk.reason, walk.last
        if reached == place.position:
            if reason == kernel.AT_LIMIT:  # the file ends here: it was cut, or is shorter than a head
                return kernel.AT_NOTHING, reached
            is_damage = reason == kernel.AT_DAMAGE or self._is_passed_by(reason, place)
            return self._step_over_damage(finds, place, check) if is_damage else (reason, reached)
        if walk.records and not self._is_followed(place, walk) and not self._is_whole(place, last, reached, check):
            reason, reached, last = kernel.AT_NOTHING, walk.last_step, walk.before_last
        finds.accept(place, reached, last, [position for position in walk.queues if position < reached])
        return reason, reached

    def _walk_intact(self, place: RecordPlace, limit: int) -> kernel.Appended:
        """Walk over the intact records of a segment that start before a limit."""
        file, position = place.file, place.position
        boundary = self._boundary_of(place)
        return kernel.walk_appended(file.region, position, position + limit, file.size, place.base_offset, boundary)

    def _boundary_of(self, place: RecordPlace) -> int:
        """Physical offset at which the segment behind a place's own starts, or will start."""
        last = self._log.segments[-1] if self._log is not None and self._log.segments else None
        is_last = last is not None and last.base_offset == place.base_offset
        return last.boundary if last is not None and is_last else place.base_offset + place.file.size

    def _is_followed(self, place: RecordPlace, walk: kernel.Appended) -> bool:
        """Whether anything was written behind the last record of a walk, if only an entry without a record."""
        physical_offset = place.base_offset + walk.last
        size = kernel.check_shape(place.file.region, walk.last, walk.position, physical_offset)
        return walk.position > walk.last + size or place.file.peek(walk.position, HEAD_BYTES) != NOTHING

    def _is_whole(self, place: RecordPlace, position: int, end: int, check: "_GrowthCheck") -> bool:
        """Whether the intact record at a position of a segment, which nothing follows, is whole."""
        record, physical_offset = place.file.view[position:end], place.base_offset + position
        return (
            not check.patient
            or check.is_dispatched(record, physical_offset)
            or self._has_settled(place, position, end, check.now)
        )

    def _has_settled(self, place: RecordPlace, position: int, end: int, now: float) -> bool:
        """Whether the bytes of a record have been the same for long enough."""
        record, physical_offset = place.file.view[position:end], place.base_offset + position
        seen = self._unsettled
        if seen is None or seen.physical_offset != physical_offset or seen.content != record:
            self._unsettled = _Seen(physical_offset, bytes(record), now)
            return False
        is_sane = kernel.has_sane_texts(place.file.region, position, end)
        return now - seen.since >= (SETTLING_SECONDS if is_sane else DAMAGED_SECONDS)

    def _step_over_new(
        self, finds: NewRecords, old: OldBytes, place: RecordPlace, limit: int, check: "_GrowthCheck"
    ) -> tuple[int, int]:
        """Go over new records behind a log that was cut; they count up to one that has been there for a moment."""
        run: list[tuple[int, int]] = []
        at, reason = place, int(kernel.AT_LIMIT)
        while len(run) < LONGEST_RUN and at.position - place.position < limit:
            walk = self._walk_intact(at, ONE_RECORD)
            reached, reason = walk.position, walk.reason
            if reached == at.position or (old.lay_at(at, reached) and not self._has_come(finds.log, at, walk, check)):
                break
            if walk.records:
                run.append((walk.last, reached))
            at = at._replace(position=reached)
        if not run and reason == kernel.AT_DAMAGE:
            return self._step_over_damage(finds, place, check)
        if not run:
            return (reason if reason == kernel.AT_BLANK else kernel.AT_NOTHING), place.position
        ends = dict(run)
        waiting = self._unsettled.physical_offset - place.base_offset if self._unsettled is not None else -1
        start = waiting if waiting in ends else run[-1][0]
        if check.patient and not self._has_settled(place, start, ends[start], check.now):
            return kernel.AT_NOTHING, place.position
        finds.accept(place, ends[start], start, [position for position, _ in run if position <= start])
        return kernel.AT_NOTHING, ends[start]

    def _has_come(self, log: CommitLog, place: RecordPlace, walk: kernel.Appended, check: "_GrowthCheck") -> bool:
        """Whether a queue has the record that was walked over, which was taken for an old one since none had it."""
        if log.stale_from is None or not walk.records:
            return False
        return check.is_dispatched(place.file.view[walk.last : walk.position], place.base_offset + walk.last)

    # ------------------------------------------------------------------ damage

    def _is_damaged_as_before(self, now: float) -> bool:
        """Whether damaged bytes were looked at so recently that they need no new look."""
        damage, place = self._damage, self._place
        if damage is None or place is None or damage.physical_offset != place.physical_offset:
            return False
        lasts = now - damage.since >= DAMAGED_SECONDS
        return lasts and now - self._looked_at_damage < DAMAGED_SECONDS and place.peek(MARK_BYTES) == damage.content

    def _is_passed_by(self, reason: int, place: RecordPlace) -> bool:
        """Whether a record that was begun at a place will never be completed: the log goes on in the next segment."""
        return reason == kernel.AT_NOTHING and not place.has_nothing() and self._next_begun(place) is not None

    def _next_begun(self, place: RecordPlace) -> RecordPlace | None:
        """The start of the next segment, if an intact record is there."""
        following = start_behind(place, self._directories)
        return following if following is not None and following.is_intact() else None

    def _step_over_damage(self, finds: NewRecords, place: RecordPlace, check: "_GrowthCheck") -> tuple[int, int]:
        """Note bytes that are no intact record; where that lasts, go on with what counts behind them."""
        content = place.peek(MARK_BYTES)
        damage = self._damage
        self._looked_at_damage = check.now
        if damage is None or (damage.physical_offset, damage.content) != (place.physical_offset, content):
            self._damage, self._searched_to = _Seen(place.physical_offset, content, check.now), 0
        if not self._lasts(check):
            return kernel.AT_DAMAGE, place.position
        boundary = self._boundary_of(place)
        code = code_at(place.base_offset, place.file, place.position, boundary)
        following = self._look_behind(place, boundary, finds)
        if following is not None:
            finds.pass_over(place, following, code)
            return kernel.AT_LIMIT, following
        if self._next_begun(place) is None:
            return kernel.AT_DAMAGE, place.position
        finds.pass_over(place, place.file.size, code)
        return kernel.AT_BLANK, place.file.size

    def _look_behind(self, place: RecordPlace, boundary: int, finds: NewRecords) -> int | None:
        """Position of what counts behind damage; what was once searched in vain is not searched again."""
        before, log = finds.last_timestamp, finds.log
        search = EndSearch(place.base_offset, place.file, before, log.is_left_over, boundary)
        start = max(self._searched_to, place.position + 1)
        stop = start + LOOK_AHEAD_BYTES if self._searched_to else place.file.size
        following = search.continuation(place.position, start, stop)
        if following is None:
            written = [last for _, last in search.written_chunks(start, stop)]
            # A record that was half there when it was looked at starts in what was written.
            self._searched_to = max(written[-1] - LOOK_AHEAD_BYTES // 2 if written else start, start)
        return following

    def _lasts(self, check: "_GrowthCheck") -> bool:
        """Whether the damage that was met will stay."""
        return self._damage is not None and (not check.patient or check.now - self._damage.since >= DAMAGED_SECONDS)


class _GrowthCheck(NamedTuple):
    """The parameters of one look."""

    is_dispatched: IsDispatched
    now: float
    patient: bool


def _passed_over(log: CommitLog) -> OldBytes | None:
    """Return the bytes from the first damage on, which was passed over, if it lies in the last segment."""
    place = RecordPlace.of(log, log.damage[0].start) if log.damage else None
    is_last = place is not None and place.file is log.segments[-1].file
    return OldBytes.at(place) if place is not None and is_last else None


def _ends_match(left: CommitLog, right: CommitLog) -> bool:
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
    position = max(last.valid_length - MINIMUM_SIZE + 1, lowest)
    found = find_record_backwards(last.file.region, lowest, position, last.base_offset)
    return -1 if found < 0 else last.base_offset + found
