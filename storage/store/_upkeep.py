"""What a store still has to find out after it was opened, done in the background, a step at a time.

The log is searched for messages of damaged queue units; queues that are no files are derived; index files that were
only looked over are checked; what no file covers is scanned; and when the keys that were scanned take more memory than
they should, the oldest of them become index files of our own, which the next start finds.
"""

import os
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from storage.files.direct_writer import fsync_directory
from storage.files.own_directories import hold_kept
from storage.index.index_examination import Examined, examine, recall
from storage.index.index_file import DEFAULT_ENTRIES, DEFAULT_SLOTS
from storage.index.state_cache import StateCache
from storage.index.tail_index import SCAN_STEP, Scanned, scan_ranges
from storage.kernels.indexes import ENTRY_BYTES, INDEX_HEADER, SLOT_BYTES
from storage.queue.derived_queues import DerivedQueues
from storage.ranges import intersect, merge, total_length
from storage.store._current_snapshot import CurrentSnapshot
from storage.store.snapshot import UNBOUNDED, Snapshot, StoreOptions, with_index, with_tail

SLOTS: Final = DEFAULT_SLOTS
ENTRIES: Final = DEFAULT_ENTRIES
"""Counts of files of our own; a large store has hundreds of them."""

MOST_IN_MEMORY: Final = 256 * 1024 * 1024
"""Bytes of scanned entries that memory holds before some of them become files."""

MOST_WAITING: Final = 1024 * 1024 * 1024
"""Bytes of scanned entries, or of derived units, at which scanning stops where they should become files and cannot."""

MOST_UNITS: Final = 64 * 1024 * 1024
"""Bytes of derived units that memory holds before they become a file."""

LONG_TO_DERIVE: Final = 1024 * 1024 * 1024
"""Bytes of log from which on units become a file, however few they are, when all of it has been read."""

DERIVED_AT_ONCE: Final = 64 * 1024 * 1024
"""Bytes of log that are read between two looks at the memory that derived units take, and at what else there is to do.
"""

SEARCH_SECONDS: Final = 0.25
"""So long the log is searched between two other steps: pulls wait for that."""

STAYS_IN_MEMORY: Final = 64 * 1024 * 1024
"""Bytes at the end of the log whose keys stay in memory: what a crash might cut off."""

WORTH_KEEPING: Final = 1024 * 1024
"""Bytes of log that a file of our own must spare the next start to be kept."""

FAILED_SECONDS: Final = 5.0
"""For so long a step that failed is left out; until it succeeds, answers say that it is under way."""

RETRY_SECONDS: Final = 60.0
"""After so long what could not be written is tried again."""

SPARE_BYTES: Final = 1024 * 1024 * 1024
"""Bytes that are left free where our files lie."""

ShouldStop = Callable[[], bool]


class Upkeep:
    """The background work of one store; for one thread at a time, which may wait for the disk."""

    def __init__(self, current: CurrentSnapshot, options: StoreOptions) -> None:
        self._current, self._options = current, options
        self._keeps_entries = False
        self.problem: str | None = None
        self._failed = -RETRY_SECONDS
        self._failed_steps: dict[str, float] = {}
        self._failure: Exception | None = None

    def keep_entries(self) -> None:
        """From now on write files of our own of keys that memory should not hold."""
        self._keeps_entries = True

    @property
    def is_unfinished(self) -> bool:
        """Whether there is anything to do."""
        snapshot = self._current.snapshot
        if snapshot.tail.remaining or snapshot.index.unchecked or self._is_much(snapshot):
            return True
        if self._current.queue_holes.is_background_wanted:
            return True
        derived = snapshot.queues.derived
        return derived is not None and not (derived.reaches(snapshot.commit_log) or self._waits_for_room(derived))

    def run(self, should_stop: ShouldStop) -> None:
        """Do the work that there is, until it is done or `should_stop` returns True: of each kind a step in turn.

        A step that raises keeps no other one from being done; what it raised is raised at the end.
        """
        steps = (self._search, self._derive, self._check_one, self._scan_one)
        while not should_stop() and sum(self._had_work(step, should_stop) for step in steps):
            pass
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        if not (self.is_unfinished or should_stop()):
            self._tidy()

    def _had_work(self, step: Callable[[ShouldStop], bool], should_stop: ShouldStop) -> bool:
        """Do one step, unless it failed a moment ago; return whether there was anything to do for it."""
        if time.monotonic() - self._failed_steps.get(step.__name__, -FAILED_SECONDS) < FAILED_SECONDS:
            return False
        try:
            return step(should_stop)
        except Exception as error:
            self._failed_steps[step.__name__], self._failure = time.monotonic(), error
            return False

    def _search(self, should_stop: ShouldStop) -> bool:
        """Search the log for messages of damaged queue units, for a while."""
        holes, end, is_done = self._current.queue_holes, time.monotonic() + SEARCH_SECONDS, False
        while holes.is_background_wanted and time.monotonic() < end and not should_stop():
            holes.step()
            is_done = True
        return is_done

    def _scan_one(self, _: ShouldStop) -> bool:
        return self.scan(SCAN_STEP)

    def scan(self, budget: int | None) -> bool:
        """Scan up to about ``budget`` bytes of what remains, None: all; return whether there were any.

        The log is followed meanwhile.
        """
        left = before = UNBOUNDED if budget is None else budget
        while left > 0 and self._has_room() and self._current.snapshot.tail.remaining:
            snapshot = self._current.snapshot
            scanned = scan_ranges(snapshot.tail.remaining, snapshot.commit_log, min(SCAN_STEP, left))
            left -= total_length(scanned.ranges)
            self._current.change(partial(_with_scanned, scanned))
        return left < before

    def _derive(self, should_stop: ShouldStop) -> bool:
        """Derive some of the queues that are not files from the log; return False if there was nothing to derive."""
        snapshot = self._current.snapshot
        derived = snapshot.queues.derived
        if derived is None:
            return False
        snapshot.kept_units.load(derived, snapshot.commit_log)
        self._keep_units(snapshot, derived)
        if derived.reaches(snapshot.commit_log) or self._waits_for_room(derived):
            return False
        derived.scan(snapshot.commit_log, should_stop, DERIVED_AT_ONCE)
        return True

    def _waits_for_room(self, derived: DerivedQueues) -> bool:
        """Whether memory may not hold more units, because they should become files and cannot, or another process's."""
        waits = self._keeps_entries or not self._options.keeps_state
        is_kept = self._current.snapshot.kept_units.directory is not None
        return waits and is_kept and derived.in_memory[0] > MOST_WAITING

    def _keep_units(self, snapshot: Snapshot, derived: DerivedQueues) -> None:
        """Make a file of the units in memory, if they are many or took long to derive."""
        kept, (size, of_log) = snapshot.kept_units, derived.in_memory
        is_too_soon = time.monotonic() - self._failed < RETRY_SECONDS
        is_done = derived.reaches(snapshot.commit_log)
        is_worth_it = size > MOST_UNITS or (is_done and of_log > LONG_TO_DERIVE)
        if not self._keeps_entries or kept.directory is None or is_too_soon or not is_worth_it:
            return
        try:
            with hold_kept(kept.directory, writes=True) as held:
                _require_room(held.path, size)
            derived.keep(kept.keep)
            kept.note(derived, snapshot.commit_log)
        except OSError as error:
            self._failed = time.monotonic()
            self.problem = (
                f"queues derived from the log cannot be kept in {kept.directory} ({error.strerror}): "
                "every start derives them"
            )
        else:
            self.problem = None

    def _check_one(self, _: ShouldStop) -> bool:
        """Check the newest file that was only looked over; return False if there is none.

        The result is noted if this process keeps the state.
        """
        options, snapshot = self._options, self._current.snapshot
        unchecked = snapshot.index.unchecked
        if not unchecked:
            return False
        cache = StateCache.load(options.state_directory).keep_all()
        before = unchecked[0]
        if not options.keeps_state:
            log = snapshot.commit_log
            before = next((each for each in unchecked if recall(each.file, log, cache, each.ranges)), unchecked[-1])
        seems = [] if before.covering is None else [before.covering.index.shape.slots]
        vouched = options.vouched_counts if before.ranges is None else None  # known of the store's files alone
        hints = [*seems, *snapshot.index.slot_counts]
        now = examine(before.file, snapshot.commit_log, hints, vouched, cache, before.ranges)
        self._current.change(partial(_with_checked, before, now))
        if options.keeps_state:
            cache.save()
        return True

    # --- files of our own ---------------------------------------------------------------------------------------------

    def _is_much(self, snapshot: Snapshot) -> bool:
        if not self._keeps_entries or snapshot.kept.directory is None:
            return False
        is_too_soon = time.monotonic() - self._failed < RETRY_SECONDS
        return snapshot.tail.entry_bytes > MOST_IN_MEMORY and not is_too_soon

    def _has_room(self) -> bool:
        """Whether memory may hold more entries; some become files, if they are too many."""
        snapshot = self._current.snapshot
        while self._is_much(snapshot) and self._move_out(snapshot):
            snapshot = self._current.snapshot
        waits = self._keeps_entries or not self._options.keeps_state  # for room, or for another process's files
        return not waits or snapshot.kept.directory is None or snapshot.tail.entry_bytes <= MOST_WAITING

    def _move_out(self, snapshot: Snapshot) -> bool:
        """Make an index file of the oldest entries in memory; whether that was possible."""
        log, kept = snapshot.commit_log, snapshot.kept
        try:
            if not self._write_file(snapshot):
                return False
        except OSError as error:
            self._failed = time.monotonic()
            self.problem = (
                f"keys found by scanning the log cannot be kept in {kept.directory} ({error.strerror}): "
                "every start scans for them"
            )
            return False
        self.problem = None
        cache = StateCache.load(self._options.state_directory).keep_all()
        state = kept.state
        opened = kept.open(log, cache, snapshot.index.examined_kept)
        if self._options.keeps_state:
            cache.save()

        def change(current: Snapshot) -> Snapshot | None:
            if current.kept is not kept:  # the store was opened anew meanwhile, and finds them itself
                return None
            return with_index(current, current.index.with_kept(state, opened))

        return self._current.change(change)

    def _write_file(self, snapshot: Snapshot) -> bool:
        """Write a file of our own and note it; False where there is nothing to write. Raises OSError."""
        from storage.build.spill import choose_ranges, write_index_file  # the kernels for it are seldom needed

        log = snapshot.commit_log
        ranges = choose_ranges(snapshot.tail, log, log.end - STAYS_IN_MEMORY, ENTRIES)
        if not ranges:
            return False
        with snapshot.kept.place_of_next() as path:
            _require_room(path.parent, INDEX_HEADER + SLOT_BYTES * SLOTS + ENTRY_BYTES * ENTRIES)
            beside = path.with_suffix(".partial")
            beside.unlink(missing_ok=True)
            try:
                write_index_file(beside, snapshot.tail, ranges, SLOTS, ENTRIES)
                os.replace(beside, path)
            except OSError:
                beside.unlink(missing_ok=True)
                raise
            fsync_directory(path.parent)
            snapshot.kept.add(path, SLOTS, ENTRIES, ranges, log)
        return True

    def _tidy(self) -> None:
        """Delete files of our own that are of no use any more."""
        snapshot = self._current.snapshot
        index, kept, log = snapshot.index, snapshot.kept, snapshot.commit_log
        if not self._keeps_entries or kept.state != index.kept_state:
            return
        needed = merge([*index.uncovered_by_store(log.minimum, log.end), *snapshot.tail.batches])
        useful = {
            found.file.path.name
            for found in index.examined_kept
            if found.covering is not None and total_length(intersect(found.ranges or (), needed)) >= WORTH_KEEPING
        }
        try:
            kept.tidy(useful)
        except OSError as error:
            self.problem = self.problem or f"{kept.directory} cannot be tidied: {error.strerror}"


def _require_room(directory: Path, size: int) -> None:
    needed = size + SPARE_BYTES
    free = shutil.disk_usage(directory).free
    if free < needed:
        raise OSError(0, f"{free} bytes are free there, {needed} are needed")


def _with_scanned(scanned: Scanned, snapshot: Snapshot) -> Snapshot | None:
    tail = snapshot.tail.with_scanned(scanned)
    return None if tail is snapshot.tail else with_tail(snapshot, tail)


def _with_checked(before: Examined, now: Examined, snapshot: Snapshot) -> Snapshot | None:
    index = snapshot.index.with_checked(before, now)
    return None if index is snapshot.index else with_index(snapshot, index)
