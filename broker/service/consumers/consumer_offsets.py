"""The committed offsets of consumer groups: those that the store recorded, and before them those committed here.

Nothing is written to the store; :mod:`broker.service.consumers.offset_keeper` keeps what is committed here. Offsets are
the *next* to consume, as everywhere in RocketMQ (store-format §9.1).

Where this server is registered as a replica of a broker, consumers commit here only while that broker is away. When the
broker is back and records a newer offset of the group, that one counts instead of the one committed here.
"""

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Final

from broker.service.consumers.consume_rates import ConsumeRates
from broker.service.consumers.offset_journal import OffsetJournal
from broker.service.registry_budget import Room, room_apart, size_of
from protocol.errors import RocketLensError
from storage.store.message_store import MessageStore

logger = logging.getLogger(__name__)

Offsets = Mapping[tuple[str, str], Mapping[int, int]]

QUEUES_LIMIT = 1_000_000
"""Most queues whose offsets, committed here, are kept; commits for further ones are refused."""

PAIR_BYTES: Final = 1024
QUEUE_BYTES: Final = 320
"""Bytes that a pair of group and topic, and a queue of one, are counted with besides the names, in memory and file."""

LONGEST_ESCAPE: Final = 12
"""Most bytes that a character of a name takes in the file: it is written twice, each time as \\u0000 at worst."""

REFUSED_SECONDS: Final = 60.0
"""Seconds between two log lines about refused offsets."""


class GroupTopicPairs:
    """Pairs of group and topic, looked up from either side."""

    def __init__(self, pairs: Iterable[tuple[str, str]] = ()) -> None:
        self.topics: dict[str, set[str]] = {}
        self.groups: dict[str, set[str]] = {}
        for group, topic in pairs:
            self.add(group, topic)

    def add(self, group: str, topic: str) -> None:
        """Note one pair."""
        self.topics.setdefault(group, set()).add(topic)
        self.groups.setdefault(topic, set()).add(group)


class ConsumerOffsets:
    """Committed offsets by group, topic and queue. Safe to use from several threads."""

    def __init__(
        self,
        store: MessageStore,
        *,
        gives_way: bool = False,
        room: Room | None = None,
        rates: ConsumeRates | None = None,
    ) -> None:
        """With `gives_way` an offset that the store's broker records after a commit replaces the committed one."""
        self._store = store
        self._gives_way = gives_way
        self._recorded_then: dict[tuple[str, str, int], int | None] = {}
        self._lock = threading.Lock()
        self._committed: dict[tuple[str, str], dict[int, int]] = {}
        self._own = GroupTopicPairs()
        self._queues = 0
        self._recorded: tuple[Offsets, GroupTopicPairs] = ({}, GroupTopicPairs())
        self.changes = 0
        """The number of commits; it shows whether anything is to be written since the last write."""
        self.rates = ConsumeRates() if rates is None else rates
        """How many messages groups consume, counted from their commits."""
        self.journal: OffsetJournal | None = None
        """Where commits are noted for the process that replaces this one; None before `take_up`."""
        self.room = room_apart("committed offsets") if room is None else room
        """The part of the budget in which committed offsets are counted."""
        self._refused_seconds = -REFUSED_SECONDS
        self._unknown: RocketLensError | None = None

    def __len__(self) -> int:
        """The number of queues of groups for which an offset was committed here."""
        return self._queues

    def commit(self, group: str, topic: str, queue_id: int, offset: int, *, is_new: bool = True) -> bool:
        """Remember an offset; negative ones are ignored (remoting-protocol §3.2). False where the budget refuses it.

        An offset that is not new was committed to an earlier process, and does not count as consumption now.
        """
        if offset < 0:
            return True
        with self._lock:
            queues = self._committed.get((group, topic), {})
            if queue_id not in queues:
                if self._queues >= QUEUES_LIMIT or not self.room.take(_size_of(group, topic, is_pair=not queues)):
                    self._log_refused(group, topic)
                    return False
                self._queues += 1
            before = queues.get(queue_id)
            if before != offset:
                self.changes += 1
                if is_new:
                    self._count(group, topic, queue_id, before, offset)
                if self.journal is not None:
                    self.journal.note(group, topic, queue_id, offset)
            queues[queue_id] = offset
            self._committed[group, topic] = queues
            self._own.add(group, topic)
            if self._gives_way:
                self._recorded_then[group, topic, queue_id] = self._recorded_offset(group, topic, queue_id)
        return True

    def _log_refused(self, group: str, topic: str) -> None:
        now_seconds = time.monotonic()
        if now_seconds - self._refused_seconds >= REFUSED_SECONDS:
            self._refused_seconds = now_seconds
            text = "offsets are not remembered, that of group %r in topic %r for one: %s"
            logger.warning(text, group, topic, self.room.spent)

    def _count(self, group: str, topic: str, queue_id: int, before: int | None, offset: int) -> None:
        if before is None:
            before = self._recorded_offset(group, topic, queue_id)
        if before is not None and offset > before:
            self.rates.add(group, topic, offset - before)

    def take_up(self, journal: OffsetJournal) -> None:
        """Commit what the previous process acknowledged and did not write to disk; from then on note commits there."""
        for note in list(journal.notes()):
            self.commit(*note, is_new=False)
        self.journal = journal

    def committed(self, group: str, topic: str, queue_id: int) -> int | None:
        """The next offset of a group in a queue, None when it never committed one.

        Raises RocketLensError where it is not known: with the answer that it has none, a group would start at the
        beginning or end of the queue.
        """
        own = self.own(group, topic, queue_id)
        if own is not None and not self._gives_way:
            return own
        self.refuse_unknown(group, topic)
        if own is None or self._is_outdated(group, topic, queue_id):
            return self._recorded_offset(group, topic, queue_id)
        return own

    @property
    def unknown(self) -> RocketLensError | None:
        """The error why offsets committed to earlier servers cannot be read; None where they were read."""
        return self._unknown

    def note_unknown(self, reason: RocketLensError) -> None:
        """Have look-ups of offsets raise `reason` until :meth:`note_known`, but for those committed from now on."""
        self._unknown = reason

    def note_known(self) -> None:
        """Answer look-ups again, because all offsets that groups committed to earlier servers are read now."""
        self._unknown = None

    def own(self, group: str, topic: str, queue_id: int) -> int | None:
        """The offset that a group committed here, without regard to the store; None where there is none."""
        return self._committed.get((group, topic), {}).get(queue_id)

    def refuse_unknown(self, group: str | None = None, topic: str | None = None) -> None:
        """Raise RocketLensError where committed offsets are not known: of all groups, or of one group in one topic."""
        self._store.config.refuse_unknown_offsets(group, topic)
        if self._unknown is not None:
            raise self._unknown

    def _recorded_offset(self, group: str, topic: str, queue_id: int) -> int | None:
        return _offset_in(self._store.config.consumer_offsets, group, topic, queue_id)

    def _is_outdated(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether the store's broker has recorded another offset since one was committed here."""
        recorded = self._recorded_offset(group, topic, queue_id)
        return recorded is not None and recorded != self._recorded_then.get((group, topic, queue_id))

    def pulled(self, group: str, topic: str, queue_id: int) -> int:
        """The next offset that a group would have pulled when the store was written, −1 where it is not recorded."""
        pulled = _offset_in(self._store.config.pull_offsets, group, topic, queue_id)
        return -1 if pulled is None else pulled

    def topics_of(self, group: str) -> list[str]:
        """The topics in which a group has committed an offset, sorted; RocketLensError where that is not known."""
        self.refuse_unknown()
        with self._lock:
            return sorted({*self._pairs().topics.get(group, ()), *self._own.topics.get(group, ())})

    def groups_of(self, topic: str) -> list[str]:
        """The groups that have committed an offset in a topic, sorted; RocketLensError where that is not known."""
        self.refuse_unknown()
        with self._lock:
            return sorted({*self._pairs().groups.get(topic, ()), *self._own.groups.get(topic, ())})

    def offsets_of(self, group: str, topic: str) -> dict[int, int]:
        """All committed offsets of a group in a topic by queue id. Raises RocketLensError where they are not known."""
        self.refuse_unknown(group, topic)
        return self._offsets_of(group, topic)

    def _offsets_of(self, group: str, topic: str) -> dict[int, int]:
        recorded = self._store.config.consumer_offsets.get((group, topic), {})
        own = self._committed.get((group, topic), {})
        if self._gives_way:
            own = {each: offset for each, offset in own.items() if not self._is_outdated(group, topic, each)}
        return {**recorded, **own}

    def own_pairs(self) -> list[tuple[str, str]]:
        """The (group, topic) pairs for which an offset was committed here, sorted."""
        with self._lock:
            return sorted(self._committed)

    def pairs(self) -> list[tuple[str, str]]:
        """All (group, topic) pairs, those of the store first. Raises RocketLensError where they are not known."""
        self.refuse_unknown()
        recorded = self._store.config.consumer_offsets
        with self._lock:
            return [*recorded, *(pair for pair in self._committed if pair not in recorded)]

    def everything(self) -> dict[tuple[str, str], dict[int, int]]:
        """All committed offsets that are known, by (group, topic) and queue id."""
        with self._lock:
            pairs = {*self._store.config.consumer_offsets, *self._committed}
        return {pair: self._offsets_of(*pair) for pair in sorted(pairs)}

    def _pairs(self) -> GroupTopicPairs:
        """The pairs that the store recorded; made once for each refresh of the store."""
        table, pairs = self._recorded
        if table is not self._store.config.consumer_offsets:
            table = self._store.config.consumer_offsets
            pairs = GroupTopicPairs(table)
            self._recorded = table, pairs
        return pairs


def _size_of(group: str, topic: str, *, is_pair: bool) -> int:
    """The number of bytes that one more queue is counted with; `is_pair` if it is the first of its group and topic."""
    pair = PAIR_BYTES + size_of(group, topic) + LONGEST_ESCAPE * (len(group) + len(topic))
    return QUEUE_BYTES + pair * is_pair


def _offset_in(table: Mapping[tuple[str, str], Mapping[int, int]], group: str, topic: str, queue_id: int) -> int | None:
    return table.get((group, topic), {}).get(queue_id)
