"""One pass over a segment from record to record, for whatever is made of the records.

What is no record does not end the pass: it goes on at the next intact one, and says where it broke off. Whether
the log ends at such a place is decided when all segments are known (:mod:`spark_jobs.scan.log_end`).
"""

from typing import Final, NotRequired, Protocol

from spark_jobs.run.attempt import AttemptRecord, Notify
from spark_jobs.scan.segment_window import LONGEST_RECORD, SegmentWindow
from storage.build.dispatch_scan import Reason, Step
from storage.kernels import records as codes
from storage.kernels.records import ANY_TIME
from storage.log.damaged_ranges import ZEROS
from storage.log.segment_end import BLANK_BYTES, TOLERATED_MS
from storage.log.segment_list import may_be_cut

MOST_BREAKS: Final = 10_000
"""Places of one segment that are listed; more are counted."""

REPORT_BYTES: Final = 32 * 1024 * 1024


class SegmentTask(Protocol):
    """The segment of a task; `limit` is where the next one starts, -1 without one.

    `boundary` is where the next one would start even if this file was cut, 0 where no other file says it; `ends_log`:
    nothing was written behind this segment, so that what follows damage in it may be left over.
    """

    @property
    def path(self) -> str:
        """Path or URL."""

    @property
    def base_offset(self) -> int:
        """Physical offset of its first byte."""

    @property
    def limit(self) -> int:
        """See above."""

    @property
    def boundary(self) -> int:
        """See above."""

    @property
    def ends_log(self) -> bool:
        """See above."""


class WalkSummary(AttemptRecord):
    """What a pass over a segment found.

    `state` says why it ended ("full", "blank", "zeros", "broken") at the physical offset `end`. `breaks` are places
    where it broke off: physical offset, that of the next intact record (−1 for none), why, and whether (1) what follows
    may be believed. `problem` is there where a verification asked: why nothing could be read.
    """

    path: str
    base: int
    size: int
    bytes_read: int
    records: int
    end: int
    state: str
    last_timestamp: int
    breaks: list[list[int]]
    more_breaks: int
    problem: NotRequired[str]


class SegmentWalk:
    """A pass over a segment; what is made of its records, a subclass says in `_run` and `_flush`."""

    def __init__(self, place: SegmentTask, window: SegmentWindow, notify: Notify) -> None:
        """Walk over what `window` shows; `notify` is called with bytes and messages."""
        self._place, self._window, self._notify = place, window, notify
        self._limit = window.size if place.limit < 0 else min(window.size, place.limit - place.base_offset)
        self._boundary = place.boundary or place.base_offset + window.size
        self._position = 0
        self._reported = 0
        self._records = 0
        self._last_timestamp = 0
        self._end = 0
        self._state = "full"
        self._breaks: list[list[int]] = []
        self._more_breaks = 0

    def walk(self) -> None:
        """Read to the end."""
        self._window.move(0)
        while self._step():
            pass
        self._flush()
        self._notify(self._window.size, self._records)

    def summary(self) -> WalkSummary:
        """The summary of the walk."""
        return {
            "path": self._place.path,
            "base": self._place.base_offset,
            "size": self._window.size,
            "bytes_read": self._window.bytes_read,
            "records": self._records,
            "end": self._place.base_offset + self._end,
            "state": self._state,
            "last_timestamp": self._last_timestamp,
            "breaks": self._breaks,
            "more_breaks": self._more_breaks,
        }

    def _run(self, position: int, available: int, limit: int) -> Step:
        """Make of the window's records that start in [position, limit) what is to be made, as far as there is room."""
        raise NotImplementedError

    def _flush(self) -> None:
        """Hand on what was made; `_records` and `_last_timestamp` are brought up to date."""
        raise NotImplementedError

    def _step(self) -> bool:
        """Scan what is in the window; whether there is more to be done."""
        window = self._window
        limit = min(self._limit - window.start, window.filled)
        step = self._run(self._position - window.start, window.filled, limit)
        window.require_whole()
        self._position = window.start + step.position
        if step.reason == Reason.FULL:
            self._flush()
            return True
        if step.reason == Reason.BLANK:
            return self._stop("blank")
        if step.reason == Reason.LIMIT and self._position >= self._limit:
            return self._stop("full")
        if step.reason in (Reason.NEED_MORE, Reason.LIMIT):
            return self._read_on()
        return self._resynchronise(ZEROS if step.reason == Reason.ZERO else step.code)

    def _stop(self, state: str) -> bool:
        self._state = state
        self._end = self._position
        return False

    def _read_on(self) -> bool:
        """Show the record that the window cuts off, and what follows it."""
        window, at = self._window, self._position
        if window.size - at < codes.MINIMUM_SIZE and (window.is_at_end or window.size - at < BLANK_BYTES):
            return self._resynchronise(codes.BAD_SIZE)
        window.move(at)
        if window.size - at < codes.MINIMUM_SIZE:  # too short for a record, but a BLANK may be there
            return True
        if window.start - self._reported > REPORT_BYTES:
            self._reported = window.start
            self._notify(window.start, self._records)
        size = window.announced_size(at)
        if size > min(window.size - at, LONGEST_RECORD) or size > self._limit - at:
            return self._resynchronise(codes.BAD_SIZE)
        window.fill(min(size + 8, window.size - at))
        return True

    def _resynchronise(self, code: int) -> bool:
        """Go on at the next intact record, if there is one."""
        self._flush()
        broken = self._end = self._position
        base, ends_log = self._place.base_offset, self._place.ends_log or self._place.limit < 0
        earliest = self._last_timestamp - TOLERATED_MS if ends_log else ANY_TIME
        found = self._next_intact(broken + 1, earliest)
        if found < 0 and code == codes.BAD_BLANK and self._is_cut_behind(broken):
            return self._stop("blank")
        if found < 0:
            self._state = "zeros" if code == ZEROS else "broken"
            self._note_break([base + broken, -1, code, 0])
            return False
        self._note_break([base + broken, base + found, code, 1])
        self._position = found
        self._window.move(found)
        return True

    def _is_cut_behind(self, position: int) -> bool:
        """Whether the BLANK at a position may lead to the end of a segment of which no other file says the size."""
        window = self._window
        if self._place.boundary or not window.show(position, BLANK_BYTES):
            return False
        return may_be_cut(window.base_offset, window.size, position + window.i32(position))

    def _next_intact(self, position: int, earliest: int) -> int:
        """Where the next intact record starts that was stored at a time (ms) or later; −1 for none."""
        window = self._window
        while 0 <= (position := window.find_candidate(position)) < self._limit:
            if window.intact_size(position) and window.store_timestamp(position) >= earliest:
                return position
            position += 1
        return -1

    def _note_break(self, facts: list[int]) -> None:
        if len(self._breaks) < MOST_BREAKS:
            self._breaks.append(facts)
        else:
            self._more_breaks += 1
