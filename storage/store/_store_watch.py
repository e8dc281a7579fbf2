"""What changes in a store besides the end of its log: files that come and go, index files that grow, configuration.

A look costs a few system calls while nothing changed, so once a second is cheap. What a look finds out about new files
may take long, and goes on while the log is followed; only taking it over is done with the snapshot at hand.
"""

import os
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from protocol.errors import StoreError
from storage.files.mapped_file import list_directory
from storage.index.state_cache import StateCache
from storage.index.tail_index import extend_tail
from storage.layout.store_config import StoreConfig
from storage.layout.store_layout import (
    BATCH_CONSUME_QUEUE,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    StoreLayout,
    recognise_with_tier,
)
from storage.log.commit_log import CommitLog
from storage.queue.queue_store import QueueStore
from storage.queue.tier import Tier
from storage.ranges import Ranges
from storage.store.snapshot import Change, Snapshot, StoreOptions, derived, derived_queues, lost_queues, scope_of
from storage.store.stale_tail import without_stale_tail
from storage.store.store_state import read_store_state

YOUNG_NS = 1_000_000_000
"""Nanoseconds after a change in which another one may leave a directory with the same times."""

SCANNED_AT_ONCE = 1024 * 1024
"""Bytes of log scanned before a change is taken over: a millisecond."""

State = tuple[int, int, int] | None
"""Device, inode and time of change of a directory."""


class StoreWatch:
    """Looks at one store again and again; to be used by one thread at a time, which may wait for the disk."""

    def __init__(self, root: Path, options: StoreOptions) -> None:
        self._root = root
        self._options = options
        self._states: dict[str, tuple[State, ...] | None] = {}

    def look(self, snapshot: Snapshot, *, thorough: bool = False) -> Change | None:
        """Return a change to be made to the current snapshot, which may be a later one; None where nothing changed.

        ``thorough``: nothing is taken for unchanged because its directory is. Raises StoreError, and NotAStore as long
        as there is none: files that are gone with all others are a disk that was taken away, no change to take over.
        """
        try:
            return self._look(snapshot, thorough=thorough)
        except Exception:
            self._states.clear()  # what was seen was not taken over: the next look must see it too
            raise

    def _look(self, snapshot: Snapshot, *, thorough: bool) -> Change | None:
        options, layout = self._options, snapshot.layout
        is_other_root = self._has_changed("root", [self._root])
        has_other_files = self._has_changed("log", layout.commit_log_directories)
        trees = [self._root / tree for tree in (CONSUME_QUEUE, BATCH_CONSUME_QUEUE, CONSUME_QUEUE_EXT)]
        are_other_trees = self._has_changed("queues", trees)
        if is_other_root or has_other_files or are_other_trees or thorough:
            layout = recognise_with_tier(self._root, options.commit_log_directories, options.tier)
        config = StoreConfig.load(self._root, snapshot.config)
        state = read_store_state(self._root)
        is_cut = any(segment.file.is_cut() for segment in snapshot.commit_log.segments)
        # Files of the index are held against the log, and what was cut off must not be looked at any more.
        log = snapshot.commit_log.relisted(layout.commit_log_directories) if is_cut else snapshot.commit_log
        cache = StateCache(None)
        index = snapshot.index.renewed(
            layout.index,
            log,
            options.vouched_counts,
            cache,
            thorough=thorough,
            budget=options.check_budget,
        )
        kept_state = snapshot.kept.state
        if kept_state != index.kept_state:
            kept = snapshot.kept.open(log, cache, index.examined_kept, options.check_budget)
            index = index.with_kept(kept_state, kept)
        # What could not be read may be readable now: its own directory does not show that.
        log_changed = has_other_files or is_cut or thorough or snapshot.commit_log.can_read_more()
        queues_changed = are_other_trees or state != snapshot.state or snapshot.queues.has_lost_file() or thorough
        queues_changed = queues_changed or (not snapshot.queues.is_whole and _can_be_listed(trees))
        tier = self._renewed_tier(snapshot, thorough=thorough)
        queues_changed = queues_changed or tier is not None
        same = (layout, state) == (snapshot.layout, snapshot.state) and config is snapshot.config
        if same and index.is_as(snapshot.index) and not log_changed and not queues_changed:
            return None

        def change(current: Snapshot) -> Snapshot | None:
            if current.index is not snapshot.index:  # the store was opened anew meanwhile
                self._states.clear()
                return None
            log = current.commit_log
            if log_changed:
                log = log.relisted(layout.commit_log_directories)
                log = log if log is current.commit_log else without_stale_tail(log, layout, state)
            if same and index.is_as(current.index) and not queues_changed and log is current.commit_log:
                return None
            # A topic that is deleted while a group's offset in it stays is not lost.
            is_deleted = not current.queues.used.keys() <= config.topics.keys()
            is_other = queues_changed or log is not current.commit_log or is_deleted
            tail = current.tail.forgetting(_came(current.commit_log, log))
            # Files that cover the log a little less leave no answer in doubt.
            tail = tail.covering(scope_of(log, index, tail.batches))
            changed = replace(
                current,
                layout=layout,
                config=config,
                state=state,
                index=index,
                commit_log=log,
                queues=_queues_of(current, layout, config, (log, tier), options) if is_other else current.queues,
                tail=extend_tail(tail, log, SCANNED_AT_ONCE),
            )
            return derived(changed)

        return change

    def _renewed_tier(self, snapshot: Snapshot, *, thorough: bool) -> Tier | None:
        """The tier as it is now, if anything in it has changed."""
        tier = snapshot.queues.tier
        return Tier(tier.layout, tier) if tier is not None and (thorough or tier.has_changed()) else None

    def _has_changed(self, name: str, directories: Iterable[Path]) -> bool:
        """Whether anything was added to directories or removed since the last look; True also where that is unclear."""
        known, states = self._states.get(name), _states_of(directories)
        self._states[name] = states
        return states is None or states != known


def _queues_of(
    current: Snapshot,
    layout: StoreLayout,
    config: StoreConfig,
    read: tuple[CommitLog, Tier | None],
    options: StoreOptions,
) -> QueueStore:
    """The queues listed anew, with the log and the tier that were read.

    Those in RocksDB are others where a broker has begun to keep them there.
    """
    log, tier = read
    if layout.rocksdb_queues == current.layout.rocksdb_queues:
        return current.queues.refresh(log, tier, config.used_queues)
    return QueueStore(
        layout.root,
        log,
        holes=current.queues.holes,
        tier=tier or current.queues.tier,
        derived=derived_queues(layout, log, options),
        used=config.used_queues,
        lost=lost_queues(layout, options),
    )


def _came(before: CommitLog, now: CommitLog) -> Ranges:
    """Return the ranges of segments that were not there before, or were in other files."""
    known = {(segment.base_offset, segment.file) for segment in before.segments}
    return tuple(
        (segment.base_offset, segment.end)
        for segment in now.segments
        if (segment.base_offset, segment.file) not in known and segment.base_offset < segment.end
    )


def _states_of(directories: Iterable[Path]) -> tuple[State, ...] | None:
    """The states of directories; None while one is so young that the next change may leave its time the same."""
    states = tuple(map(_state_of, directories))
    newest = max((state[2] for state in states if state is not None), default=0)
    return None if abs(time.time_ns() - newest) < YOUNG_NS else states


def _can_be_listed(directories: Iterable[Path]) -> bool:
    try:
        for directory in directories:
            list_directory(directory)
    except StoreError:
        return False
    return True


def _state_of(directory: Path) -> State:
    try:
        status = os.stat(directory)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns
