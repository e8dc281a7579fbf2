"""Which messages groups popped and did not acknowledge, by what a store's broker noted of it in the log.

A group that pops a message is beyond it in its offset at once, whether it will acknowledge the message or not. The
broker stores a checkpoint of the pop, and each acknowledgement, as notes (:mod:`protocol.pop`). The newest checkpoint
of a message counts: a consumer that asks for more time makes another one. A message whose checkpoint was taken from the
revive topic is back in a retry topic, or gone.

The notes hold all of it only where the broker keeps them in the log (not with `popConsumerKVServiceEnable`, which is in
RocksDB, in `kvStore/`, and not read) and stores each at once (`enablePopBufferMerge`, off by default, does not).
Source: PopMessageProcessor, ChangeInvisibleTimeProcessor and PopReviveService of RocketMQ 5.5.0; other-formats §6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from typing import Final, NamedTuple

from protocol.errors import StoreError
from protocol.java_hash import java_hash
from protocol.message import Message, decode_message
from protocol.pop import (
    ACKNOWLEDGEMENT_TAGS,
    CHECKPOINT_TAG,
    Pop,
    PopCheckpoint,
    decode_acknowledgement,
    decode_checkpoint,
)
from protocol.system_topics import (
    POP_SEPARATORS,
    RETRY_PREFIX,
    REVIVE_TOPIC_PREFIX,
    SYSTEM_GROUP_PREFIX,
    TIMER_TOPIC,
    origin_of,
)
from storage.amounts import counted
from storage.arrays import np, npt
from storage.layout.store_config import StoreConfig
from storage.layout.unread_parts import has_kv_notes
from storage.queue.tag_search import offsets_with_tag
from storage.store.message_store import MessageStore

MOST_NOTES: Final = 100_000
"""Checkpoints and acknowledgements that are read."""

REPORTED: Final = 1_000
"""After so many notes it is reported how many were read."""

REVIVE_GROUP: Final = f"{SYSTEM_GROUP_PREFIX}REVIVE_GROUP"
"""The group in which a broker takes checkpoints from the revive topic; its offset is that of the last one taken."""

_HASHES: Final = tuple(java_hash(tag) for tag in (CHECKPOINT_TAG, *ACKNOWLEDGEMENT_TAGS))


@dataclass(frozen=True, slots=True)
class Popped:
    """A message that a group popped, by its newest checkpoint; times in ms.

    `revive_timestamp` is when it comes back unless it is acknowledged. `is_taken`: the broker has done that already, or
    found that it need not; None where that is not known.
    """

    group: str
    topic: str
    queue_id: int
    queue_offset: int
    pop_timestamp: int
    revive_timestamp: int
    is_acknowledged: bool
    is_taken: bool | None

    @property
    def is_out(self) -> bool:
        """Whether the group has the message and is expected to acknowledge it."""
        return not self.is_acknowledged and self.is_taken is False


class _Place(NamedTuple):
    """A message of a queue, as one group sees it."""

    group: str
    topic: str
    queue_id: int
    queue_offset: int


class PopLog:
    """The notes of a store that lie at a physical offset or behind it; at most `MOST_NOTES`, which `is_cut` says.

    Where there are more the first are read if `from_physical` is given, else the last. Waits for the disk. Raises
    StoreError where queues cannot be read.
    """

    def __init__(
        self,
        store: MessageStore,
        from_physical: int | None = None,
        topics: Sequence[str] = (),
        report: Callable[[int], None] = lambda _done: None,
    ) -> None:
        """Read the notes of all messages, or of those of some topics alone; `report` gets how many were read."""
        self._store = store
        self._needles = [f'"{topic}"'.encode() for topic in topics]
        self._newest: dict[_Place, PopCheckpoint] = {}
        self._acknowledged: dict[Pop, set[int]] = {}
        self._taken: set[tuple[Pop, int]] = set()
        self._revive_offsets_known = not store.config.has_unknown_offsets
        places = self._places(from_physical or 0)
        self.is_cut = len(places) > MOST_NOTES
        read = places[:MOST_NOTES] if from_physical is not None else places[-MOST_NOTES:]
        for number, physical_offset in enumerate(read):
            if number % REPORTED == 0:
                report(number)
            self._read(physical_offset)

    @property
    def note(self) -> str | None:
        """A sentence where not all notes were read; else None."""
        if not self.is_cut:
            return None
        return f"of the checkpoints of popped messages {counted(MOST_NOTES, 'note')} were read, and there are more"

    def popped(self, group: str, topic: str, queue_id: int, queue_offset: int) -> Popped | None:
        """What a group did with a message that it popped; None where no checkpoint of that was found."""
        place = _Place(group, topic, queue_id, queue_offset)
        checkpoint = self._newest.get(place)
        return None if checkpoint is None else self._state(place, checkpoint)

    def all_out(self) -> Iterator[Popped]:
        """All messages that are popped and neither acknowledged nor back."""
        states = (self._state(place, checkpoint) for place, checkpoint in self._newest.items())
        return (state for state in states if state.is_out)

    def _state(self, place: _Place, checkpoint: PopCheckpoint) -> Popped:
        offset, pop = place.queue_offset, checkpoint.pop
        acknowledged = offset in checkpoint.acknowledged or offset in self._acknowledged.get(pop, ())
        taken = (pop, checkpoint.revive_timestamp) in self._taken
        is_taken = None if taken and not self._revive_offsets_known else taken
        return Popped(*place, pop.pop_timestamp, checkpoint.revive_timestamp, acknowledged, is_taken)

    def _places(self, from_physical: int) -> list[int]:
        """Where records lie whose tag may be that of a note, ascending."""
        queues, end = self._store.queues, self._store.commit_log.end
        found: list[npt.NDArray[np.int64]] = []
        for topic in queues.topics():
            if topic == TIMER_TOPIC or topic.startswith(REVIVE_TOPIC_PREFIX):
                for queue_id in queues.queue_ids(topic):
                    queue = queues.queue(topic, queue_id)
                    if queue is not None:
                        found += [offsets_with_tag(queue, each, from_physical, end) for each in _HASHES]
        return list(dict.fromkeys(merge(*(each.tolist() for each in found))))

    def _read(self, physical_offset: int) -> None:
        record = self._store.record_at(physical_offset)
        if record is None or not self._may_be_wanted(bytes(record)):
            return
        try:
            message = decode_message(record, physical_offset=physical_offset)
        except StoreError:
            return
        revive_topic = origin_of(message).topic or ""
        if not revive_topic.startswith(REVIVE_TOPIC_PREFIX):
            return
        if message.tags == CHECKPOINT_TAG:
            checkpoint = decode_checkpoint(message.stored_body)
            if checkpoint is not None:
                self._note(checkpoint, message)
        elif message.tags in ACKNOWLEDGEMENT_TAGS:
            acknowledgement = decode_acknowledgement(message.stored_body)
            if acknowledgement is not None:
                self._acknowledged.setdefault(acknowledgement.pop, set()).update(acknowledgement.offsets)

    def _may_be_wanted(self, record: bytes) -> bool:
        """Whether a note may be of the topics that were asked for; spares decoding most of those that are not."""
        return not self._needles or any(needle in record for needle in self._needles)

    def _note(self, checkpoint: PopCheckpoint, message: Message) -> None:
        pop = checkpoint.pop
        if message.topic.startswith(REVIVE_TOPIC_PREFIX):
            offsets = self._store.config.consumer_offsets.get((REVIVE_GROUP, message.topic), {})
            if not self._revive_offsets_known or offsets.get(message.queue_id, -1) >= message.queue_offset:
                self._taken.add((pop, checkpoint.revive_timestamp))
        for offset in checkpoint.offsets:
            place = _Place(pop.group, pop.topic, pop.queue_id, offset)
            known = self._newest.get(place)
            if known is None or (known.pop.pop_timestamp, known.revive_timestamp) <= (
                pop.pop_timestamp,
                checkpoint.revive_timestamp,
            ):
                self._newest[place] = checkpoint


def count_popped(
    store: MessageStore, report: Callable[[int], None] = lambda _done: None
) -> dict[str, dict[str, dict[int, int]]] | None:
    """How many messages groups have popped and not acknowledged, by group, topic and queue id.

    None where that is not known: the notes are in a database, are not all read, or cannot be read. `report` gets how
    many notes were read, and may raise to end the work. Waits for the disk.
    """
    if has_kv_notes(store.layout.root):
        return None
    try:
        pops = PopLog(store, report=report)
    except StoreError:
        return None
    if pops.is_cut:
        return None
    found: dict[str, dict[str, dict[int, int]]] = {}
    for popped in pops.all_out():
        counts = found.setdefault(popped.group, {}).setdefault(popped.topic, {})
        counts[popped.queue_id] = counts.get(popped.queue_id, 0) + 1
    return found


def has_popped(config: StoreConfig, group: str, topic: str) -> bool:
    """Whether a group popped messages of a topic, by the retry topic that a broker made for those that came back."""
    if topic.startswith(RETRY_PREFIX):
        return topic != f"{RETRY_PREFIX}{group}"
    retry_topics = (f"{RETRY_PREFIX}{group}{separator}{topic}" for separator in POP_SEPARATORS)
    return any((group, each) in config.consumer_offsets for each in retry_topics)


def may_pop(store: MessageStore, group: str, topic: str) -> bool:
    """Whether a group pops messages of a topic, as far as it is known.

    Where the broker keeps its notes in `kvStore/`, any group may that has no offset in a retry topic of those that
    pull.
    """
    config = store.config
    if has_popped(config, group, topic):
        return True
    return (group, f"{RETRY_PREFIX}{group}") not in config.consumer_offsets and has_kv_notes(store.layout.root)
