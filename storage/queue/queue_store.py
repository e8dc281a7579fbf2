"""All queues of a store: found by topic and queue id, opened when asked for.

A store can have 100,000 queue directories. Opening lists only the topics; a topic's queues are listed when one of them
is first asked for, and a queue's files when that queue is. The number of open files is limited
(`storage.files.open_files`). A topic's name comes from a client: it is only looked up among the listed names, and never
joined to a path.
"""

from __future__ import annotations

import os
import stat
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from contextlib import suppress
from copy import copy
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from protocol.errors import QueueBeingSearched, StoreError
from storage.arrays import np, npt
from storage.files.mapped_file import cannot_be_seen, is_directory, list_directory
from storage.files.open_files import OpenFiles
from storage.files.recently_used import RecentlyUsed
from storage.files.waiting import Lookup, all_of, finish, plainly
from storage.layout.store_config import UsedQueues
from storage.layout.store_layout import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, CONSUME_QUEUE_EXT
from storage.log.commit_log import CommitLog
from storage.queue._derived_units import derived_queue
from storage.queue._joined_queue import JoinedQueue, OtherTier, join
from storage.queue._queue_growth import REMEMBERED, KnownQueues, QueueMemory
from storage.queue._unlisted_queues import UnlistedQueues
from storage.queue.batch_consume_queue import BatchConsumeQueue
from storage.queue.consume_queue import ConsumeQueue
from storage.queue.derived_queues import SCANNED_AT_ONCE, DerivedQueues
from storage.queue.queue import Queue
from storage.queue.queue_holes import QueueHoles
from storage.queue.queue_record import QueueName, queue_place
from storage.queue.tag_search import offsets_with_tag_lookup
from storage.queue.tier import TIER_QUEUES, Tier
from storage.ranges import Range, Ranges, coarse, merge

__all__ = ["Queue", "QueueStore"]

AnyQueue: TypeAlias = ConsumeQueue | BatchConsumeQueue | JoinedQueue

QUEUE_LIMIT: Final = 16384
"""Most queues that are kept open; each takes about a kilobyte."""
MOST_REFUSED: Final = 5
"""Most queues without their tier that are reported one by one."""
LARGEST_QUEUE_ID: Final = (1 << 31) - 1


class QueueStore:
    """The queues below a store's root at one moment; missing directories have none. Safe to use from several threads.

    A directory that cannot be listed may contain any queue. `problems` names such directories, and `is_whole` is false
    as long as there is one. Topics that were found before are still served. Asking for another topic, or for one whose
    own directory cannot be listed, raises StoreError, because it may exist.
    """

    def __init__(
        self,
        root: Path,
        commit_log: CommitLog,
        open_files: OpenFiles | None = None,
        holes: QueueHoles | None = None,
        tier: Tier | None = None,
        derived: DerivedQueues | None = None,
        used: Mapping[str, UsedQueues] | None = None,
        lost: DerivedQueues | None = None,
    ) -> None:
        """`derived` are the queues that the log alone has; all snapshots of a store share them, too.

        `used` are those that groups have consumed from, by topic: they are lost where they have no directory. Where all
        directories are lost, the queues are `lost`, which are derived from the log; without these all are refused.
        """
        self._root = root
        self._of_rocksdb, self._lost = derived, lost
        self.used = used or {}
        self.tier = tier
        """Where older messages of the queues are; None without such a place."""
        self._refused_tiers: dict[tuple[str, int], str] = {}
        self.derived = derived
        """The queues that are derived from the log; None where all are files."""
        self.holes = QueueHoles() if holes is None else holes
        """The runs of damaged units with their messages in the log; all snapshots of a store share them."""
        self._open_files = OpenFiles() if open_files is None else open_files
        self._known: tuple[KnownQueues, KnownQueues] = RecentlyUsed(REMEMBERED), RecentlyUsed(REMEMBERED)
        self._unlisted = UnlistedQueues()
        self._plain: frozenset[str] = frozenset()
        self._batch: frozenset[str] = frozenset()
        self._has_extension = False
        self._tiered: frozenset[str] = frozenset()
        self._list(commit_log)

    def _list(self, commit_log: CommitLog) -> None:
        """List the topics, and drop everything else but the known ends of queues."""
        root = self._root
        self._commit_log = commit_log
        self._generation = object()
        self.problems: list[str] = []
        self._unknown: StoreError | None = None
        self.derived = self._of_rocksdb
        has_files = self.derived is None or self.derived.only_light
        # If something else has the name of the directory, it is lost.
        is_listed = has_files and (os.path.isdir(tree := root / CONSUME_QUEUE) or not os.path.lexists(tree))
        self._plain = self._list_topics(root / CONSUME_QUEUE, self._plain) if is_listed else frozenset()
        if self.derived is None and not self._plain and not self.problems:
            self.derived = self._lost
        self._batch = self._list_topics(root / BATCH_CONSUME_QUEUE, self._batch)
        self._has_extension = self._is_directory(root / CONSUME_QUEUE_EXT, self._has_extension)
        self._tiered = frozenset() if self.tier is None else self.tier.topics
        # Of derived queues it is known which there are, but not which of them hold batches.
        is_known = has_files and not self.problems
        self._used = {
            topic: each
            for topic, each in self.used.items()
            if is_known and _is_topic(topic) and (each.has_batches if self.is_lost else each.queue_ids)
        }
        self._are_lost_expected = False
        self._topics = tuple(sorted({*self._plain, *self._batch, *self._tiered, *self._used}))
        self._limit = QUEUE_LIMIT if self.tier is None else TIER_QUEUES
        self._ids: dict[str, tuple[int, ...]] = {}
        self._queues: RecentlyUsed[AnyQueue] = RecentlyUsed(self._limit)
        self._joined_parts: dict[tuple[str, int], AnyQueue] = {}

    def refresh(
        self,
        commit_log: CommitLog | None = None,
        tier: Tier | None = None,
        used: Mapping[str, UsedQueues] | None = None,
    ) -> QueueStore:
        """Return the queues as they are now, with another log, tier, or other queues in use, if they are given.

        Topics and queues are listed anew; results for queues that still exist are kept and used.
        """
        refreshed = copy(self)
        refreshed.tier = tier or self.tier
        refreshed.used = self.used if used is None else used
        refreshed._list(commit_log or self._commit_log)
        self._open_files.forget_changed()
        return refreshed

    def grown(self, commit_log: CommitLog) -> QueueStore:
        """Return these queues with a log that has grown, and with their new messages; new queues are not listed."""
        grown = copy(self)
        grown._commit_log = commit_log
        grown._queues, grown._joined_parts = RecentlyUsed(self._limit), {}
        return grown

    def has_lost_file(self) -> bool:
        """Whether an open file was removed, or has become shorter, so that it must not be read."""
        return self._open_files.has_lost()

    def is_of(self, other: QueueStore) -> bool:
        """Whether topics and queues are from the same listing as those of another store; its log may be longer."""
        return self._generation is other._generation

    def is_in_tier(self, queue: Queue) -> bool:
        """Whether a queue, or a part of one, lies in the tier: its units point into a log of its own."""
        return self.tier is not None and isinstance(queue, ConsumeQueue) and queue.holes is self.tier.holes

    def tier_part(self, queue: AnyQueue | None) -> tuple[ConsumeQueue, int] | None:
        """A queue's part in the tier, and where in the part's log the messages end that only the tier has.

        None for a queue that has nothing there, and for no queue. Waits for the disk; raises BeingSearched where a unit
        is damaged.
        """
        part = None if queue is None or self.tier is None else queue.parts[0]
        if part is None or not isinstance(part.queue, ConsumeQueue) or not self.is_in_tier(part.queue):
            return None
        place = part.queue.message_in_log(part.stop) if part.stop < part.queue.max_offset else None
        return part.queue, part.queue.log.end if place is None else place

    @property
    def tier_problems(self) -> list[str]:
        """Sentences about the tier: files that it lacks, and queues whose messages are not those of the store."""
        refused = list(self._refused_tiers.values())
        more = [f"so are {len(refused) - MOST_REFUSED} more queues"] if len(refused) > MOST_REFUSED else []
        return [] if self.tier is None else [*self.tier.problems, *refused[:MOST_REFUSED], *more]

    @property
    def commit_log(self) -> CommitLog:
        """The log that the queues point into."""
        return self._commit_log

    @property
    def is_whole(self) -> bool:
        """Whether all topics that have a directory were found; if not, they have to be listed again."""
        return self._unknown is None

    def topics(self) -> list[str]:
        """The topics whose directory was found, sorted; there need not be a queue in it.

        Of topics that the log alone has, those are among them that were found by now; `why_unknown` says so.
        """
        if self.derived is not None:
            with suppress(QueueBeingSearched):
                finish(self.derived.read_lookup(self._commit_log))
        return list(self._topics) if self.derived is None else sorted({*self._topics, *self.derived.topics()})

    def all_topics(self) -> list[str]:
        """The topics that have a directory, sorted; raises StoreError where there may be others."""
        self._refuse_unknown()
        return self.topics()

    def has_topic(self, topic: str) -> bool:
        """Whether a topic has a directory, or queues in the log alone; raises as `queue_ids` does."""
        if self.derived is not None and self._unknown is None and self._is_derived(topic):
            finish(self.derived.read_lookup(self._commit_log))
        if not self._is_found(topic):
            if _is_topic(topic):
                self._refuse_file(topic)
            self._refuse_unknown()
            return False
        return True

    def absence_of(self, topic: str) -> tuple[str, ...]:
        """A sentence, in a tuple, if the topic was not found, or not yet; an empty tuple if it was. Waits."""
        if not self._is_found(topic) and self.derived is not None and self._is_derived(topic):
            try:
                finish(self.derived.read_lookup(self._commit_log))
            except QueueBeingSearched as error:
                return () if self._is_found(topic) else (str(error),)
        if self._is_found(topic):
            return ()
        return (f"the store has no queue of topic {topic}" if self._unknown is None else str(self._unknown),)

    @property
    def is_listed(self) -> bool:
        """Whether topics and queues can be listed without a wait; they can if there is a directory of a plain queue."""
        if not self._commit_log.segments:
            return True
        if self.derived is not None:
            return self._unknown is not None or self.derived.reaches(self._commit_log)
        return bool(self._plain) or self._unknown is not None

    @property
    def is_lost(self) -> bool:
        """Whether all directories of plain queues are lost, so that these are derived from the log."""
        return self.derived is not None and self.derived is self._lost

    @property
    def notes(self) -> list[str]:
        """Sentences about where queues come from, if not from files."""
        if self.derived is None:
            return []
        if self.is_lost:
            trees = (self.derived.place, self._root / BATCH_CONSUME_QUEUE)
            is_named = not any(map(os.path.lexists, trees))  # by the layout
            is_known = self.derived.reaches(self._commit_log)
            found = f"{self.derived.place} has no queue; queues are derived from the log, rocketlens rebuild queues"
            return (
                []
                if is_named or (is_known and self._batch.issuperset(self.derived.topics()))
                else [f"{found} makes them"]
            )
        what = "light queues" if self.derived.only_light else "queues"
        return [f"{self.derived.place} is a RocksDB, which is not read: {what} are derived from the log"]

    @property
    def derived_is_behind(self) -> bool:
        """Whether much of the log has not been read yet for queues that it alone has."""
        derived = self.derived
        return derived is not None and derived.left_of(self._commit_log) > SCANNED_AT_ONCE

    def is_listed_for(self, topic: str) -> bool:
        """Whether the queues of one topic can be listed without a wait."""
        return self.is_listed or (self.derived is not None and not self._is_derived(topic))

    def listed(self) -> Lookup[None]:
        """Find out whether queues without any directory may be missing; listing topics and queues needs that.

        Raises QueueBeingSearched while queues are being derived from the log.
        """
        if self.is_listed:
            return
        if self.derived is not None:
            yield from self.derived.read_lookup(self._commit_log)
        else:
            yield from self._unlisted.are_missed_by(self._commit_log, self._batch)

    def why_unknown(self) -> str | None:
        """A sentence that says why there may be topics that were not found, None where there are none."""
        try:
            self._refuse_unknown()
        except StoreError as error:
            return str(error)
        return None

    def has_batches(self, topic: str) -> bool:
        """Whether a topic has a directory of queues of batches."""
        return topic in self._batch

    def batch_ranges(self) -> Ranges:
        """Ranges of physical offsets in which batches start, by the units of their queues. Waits for the disk.

        Where units are lost, what lies between their neighbours is among them.
        """
        if not self._batch:
            return ()
        places, lost = [np.empty(0, np.int64)], list[Range]()
        for topic in sorted(self._batch):
            with suppress(StoreError):
                queues = (queue for queue_id in self.queue_ids(topic) for queue in self._both(topic, queue_id))
                for queue in queues:
                    if isinstance(queue, BatchConsumeQueue):
                        of_queue, gaps = queue.places()
                        places.append(of_queue)
                        lost += gaps
        found = np.sort(np.concatenate(places))  # as unique, which imports masked arrays
        found = found[(found >= self._commit_log.minimum) & (found < self._commit_log.end)]
        return coarse(merge([*lost, *coarse(np.stack([found, found + 1], 1))]))

    def queue_ids(self, topic: str) -> tuple[int, ...]:
        """The ids of a topic's queues, ascending; none for a topic that has no directory.

        Raises StoreError where they are not known.
        """
        ids = self._ids.get(topic)
        if ids is None:
            if not self.has_topic(topic):
                return ()
            ids = self._ids[topic] = tuple(sorted(self._list_ids(topic)))
        derived = () if self.derived is None else self.derived.queue_ids(topic)
        return ids if not derived else derived if not ids else tuple(sorted({*ids, *derived}))

    def queue(self, topic: str, queue_id: int) -> AnyQueue | None:
        """One queue, or None where the store has no directory for it; raises as `queue_ids` does."""
        if not self._has_queue(topic, queue_id):
            return None
        known = self._queues.find((topic, queue_id))
        opened = known or finish(self._open(topic, queue_id))
        return None if opened is None else self._queues.get((topic, queue_id), lambda: opened)

    def queue_lookup(self, topic: str, queue_id: int) -> Lookup[AnyQueue | None]:
        """`queue` as a look-up, which waits until the queue's beginning and end are found."""
        queue = self._queues.find((topic, queue_id))
        if queue is not None and queue.is_measured:
            return queue
        if topic not in self._ids and not self.is_listed_for(topic):
            yield from self.listed()
        if not self._has_queue(topic, queue_id):
            return None
        opened = queue or (yield from self._open(topic, queue_id))
        if opened is None:
            return None
        # If another thread has opened it meanwhile, its object is used.
        return (yield from self._queues.get((topic, queue_id), lambda: opened).measured())

    def readable_lookup(self, topic: str, queue_id: int, queue_offset: int) -> Lookup[tuple[AnyQueue | None, bool]]:
        """`queue_lookup` for reads from a queue offset on: before an end that is being searched, the part up to it.

        Also return whether the end is known, so that it is all of the queue.
        """
        part = self._sound_part(topic, queue_id, queue_offset)
        if part is None:
            try:
                return (yield from self.queue_lookup(topic, queue_id)), True
            except QueueBeingSearched:
                part = self._sound_part(topic, queue_id, queue_offset)
                if part is None:
                    raise
        return part, False

    def _sound_part(self, topic: str, queue_id: int, queue_offset: int) -> AnyQueue | None:
        """The part of a queue before an end that is being searched, if it has a queue offset."""
        queue = self._queues.find((topic, queue_id))
        if queue is None:
            part = self._joined_parts.get((topic, queue_id))
        else:
            part = None if queue.is_measured else queue.sound_part
        return part if part is not None and part.min_offset <= queue_offset < part.max_offset else None

    def queues_of(self, topic: str) -> Iterator[Queue]:
        """All queues of a topic by ascending id."""
        for queue_id in self.queue_ids(topic):
            queue = self.queue(topic, queue_id)
            if queue is not None:
                yield queue

    def offsets_with_tag_lookup(
        self, topic: str, tag_hash: int, from_physical: int, to_physical: int
    ) -> Lookup[npt.NDArray[np.int64]]:
        """Return the physical offsets in [from, to), descending, of the topic's messages whose tag may have a hash.

        The hash has 32 bits. If a topic has both kinds of queues, the messages of both are returned.
        """
        found = yield from all_of(
            offsets_with_tag_lookup(queue, tag_hash, from_physical, to_physical)
            for queue_id in self.queue_ids(topic)
            for queue in self._both(topic, queue_id)
        )
        return np.unique(np.concatenate([np.empty(0, np.int64), *found]))[::-1]

    offsets_with_tag = plainly(offsets_with_tag_lookup)

    def knows(self, topic: str, queue_id: int) -> bool:
        """Whether a queue was in the listing; a new one may have been made since then."""
        if self.derived is not None and queue_id in self.derived.queue_ids(topic):
            return True
        ids = self._ids.get(topic)
        return queue_id in ids if ids is not None else self._is_found(topic)

    def has_directory(self, topic: str, queue_id: int) -> bool:
        """Whether there is a directory of a queue now; the topic may be any text that a record contains."""
        if not _is_topic(topic):
            return False
        trees = (CONSUME_QUEUE, BATCH_CONSUME_QUEUE)
        return any(os.path.isdir(self._root / tree / topic / str(queue_id)) for tree in trees)

    def has_unit_of(self, record: memoryview, physical_offset: int) -> bool:
        """Whether the queue of an intact record has a unit for it; in one of batches only for records of the log."""
        place = queue_place(record)
        if place is None:
            return False
        queue_id, queue_offset, topic = place
        if not self.knows(topic, queue_id) or self.derived_is_behind:
            return False
        queue = self.queue(topic, queue_id)
        own = queue.own if isinstance(queue, JoinedQueue) else queue
        if isinstance(own, ConsumeQueue):  # its units are found by their queue offsets, in the queue's range or not
            return own.log is self._commit_log and own.points_at(queue_offset, physical_offset)
        entry = None if own is None else own.entry_at(queue_offset)
        return entry is not None and entry.physical_offset == physical_offset

    def _is_derived(self, topic: str) -> bool:
        """Whether the log has to be read to know the queues of a topic."""
        return self.derived is not None and self.derived.is_for(topic) and not (self.is_lost and topic in self._batch)

    def _is_found(self, topic: str) -> bool:
        is_derived = self.derived is not None and self.derived.has_topic(topic)
        return is_derived or any(topic in found for found in (self._plain, self._batch, self._tiered, self._used))

    def _list_topics(self, tree: Path, before: frozenset[str]) -> frozenset[str]:
        """Return the topics in a directory, those of before if it cannot be listed now."""
        try:
            return frozenset(directories(tree))
        except StoreError as error:
            self._miss(error)
            return before

    def _is_directory(self, tree: Path, before: bool) -> bool:
        try:
            return stat.S_ISDIR(os.stat(tree).st_mode)
        except FileNotFoundError:
            return False
        except OSError as error:
            self._miss(cannot_be_seen(tree, error))
            return before

    def _miss(self, error: StoreError) -> None:
        self._unknown = error
        self.problems.append(f"{error}; the store is served without it")

    def _refuse_unknown(self) -> None:
        """Raise StoreError where there may be topics that were not found; waits unless :meth:`listed` was called."""
        if self._unknown is not None:
            raise StoreError(self._unknown.path, what=f"{self._unknown.what}; it is not known which queues there are")
        if self.derived is not None:
            finish(self.derived.read_lookup(self._commit_log))
        elif not self._plain and finish(self._unlisted.are_missed_by(self._commit_log, self._batch)):
            state = "empty" if os.path.lexists(self._root / CONSUME_QUEUE) else "missing"
            what = f"{CONSUME_QUEUE}/ is {state}, though the log has messages of its queues; rocketlens rebuild queues"
            raise StoreError(self._root, what=f"{what} makes them")

    def _refuse_file(self, topic: str) -> None:
        """Raise StoreError if the path of a topic's directory is that of something else."""
        for tree in (CONSUME_QUEUE, BATCH_CONSUME_QUEUE):
            path = self._root / tree / topic
            if os.path.lexists(path) and not os.path.isdir(path):
                raise StoreError(path, what="is no directory, so that it is not known which queues the topic has")

    def _list_ids(self, topic: str) -> set[int]:
        ids = {queue_id for queue_id in self._used_ids(topic) if 0 <= queue_id <= LARGEST_QUEUE_ID}
        for tree, topics in ((CONSUME_QUEUE, self._plain), (BATCH_CONSUME_QUEUE, self._batch)):
            if topic in topics:  # what has the name of a directory and is none is a directory that is lost
                names = (entry.name for entry in list_directory(self._root / tree / topic))
                ids.update(map(int, filter(is_queue_id, names)))
        return ids if self.tier is None else ids | self.tier.queue_ids(topic)

    def _has_queue(self, topic: str, queue_id: int) -> bool:
        """Whether there is a directory of a queue; raises as `queue_ids` does."""
        ids = self.queue_ids(topic)
        number = bisect_left(ids, queue_id)  # a topic can have 100,000 queues, and a client can ask for all of them
        return number < len(ids) and ids[number] == queue_id

    def _open(self, topic: str, queue_id: int) -> Lookup[AnyQueue | None]:
        """Return the queue of an id, with its part in the tier; None for one of a tier that has nothing yet.

        If there are two, since the topic's type was changed, the one written last.
        """
        both = self._both(topic, queue_id)
        tier = None if self.tier is None else (yield from self.tier.queue_lookup(topic, queue_id))
        if not both:
            return tier
        if len(both) == 1:
            return both[0] if tier is None else (yield from self._joined(tier, both[0]))
        newest = yield from all_of(queue.newest_physical_offset() for queue in both)
        own = both[newest.index(max(newest))]
        return own if tier is None else (yield from self._joined(tier, own))

    def _joined(self, tier: ConsumeQueue, own: ConsumeQueue | BatchConsumeQueue) -> Lookup[AnyQueue]:
        """Return a queue with its part in the tier, unless that is of another store, which is reported."""
        try:
            joined = yield from join(tier, own)
        except OtherTier as error:
            self._refused_tiers[own.topic, own.queue_id] = f"{error}; the queue is served without it"
            return own
        except QueueBeingSearched:
            if own.sound_part is not None:
                self._joined_parts[own.topic, own.queue_id] = yield from self._joined(tier, own.sound_part)
            raise
        self._joined_parts.pop((own.topic, own.queue_id), None)
        return joined

    def _both(self, topic: str, queue_id: int) -> list[ConsumeQueue | BatchConsumeQueue]:
        """Return the plain queue of an id, the queue of batches, or both."""
        name = QueueName(topic, queue_id)
        plain = self._root.joinpath(CONSUME_QUEUE, topic, str(queue_id))
        batch = self._root.joinpath(BATCH_CONSUME_QUEUE, topic, str(queue_id))
        queues: list[ConsumeQueue | BatchConsumeQueue] = []
        is_used = queue_id in self._used_ids(topic) or (self.is_lost and topic in self._used)
        beside = self._lost_queues if is_used else None
        is_of_batches = beside is not None and self._used[topic].has_batches
        if (topic in self._batch or is_of_batches) and (topic not in self._plain or batch.is_dir()):
            memory, log, files = self._memory_of(1, topic, queue_id), self._commit_log, self._open_files
            queues.append(BatchConsumeQueue(name, batch, log, files, memory, self.holes, beside))
        is_plain = topic in self._plain or (beside is not None and not queues)
        # Where a tier has the queue, the store need not.
        if is_plain and ((not queues and topic not in self._tiered) or plain.is_dir()):
            extension = self._root.joinpath(CONSUME_QUEUE_EXT, topic, plain.name) if self._has_extension else None
            memory = self._memory_of(0, topic, queue_id)
            log, files = self._commit_log, self._open_files
            queues.append(ConsumeQueue(name, plain, extension, log, files, memory, self.holes, beside=beside))
        if not queues and self.derived is not None and queue_id in self.derived.queue_ids(topic):
            finish(self.derived.read_lookup(self._commit_log))
            queues.append(derived_queue(self.derived, name, self._commit_log, self.holes))
        return queues

    def _used_ids(self, topic: str) -> set[int]:
        """The ids of queues of a topic that groups have consumed from."""
        return self._used[topic].queue_ids if topic in self._used else set()

    def _lost_queues(self) -> Iterator[ConsumeQueue | BatchConsumeQueue]:
        """Yield the queues that lost their directories; none where that was done before. Waits for the disk."""
        is_first, self._are_lost_expected = not self._are_lost_expected, True
        for topic in self._used if is_first else ():
            for queue_id in self.queue_ids(topic):
                if queue_id in self._used_ids(topic) and not self.has_directory(topic, queue_id):
                    yield from self._both(topic, queue_id)

    def _memory_of(self, kind: int, topic: str, queue_id: int) -> QueueMemory:
        """Return what is known of a plain queue (0) or one of batches (1), and the function that keeps new results."""
        known, key = self._known[kind], (topic, queue_id)
        return QueueMemory(self._generation, known.peek(key), partial(known.put, key))


def is_queue_id(name: str) -> bool:
    """Whether a name is one that a broker gives to a queue's directory: a 32-bit number without leading zeros."""
    return name.isascii() and name.isdigit() and str(int(name[:11])) == name and int(name) <= LARGEST_QUEUE_ID


def _is_topic(text: str) -> bool:
    """Whether a text can be the name of a directory; the topic in a record or a request may be any text."""
    return text not in ("", ".", "..") and "/" not in text and "\0" not in text and _is_text(text)


def directories(path: Path) -> Iterator[str]:
    """Yield the names of the directories in a directory, none if it is missing; names with invalid UTF-8 are left out.

    Raises StoreError where the directory cannot be listed.
    """
    yield from (entry.name for entry in list_directory(path) if _is_text(entry.name) and is_directory(entry))


def queue_directories(tree: Path) -> Iterator[Path]:
    """Yield the directories of queues below `consumequeue/` or `batchconsumequeue/`; raises as `directories` does."""
    for topic in directories(tree):
        yield from (tree / topic / name for name in directories(tree / topic) if is_queue_id(name))


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
