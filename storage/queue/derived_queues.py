"""Queues that are derived from the log, where a broker keeps them in RocksDB, or all their directories are lost.

A record says topic, queue id, queue offset and tag, and which light queues it is in. So one pass over the log makes
the units of all queues, which are kept in runs (:mod:`storage.queue.unit_runs`), each of a stretch of the log. Runs of
neighbouring stretches are merged when the later one is at least half as large, so there are few of them, and those that
are large enough become files that the next start finds (:mod:`storage.store._kept_units`).

The log is read as far as somebody asks for queues. A short stretch is read at once by the thread that needs it. A long
one is left to a background scan, if there is one, and :class:`QueueBeingSearched` is raised until it is done.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

from protocol.errors import QueueBeingSearched
from protocol.system_topics import LIGHT_PREFIX
from storage.arrays import np
from storage.files.mapped_file import FileIdentity
from storage.files.waiting import LONG_SCAN, Lookup, long_scan
from storage.kernels import dispatching
from storage.kernels.dispatching import DispatchMemory
from storage.log.commit_log import CommitLog, Segment
from storage.log.record_scan import RecordScan, Stop
from storage.queue.unit_runs import ROW, RunPart, UnitRun, key_of, keys_from
from storage.queue.unit_struct import UNIT
from storage.ranges import Range

SCANNED_AT_ONCE: Final = 64 * 1024 * 1024
"""Bytes of log that a thread reads before it leaves the rest to the background scan: some 40 ms."""

SCAN_STEP: Final = 32 * 1024 * 1024
"""Bytes of log between two looks at whether to stop."""

MOST_MERGED: Final = 64 * 1024 * 1024
"""Bytes of two runs together beyond which they stay two."""

MOST_KEYS: Final = 300_000
"""Names whose keys are remembered while the log is scanned."""

RECORDS: Final = 1 << 16
UNBOUNDED: Final = 1 << 62

Identity = tuple[int, int, int]
"""Base offset, device and inode of a segment."""


class UnfoundStretch(NamedTuple):
    """A stretch of the log, [start, stop), in which records were not found: no segment, or damage in ``segment``."""

    start: int
    stop: int
    segment: FileIdentity | None

    def is_in(self, log: CommitLog) -> bool:
        """Whether a log lacks the stretch still, as far as it is not expired: its file is the same."""
        if self.stop <= log.minimum:
            return True
        if self.segment is not None:
            return any(each.base_offset == self.start and each.file.identity == self.segment for each in log.segments)
        return any(start <= max(self.start, log.minimum) and self.stop <= stop for start, stop in log.holes)


@dataclass(frozen=True, slots=True)
class DerivedState:
    """Derived queues at one moment: runs in the order of the log, which has been read from ``start`` up to ``stop``.

    ``segments`` are those that were read; ``ended`` has the queues of which no run has a unit any more, with the queue
    offset of their next message; ``gaps`` could not be read.
    """

    runs: tuple[UnitRun, ...]
    start: int
    stop: int
    segments: tuple[Identity, ...]
    ended: dict[tuple[bytes, int], int]
    gaps: tuple[UnfoundStretch, ...] = ()


class DerivedQueues:
    """The units of a store's queues, found in its log. All snapshots of a store share them; safe for several threads.

    ``delays`` are the milliseconds of each delay level. With ``only_light`` other queues are left out.
    """

    def __init__(
        self, place: Path, delays: Sequence[int], *, only_light: bool = False, why: str = "is a RocksDB"
    ) -> None:
        """Nothing is read yet; a message about these queues names `place`, and says `why` they are derived."""
        self.place, self.why = place, why
        self.delays = tuple(delays)
        self.only_light = only_light
        self.is_scanned_in_background = False
        self._lock = threading.RLock()
        self._state = DerivedState((), 0, 0, (), {})
        self._log: CommitLog | None = None
        self._ids: dict[str, tuple[int, ...]] = {}
        self._key_cache: dict[tuple[bytes, int], bytes] = {}

    # ------------------------------------------------------------------ what is known

    @property
    def state(self) -> DerivedState:
        """The derived queues as they are now."""
        return self._state

    def reaches(self, log: CommitLog) -> bool:
        """Whether a log has been read to its end."""
        return (self._log is log or self._is_of(log)) and self._state.stop >= log.end

    def has_topic(self, topic: str) -> bool:
        """Whether a topic has a queue."""
        return topic in self._ids

    def topics(self) -> Iterable[str]:
        """All topics that have a queue, in no order."""
        return self._ids.keys()

    def queue_ids(self, topic: str) -> tuple[int, ...]:
        """The ids of a topic's queues, ascending."""
        return self._ids.get(topic, ())

    def is_for(self, topic: str | None) -> bool:
        """Whether queues of a topic may be here, None: of any."""
        return topic is None or not self.only_light or topic.startswith(LIGHT_PREFIX)

    def ended_at(self, topic: bytes, queue_id: int) -> int:
        """The queue offset of the next message of a queue whose messages are all expired, 0 where it is not known."""
        return self._state.ended.get((topic, queue_id), 0)

    # ------------------------------------------------------------------ reading the log

    def forget(self) -> None:
        """Start anew: the log was cut, or other files came in the place of those that were read."""
        with self._lock:
            self._state, self._log, self._ids = DerivedState((), 0, 0, (), {}), None, {}

    def read_lookup(self, log: CommitLog) -> Lookup[None]:
        """Read a log to its end. Raises QueueBeingSearched where the background scan is to do that."""
        if self.reaches(log):
            return
        if self.left_of(log) > SCANNED_AT_ONCE and self.is_scanned_in_background:
            raise QueueBeingSearched(self.place, what=self.sentence(log))
        yield long_scan("the queues of new messages")
        self.scan(log, lambda: False)

    def sentence(self, log: CommitLog) -> str:
        """How far the log has been read, for people."""
        size = max(log.end - log.minimum, 1)
        done = 100 * (size - self.left_of(log)) // size
        return f"{self.why}; its queues are being derived from the log, {done}% of which is read; ask again in a moment"

    def left_of(self, log: CommitLog) -> int:
        """Bytes of a log that have not been read yet."""
        return log.end - max(self._state.stop, log.minimum) if self._is_of(log) else log.end - log.minimum

    def scan(self, log: CommitLog, should_stop: Callable[[], bool], budget: int = UNBOUNDED) -> None:
        """Read what is left of a log, up to about `budget` bytes of it. Waits for the disk."""
        while budget > 0 and not self.reaches(log) and not should_stop():
            with self._lock:
                budget -= self._step(log, budget)

    def _step(self, log: CommitLog, budget: int) -> int:
        """Read the next piece of a log; how many bytes that were."""
        if not self._is_of(log):
            self.forget()
        state = self._state
        start = max(state.stop, log.minimum)
        stop = min(log.end, start + max(min(budget, SCAN_STEP), LONG_SCAN))
        found: list[RunPart] = []
        gaps: tuple[UnfoundStretch, ...] = ()
        if start < stop:
            scan = _UnitScan(log, self.delays, self._part_of)
            stop = min(scan.run(start, stop), log.end)
            found = scan.taken()
            gaps = _gaps(log, start, stop, scan.skipped)
        runs = list(state.runs)
        if any(part.units.size for part in found):
            runs.append(UnitRun.made(found, runs[-1].stop if runs else start, stop))
            self._note_names(runs[-1].names())
        first = state.start if state.runs or state.stop else log.minimum
        gaps = tuple(dict.fromkeys((*state.gaps, *gaps)))
        self._take_over(DerivedState(merged(runs), first, stop, _identities(log, stop), state.ended, gaps), log)
        return max(stop - start, 1)

    def _take_over(self, state: DerivedState, log: CommitLog) -> None:
        """Let go of runs whose part of the log is expired, but not of where their queues ended."""
        live = tuple(run for run in state.runs if run.stop > log.minimum)
        ended = state.ended
        if len(live) < len(state.runs):
            ended = dict(ended)
            for run in state.runs[: len(state.runs) - len(live)]:
                ended.update(run.ends())
        gaps = tuple(gap for gap in state.gaps if gap.stop > log.minimum)
        self._state = replace(state, runs=live, ended=ended, gaps=gaps)
        self._log = log

    def take_kept(
        self,
        runs: Sequence[UnitRun],
        ended: dict[tuple[bytes, int], int],
        gaps: Sequence[UnfoundStretch],
        log: CommitLog,
    ) -> bool:
        """Take over runs that were kept, in the order of the log, if they reach further than what is known."""
        with self._lock:
            if not self._is_of(log):
                self.forget()
            state = self._state
            if not runs or runs[-1].stop <= max(state.stop, log.minimum) or runs[0].start > log.minimum:
                return False
            for run in runs:
                self._note_names(run.names())
            self._note_names(ended)
            stop = runs[-1].stop
            self._take_over(
                DerivedState(tuple(runs), log.minimum, stop, _identities(log, stop), ended, tuple(gaps)), log
            )
            return True

    def keep(self, write: Callable[[UnitRun], UnitRun]) -> None:
        """Exchange all runs in memory for one that `write` makes a file of. Nothing is derived meanwhile."""
        with self._lock:
            state = self._state
            kept = [run for run in state.runs if not is_in_memory(run)]
            left = state.runs[len(kept) :]
            if left:
                run = (
                    left[0]
                    if len(left) == 1
                    else UnitRun.made([each.part for each in left], left[0].start, left[-1].stop)
                )
                self._state = replace(state, runs=(*kept, write(run)))

    @property
    def in_memory(self) -> tuple[int, int]:
        """How many bytes the runs take that are no files yet, and of how many bytes of log they are."""
        runs = [run for run in self._state.runs if is_in_memory(run)]
        return sum(run.size for run in runs), sum(run.stop - run.start for run in runs)

    def _is_of(self, log: CommitLog) -> bool:
        """Whether what was read is this log's: expired segments do not matter, nor that it has grown."""
        if self._log is log:
            return True
        kept = [each for each in self._state.segments if each[0] >= log.minimum]
        return log.end < self._state.stop or kept == list(_identities(log, self._state.stop))

    def _part_of(self, queues: Sequence[tuple[bytes, int]], runs: np.ndarray, units: np.ndarray) -> RunPart:
        """What a scan has gathered, as a part of a run; without queues that do not belong here."""
        if len(self._key_cache) > MOST_KEYS:
            self._key_cache.clear()
        cache = self._key_cache
        keys = [cache.get(name) or cache.setdefault(name, key_of(*name)) for name in queues]
        wanted = runs[:, 3] > 0
        wanted &= (runs[:, 1] == dispatching.LIGHT) if self.only_light else True
        wanted &= runs[:, 2] >= 0
        chosen = runs[wanted]
        rows = np.empty(len(chosen), ROW)
        rows["first"], rows["count"], rows["unit"] = chosen[:, 2], chosen[:, 3], chosen[:, 4] // UNIT.size
        used, owners = np.unique(chosen[:, 0], return_inverse=True)
        numbers = used.tolist()
        return RunPart(units, rows, owners, keys_from([keys[at] for at in numbers]), [queues[at] for at in numbers])

    def _note_names(self, names: Iterable[tuple[bytes, int]]) -> None:
        """Note the queues that there are."""
        came: dict[str, set[int]] = {}
        for topic, queue_id in names:
            text = topic.decode("utf-8", "surrogateescape")
            if queue_id not in self._ids.get(text, ()):
                came.setdefault(text, set()).add(queue_id)
        if came:
            self._ids |= {topic: tuple(sorted({*self._ids.get(topic, ()), *ids})) for topic, ids in came.items()}


def is_in_memory(run: UnitRun) -> bool:
    """Whether a run is no file yet."""
    return not run.file.path.is_absolute()


def merged(runs: Sequence[UnitRun]) -> tuple[UnitRun, ...]:
    """Merge the last runs until each is less than half as large as the one before it, or both are too large."""
    left = list(runs)
    while len(left) > 1 and left[-1].size * 2 >= left[-2].size and is_in_memory(left[-2]):
        if left[-1].size + left[-2].size > MOST_MERGED:
            break
        last, before = left.pop(), left.pop()
        left.append(UnitRun.made([before.part, last.part], before.start, last.stop))
    return tuple(left)


def _identities(log: CommitLog, stop: int) -> tuple[Identity, ...]:
    return tuple(
        (segment.base_offset, segment.file.identity.device, segment.file.identity.inode)
        for segment in log.segments
        if segment.base_offset < stop
    )


def _gaps(log: CommitLog, start: int, stop: int, skipped: Sequence[Range]) -> tuple[UnfoundStretch, ...]:
    """What of [start, stop) a scan did not find; of damage the whole segment."""
    missing = [
        UnfoundStretch(max(low, start), min(high, stop), None) for low, high in log.holes if low < stop and high > start
    ]
    damaged = [
        UnfoundStretch(each.base_offset, each.end, each.file.identity)
        for each in log.segments
        if any(each.base_offset <= low < each.end for low, _ in skipped)
    ]
    return (*missing, *damaged)


class _UnitScan(RecordScan):
    """One pass over ranges of the log; collects the units of queues."""

    def __init__(
        self,
        commit_log: CommitLog,
        delays: Sequence[int],
        part_of: Callable[[Sequence[tuple[bytes, int]], np.ndarray, np.ndarray], RunPart],
    ) -> None:
        super().__init__(commit_log)
        self._part_of = part_of
        self._parts: list[RunPart] = []
        self._memory = DispatchMemory(
            tags=False,
            checksums=False,
            delays=delays,
            lmq=True,
            batch_topics=(),
            units=True,
            entries=False,
            timestamps=False,
            records=RECORDS,
        )

    def step(self, segment: Segment, position: int, limit: int) -> Stop:
        """Gather the units of the records of a segment that start in [position, limit)."""
        readable = segment.valid_length
        region, base, boundary = segment.file.region, segment.base_offset, segment.boundary
        ended = self._memory.run(region, position, readable, base, boundary, limit)
        is_full = ended.reason == dispatching.FULL
        if is_full:
            self._take()
        is_record = ended.position + 8 <= readable  # fewer bytes are no record, but no damage either
        is_damage = ended.reason in (dispatching.DAMAGE, dispatching.ZERO, dispatching.NEED_MORE) and is_record
        return Stop(ended.position, is_damage, is_full)

    def taken(self) -> list[RunPart]:
        """All that was gathered, in the order of the log."""
        self._take()
        return self._parts

    def _take(self) -> None:
        taken = self._memory.take()
        runs = np.frombuffer(taken.runs, np.int64).reshape(-1, dispatching.RUN_NUMBERS)
        if runs.size:
            self._parts.append(self._part_of(taken.queues, runs, np.frombuffer(taken.units, np.uint8)))
