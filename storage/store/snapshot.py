"""The files of a store at one moment, and how the next moment's are made from them.

A snapshot never changes. What it is made of is taken over into the next one as far as it stayed the same, so that a
look at a store that grows costs what came, not what is there.
"""

from array import array
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from storage.index.index_file import end_of_entries
from storage.index.index_set import IndexSet
from storage.index.state_cache import StateCache
from storage.index.tail_index import TailIndex, empty_tail, extend_tail, scan_ranges
from storage.kernels.file_map import count_cuts
from storage.kernels.store_view import IndexFilesView, LogView, RunsView, StoreView
from storage.layout.delay_levels import DEFAULT_DELAY_LEVELS, parse_delay_levels
from storage.layout.store_config import StoreConfig
from storage.layout.store_layout import StoreLayout, recognise_with_tier
from storage.log.commit_log import CommitLog
from storage.queue.derived_queues import DerivedQueues
from storage.queue.queue_holes import QueueHoles
from storage.queue.queue_place import has_another, has_newest_unit
from storage.queue.queue_store import QueueStore
from storage.queue.tier import Tier
from storage.ranges import Ranges, intersect, merge, subtract
from storage.store._kept_entries import KeptEntries
from storage.store._kept_units import KeptUnits
from storage.store._log_follower import LogFollower
from storage.store._log_growth import LogGrowth
from storage.store.stale_tail import without_stale_tail
from storage.store.store_state import StoreIdentity, StoreState, infer_identity, read_store_state

UNBOUNDED = 2**62
MOST_DAMAGE = 10_000

MUCH = 64 * 1024 * 1024
"""Bytes from which on it is worth keeping what was found out in them."""


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """How a store is opened.

    ``commit_log_directories`` replace ``commitlog/``; ``tier`` is the directory of the store's tiered files;
    ``index_slots`` and ``index_entries`` are the counts the user
    vouches for; ``state_directory`` keeps what a start finds out, written there only by who ``keeps_state``, and where
    none is given ``new_state_directory`` returns one to start with for a store that takes long to look over;
    ``entries_directory`` returns where keys that were scanned may be kept (:mod:`storage.store._kept_entries`). Before
    :meth:`open` returns bytes of log are scanned up to about ``scan_budget``, and of index files checked up to
    ``check_budget``, None: all. ``delay_levels`` are the broker's `messageDelayLevel`, for queues in RocksDB alone.
    """

    commit_log_directories: tuple[Path, ...] = ()
    index_slots: int | None = None
    index_entries: int | None = None
    state_directory: Path | None = None
    scan_budget: int | None = None
    check_budget: int | None = None
    new_state_directory: Callable[[StoreIdentity], Path | None] = lambda _: None
    keeps_state: bool = True
    delay_levels: str = DEFAULT_DELAY_LEVELS
    entries_directory: Callable[[StoreIdentity], Path | None] = lambda _: None
    tier: Path | None = None

    @property
    def vouched_counts(self) -> tuple[int, int] | None:
        """Slots and entries of the index files, if the user gave both."""
        both = self.index_slots is not None and self.index_entries is not None
        return (self.index_slots or 0, self.index_entries or 0) if both else None


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Snapshot:
    """The files of a store at one moment; ``view`` is what kernels see of them.

    ``kept`` is the directory of our own index files, another object whenever the store is opened anew, ``kept_units``
    that of units of queues that were derived from the log; ``damage`` are places of the log to which index entries
    point and where no record starts, because the log is damaged there; ``beyond_index`` are bytes of log behind the
    last record that an index file knows; ``incomplete`` says what any key query may lack, as one clause, or is None;
    ``cuts`` is how often files had been cut under their maps when the store was opened.
    """

    layout: StoreLayout
    state: StoreState
    config: StoreConfig
    commit_log: CommitLog
    queues: QueueStore
    index: IndexSet
    kept: KeptEntries
    kept_units: KeptUnits
    tail: TailIndex
    damage: tuple[int, ...]
    view: StoreView
    beyond_index: int
    incomplete: str | None
    cuts: int = 0

    @property
    def is_cut(self) -> bool:
        """Whether a file was cut since under its map, so that zeros may have been read in the place of its bytes."""
        return count_cuts() != self.cuts


def open_snapshot(
    root: Path, options: StoreOptions, cut_at: int | None = None, holes: QueueHoles | None = None
) -> Snapshot:
    """Look at a whole store, whose log was cut at a physical offset if that is given. Waits for the disk.

    ``holes`` is where holes of queues are remembered.
    """
    cuts = count_cuts()
    layout = recognise_with_tier(root, options.commit_log_directories, options.tier)
    cache = StateCache.load(options.state_directory)
    is_left_over = partial(has_another, layout.root)
    state = read_store_state(layout.root)
    commit_log = CommitLog.open(layout.commit_log_directories, None, cache.known_ends(), is_left_over, cut_at)
    commit_log = without_stale_tail(commit_log, layout, state)
    tier = None if layout.tier is None else Tier(layout.tier)
    config = StoreConfig.load(layout.root)
    identity = infer_identity(config, commit_log, layout.tier)
    entries_directory = options.entries_directory(identity)
    kept = KeptEntries(entries_directory)
    index = IndexSet.open(layout.index, commit_log, options.vouched_counts, cache, options.check_budget)
    index = index.with_kept(kept.state, kept.open(commit_log, cache, budget=options.check_budget))
    queues = QueueStore(
        layout.root,
        commit_log,
        holes=holes,
        tier=tier,
        derived=derived_queues(layout, commit_log, options),
        used=config.used_queues,
        lost=lost_queues(layout, options),
    )
    batches = queues.batch_ranges()
    tail = empty_tail(scope_of(commit_log, index, batches), batches)
    tail = extend_tail(tail, commit_log, UNBOUNDED if options.scan_budget is None else options.scan_budget)
    if commit_log.segments and not commit_log.damage:
        cache.note_end_of_data(commit_log.segments[-1].file.identity, commit_log.end)
    if options.keeps_state:
        is_long = options.state_directory is None and _looked_over(commit_log, index) >= MUCH
        cache.save(options.new_state_directory(identity) if is_long else None)
    snapshot = Snapshot(
        layout=layout,
        state=state,
        config=config,
        commit_log=commit_log,
        queues=queues,
        index=index,
        kept=kept,
        kept_units=KeptUnits(entries_directory),
        tail=tail,
        damage=(),
        view=StoreView(LogView(), IndexFilesView(), RunsView()),
        beyond_index=0,
        incomplete=None,
        cuts=cuts,
    )
    if snapshot.queues.derived is not None:
        snapshot.kept_units.load(snapshot.queues.derived, commit_log)
        snapshot.queues.derived.scan(commit_log, lambda: False, options.scan_budget or 0)
    return derived(snapshot)


def scope_of(commit_log: CommitLog, index: IndexSet, batches: Ranges) -> Ranges:
    """What of the log is to be scanned for keys: what no index file covers, and ranges in which batches lie.

    Of these only files of our own have the keys of all messages.
    """
    uncovered = index.uncovered(commit_log.minimum, commit_log.end)
    inside = intersect(batches, [(commit_log.minimum, commit_log.end)])
    return merge([*uncovered, *subtract(inside, index.of_our_own)]) if inside else tuple(uncovered)


def derived_queues(layout: StoreLayout, commit_log: CommitLog, options: StoreOptions) -> DerivedQueues | None:
    """The queues that only the log has: those of RocksDB; None where all are files. Nothing is read of them yet.

    A broker that writes both keeps light queues in RocksDB alone. It writes the unit of the last message at once, so
    without that the files are left over from before.
    """
    place = layout.rocksdb_queues
    if place is None:
        return None
    delays = parse_delay_levels(options.delay_levels)
    return DerivedQueues(place, delays, only_light=has_newest_unit(layout.root, commit_log))


def lost_queues(layout: StoreLayout, options: StoreOptions) -> DerivedQueues:
    """The queues of a store that has lost the directories of all plain ones. Nothing is read of them yet."""
    delays = parse_delay_levels(options.delay_levels)
    return DerivedQueues(layout.consume_queue, delays, why="has no queue")


def _looked_over(commit_log: CommitLog, index: IndexSet) -> int:
    """About how many bytes a start goes over that knows nothing: of the last segment, and of the index."""
    last = commit_log.segments[-1].valid_length if commit_log.segments else 0
    return last + sum(end_of_entries(file.index.shape) for file in index.files)


def derived(snapshot: Snapshot) -> Snapshot:
    """The snapshot with everything that follows from its log, index and tail."""
    log, index, tail = snapshot.commit_log, snapshot.index, snapshot.tail
    return replace(
        snapshot,
        view=StoreView(log.view, index.view, tail.view, array("q", snapshot.damage)),
        beyond_index=_beyond_index(log, index),
        incomplete=_incompleteness(log, index, tail),
    )


def with_tail(snapshot: Snapshot, tail: TailIndex) -> Snapshot:
    """The snapshot with another tail."""
    return derived(replace(snapshot, tail=tail))


def with_growth(snapshot: Snapshot, growth: LogGrowth) -> Snapshot:
    """The snapshot with what came to its log, whose keys are scanned; queues are to be looked at anew."""
    before, log = snapshot.commit_log, growth.commit_log
    tail = snapshot.tail.covering(scope_of(log, snapshot.index, snapshot.tail.batches))
    tail = tail.with_scanned(scan_ranges([(before.end, log.end)], log, UNBOUNDED))
    grown = replace(snapshot, commit_log=log, queues=snapshot.queues.grown(log), tail=tail)
    return derived(grown)


def with_all_growth(snapshot: Snapshot, follower: LogFollower) -> Snapshot:
    """The snapshot with all intact records that came to its log, as an opened store would have them.

    Raises LogRewritten.
    """
    while (growth := follower.look(snapshot.commit_log, snapshot.queues.has_unit_of, patient=False)) is not None:
        snapshot = with_growth(snapshot, growth)
    return snapshot


def with_index(snapshot: Snapshot, index: IndexSet) -> Snapshot:
    """The snapshot with other index files; what is not covered any more remains to be scanned."""
    log = snapshot.commit_log
    tail = snapshot.tail.covering(scope_of(log, index, snapshot.tail.batches))
    return derived(replace(snapshot, index=index, tail=tail))


def with_damage(snapshot: Snapshot, physical_offset: int) -> Snapshot | None:
    """The snapshot that knows one more place of the log to be damaged; None where it does, or knows enough."""
    if len(snapshot.damage) >= MOST_DAMAGE or physical_offset in snapshot.damage:
        return None
    return derived(replace(snapshot, damage=tuple(sorted((*snapshot.damage, physical_offset)))))


def _beyond_index(commit_log: CommitLog, index: IndexSet) -> int:
    """Bytes of log behind the last record that an index file knows."""
    last = max((file.index.shape.maximum for file in index.files), default=-1)
    known = last + max(commit_log.check(last), 0) if last >= 0 else commit_log.minimum
    return max(commit_log.end - known, 0)


def lacks_of(commit_log: CommitLog) -> list[str]:
    """Sentences about missing parts of a log."""
    return [
        *(f"no segment holds physical offsets {start} to {stop}" for start, stop in commit_log.holes),
        *(f"segment {path.name} cannot be read" for path in commit_log.unreadable),
        *commit_log.damage_notes,
    ]


def _incompleteness(commit_log: CommitLog, index: IndexSet, tail: TailIndex) -> str | None:
    parts = lacks_of(commit_log)
    if index.unchecked:
        files = "1 index file is" if len(index.unchecked) == 1 else f"{len(index.unchecked)} index files are"
        parts.append(f"{files} still to be checked")
    if tail.remaining:
        parts.append(f"{tail.remaining_bytes} bytes of the log beyond the index are still to be scanned")
    return "; ".join(parts) or None


Change = Callable[[Snapshot], Snapshot | None]
"""Makes the next snapshot from the current one; None leaves it."""
